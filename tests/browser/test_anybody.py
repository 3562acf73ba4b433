"""Hostile text, keyboard alone, screen readers, small screens, other connections."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.browser.conftest import Open, load
from tests.browser.test_watching import SEQS, ended
from tests.live.conftest import Served
from tests.live.machines import missing

HOSTILE = "<img src=x onerror='window.pwned=1'><script>window.pwned=1</script>\u202e & \"quoted\" {{7*7}}"


def hostile_episode(game: str, episode_id: str) -> list[str]:
    """An episode in which everything that a player or a model may write is hostile."""

    frame = {"counts": [1, 2, 3], "claims": [None, None], "last_acts": [None, None], "seat": 0, "turns_left": 10}
    frame |= {"max_turns": 10, "over": False, "deal": False}
    asked = {"seat": 0, "turn": 0, "source": HOSTILE, "latency": 1.0, "usage": {"cost": 0.1}, "fallback": HOSTILE}
    act = {"act": [0, 1, 0, 0], "text": HOSTILE}
    calls = [{"tool": HOSTILE, "arguments": {HOSTILE: HOSTILE}}]
    started = {"game": game, "version": 1, "players": [HOSTILE, HOSTILE], "frame": frame, "cast": {}}
    told = [
        ("episode.started", started | {"about": {"eval_pack_id": HOSTILE}, "private": {"0": {"utilities": [1, 1, 1]}}}),
        ("hint", asked | {"private": {"0": act | {"reason": HOSTILE, "confidence": 0.5}}}),
        ("decision", asked | act | {"calls": calls, "private": {"0": {"reason": HOSTILE}}}),
        ("step", {"turn": 0, "acts": [[0, 1, 0, 0], None], "rewards": [0.0, 0.0], "frame": {"seat": 1}}),
        ("commentary", {"turn": 0, "text": HOSTILE, "audio": "javascript:window.pwned=1"}),
        ("episode.failed", {"kind": "error", "reason": HOSTILE, "frame": frame, "private": {}, "steps": 1}),
    ]
    head = {"v": 1, "episode_id": episode_id}
    return [
        json.dumps(head | {"seq": seq, "ts": 1.0 + seq, "type": kind, "payload": payload})
        for seq, (kind, payload) in enumerate(told)
    ]


@pytest.mark.parametrize("game", ["deal_or_no_deal", "a_game_without_a_file"])
def test_a_hostile_text_shows_as_text(stage: Served, open_page: Open, game: str) -> None:
    load(stage, hostile_episode(game, f"ep-hostile-{game[:4]}"))
    page = open_page(f"/e/ep-hostile-{game[:4]}")
    page.locator(".status.failed").wait_for()
    page.get_by_role("button", name="Speak the commentary").click()
    page.keyboard.press("Home")
    page.keyboard.press("End")
    told = page.evaluate("() => document.body.innerText")
    assert told.count("onerror='window.pwned=1'") >= 5
    assert page.evaluate("() => window.pwned") is None
    assert page.locator("img[src='x']").count() == 0
    page.goto(stage.url + "/lobby")
    page.get_by_text("onerror=").first.wait_for()
    assert page.evaluate("() => window.pwned") is None


def test_everything_is_done_by_keyboard_alone(stage: Served, open_page: Open) -> None:
    page = open_page("/custom")
    page.get_by_role("button", name="Start", exact=True).wait_for()

    def tab_to(role: str, name: str) -> None:
        wanted = page.get_by_role(role, name=name, exact=True).first
        for _ in range(60):
            if wanted.evaluate("node => node === document.activeElement"):
                return
            page.keyboard.press("Tab")
        raise AssertionError(f"{name} cannot be reached")

    tab_to("combobox", "Seat 0")
    page.keyboard.type("Bayes")
    tab_to("combobox", "Pace")
    page.keyboard.type("at once")
    tab_to("button", "Start")
    page.keyboard.press("Enter")
    ended(page)
    page.evaluate("() => document.activeElement.blur()")
    last = page.evaluate("() => document.querySelector('kibitz-watch')?.timeline?.last")
    at = "() => document.querySelector('kibitz-watch')?.timeline?.shown.seq"
    page.keyboard.press("Home")
    page.wait_for_function(f"({at})() === 0")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.querySelector('kibitz-watch')?.timeline?.shown.turn === 0")
    page.keyboard.press("ArrowLeft")
    page.wait_for_function(f"({at})() <= 1")
    page.keyboard.press("End")
    page.wait_for_function(f"({at})() === {last}")
    page.keyboard.press("Space")  # plays again from the start, and stops
    page.wait_for_function(f"({at})() < {last}")
    page.keyboard.press("Space")
    page.get_by_role("button", name="Play (space)").wait_for()
    tab_to("link", "Episodes")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Episodes").wait_for()


def test_a_screen_reader_hears_the_commentary_politely(stage: Served, open_page: Open, played: dict[str, str]) -> None:
    episode_id = played["deal_or_no_deal"]
    page = open_page(f"/e/{episode_id}")
    ended(page)
    log = page.get_by_role("log")
    assert log.get_attribute("aria-live") == "polite"
    assert stage.events(episode_id)[-1]["payload"]["text"] in log.inner_text()


LATER = pytest.mark.conformance


@pytest.mark.parametrize(
    ("width", "theme"),
    [
        (1440, "light"),
        (360, "dark"),
        pytest.param(1440, "dark", marks=LATER),
        pytest.param(768, "light", marks=LATER),
        pytest.param(768, "dark", marks=LATER),
        pytest.param(360, "light", marks=LATER),
    ],
)
def test_axe_finds_nothing_serious_and_nothing_is_cut_off(
    stage: Served, open_page: Open, played: dict[str, str], width: int, theme: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = open_page("/lobby", width=width, color_scheme=theme, bypass_csp=True, reduced_motion="reduce")
    for address in (*(f"/e/{one}" for one in played.values()), "/custom", "/lobby", "/leaderboard", "/runs"):
        page.goto(stage.url + address)
        page.locator(".status.ended, form .primary, .page .card").first.wait_for()
        found = Axe().run(page)
        serious = [one for one in found.response["violations"] if one["impact"] in ("serious", "critical")]
        told = [(one["id"], [node["target"] for node in one["nodes"]][:4]) for one in serious]
        assert not told, (address, told)
        wide = page.evaluate("() => document.documentElement.scrollWidth")
        assert wide <= width, (address, wide)


def test_every_chart_has_a_sentence_and_a_table(open_page: Open, played: dict[str, str]) -> None:
    for episode_id in played.values():
        page = open_page(f"/e/{episode_id}")
        ended(page)
        for tab in page.locator(".seg").first.get_by_role("button").all() or [None]:
            if tab is not None:
                tab.click()
            for figure in page.locator("figure.chart:visible:has(svg)").all():
                assert len(figure.locator("svg[role=img]").get_attribute("aria-label")) > 20
                more = figure.locator("details.alt")
                more.locator("summary").click()
                more.locator("tbody tr").first.wait_for()
                more.locator("summary").click()


def test_where_sockets_do_not_pass_events_come_as_a_stream(stage: Served, open_page: Open) -> None:
    blocked = """window.WebSocket = class {
                   constructor() { setTimeout(() => this.onclose && this.onclose({}), 5); } close() {} };
                 window.WebSocket.prototype.readyState = 3;"""
    episode_id = stage.start(game="cricket", max_overs=1, seed=4, pace=0.05)
    page = open_page(f"/e/{episode_id}", init=blocked)
    ended(page)
    assert page.evaluate(SEQS) == [event["seq"] for event in stage.events(episode_id)]


HOLE = """() => {
  const { feed, timeline } = document.querySelector('kibitz-watch');
  const seq = timeline.expected + 5;
  feed.message({ events: [{ v: 1, episode_id: feed.id, seq, ts: 0, type: 'hint', payload: {} }] }, 'live');
}"""


def test_a_resync_and_a_hole_are_mended_without_a_missing_event(stage: Served, open_page: Open) -> None:
    episode_id = stage.start(game="cricket", max_overs=1, seed=4, pace=0.05)
    page = open_page(f"/e/{episode_id}")
    page.wait_for_function("() => document.querySelector('kibitz-watch')?.timeline?.last > 8")
    page.evaluate("() => document.querySelector('kibitz-watch').feed.message({ resync: 3 }, 'live')")
    page.wait_for_function("() => document.querySelector('kibitz-watch')?.timeline?.last > 15")
    page.evaluate(HOLE)
    ended(page)
    assert page.evaluate(SEQS) == [event["seq"] for event in stage.events(episode_id)]


HEARD = """window.heard = []; const Real = Audio;
  window.Audio = function (url) { const one = new Real(url); window.heard.push(one); return one; };"""
CAPTIONS = """() => {
  const caption = document.querySelector('.caption');
  window.captions = [caption.innerText];
  new MutationObserver(() => window.captions.push(caption.innerText)).observe(caption, { childList: true });
  return caption.innerText;
}"""
# what was fetched and really sounded, to its end or to where somebody muted it
SOUNDED = "() => window.heard.filter(one => one.currentTime > 0).map(one => new URL(one.src).pathname)"


def test_commentary_is_heard_once_somebody_asks_captioned_always_and_silent_when_muted(
    stage: Served, open_page: Open
) -> None:
    speech = stage.get("/custom/presets")["speech"]
    if speech["speaker"] == "silence":
        missing("no voice here; `make system` installs espeak-ng on Debian")
    episode_id = stage.start(game="cricket", max_overs=5, seed=4, pace=0.7)
    page = open_page(f"/e/{episode_id}", init=HEARD)
    answers: dict[str, Any] = {}
    page.on("response", lambda answer: answers.update({answer.url.removeprefix(stage.url): answer}))
    page.wait_for_function("() => document.querySelector('kibitz-watch')?.timeline?.last > 10")
    assert page.evaluate(CAPTIONS)
    assert page.evaluate("() => window.heard.length") == 0  # nobody has asked
    page.get_by_role("button", name="Speak the commentary").click()
    page.wait_for_function(f"() => ({SOUNDED})().length >= 1")
    url = page.evaluate(SOUNDED)[0]
    body = answers[url].body()
    assert answers[url].headers["content-type"].startswith("audio/") and len(body) > 1000
    # the caption said the same: it is the text of the event that brought the sound
    said = next(event["payload"]["text"] for event in stage.events(episode_id) if event["payload"].get("audio") == url)
    assert said in page.evaluate("() => window.captions")
    page.get_by_role("button", name="Commentary is spoken: mute").click()
    assert page.evaluate("() => window.heard.every(one => one.paused)")
    count, last = page.evaluate("() => [window.heard.length, document.querySelector('kibitz-watch')?.timeline?.last]")
    page.wait_for_function(f"() => document.querySelector('kibitz-watch')?.timeline?.last > {last + 6}")
    assert page.evaluate("() => window.heard.length") == count
    assert page.locator(".caption").inner_text()


def test_the_theme_follows_the_system_until_somebody_chooses(stage: Served, open_page: Open) -> None:
    page = open_page("/lobby", color_scheme="dark")
    paint = "() => getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(paint) == "rgb(18, 23, 26)"
    page.get_by_role("button", name="Theme: as the system").click()
    assert page.evaluate(paint) == "rgb(245, 244, 239)"
    page.reload()
    assert page.evaluate(paint) == "rgb(245, 244, 239)"


def test_training_runs_show_their_curve_and_an_empty_leaderboard_says_what_to_do(
    stage: Served, open_page: Open
) -> None:
    page = open_page("/runs")
    curve = page.get_by_role("img", name="Learning curve")
    page.locator(".plot .line.seat0").wait_for()
    assert "share of ceiling of first-try" in curve.get_attribute("aria-label")
    assert page.locator(".plot .thin").count() == 2  # every seed behind their mean
    page.get_by_text("As a table").click()
    page.locator(".alt tbody tr").nth(8).wait_for()
    page.route("**/leaderboard.json", lambda route: route.fulfill(json={"players": []}))
    page.get_by_role("link", name="Leaderboard").click()
    page.get_by_text("Nobody has a record yet").wait_for()
    assert page.get_by_role("link", name="Start an episode").get_attribute("href") == "/custom"
