"""Hostile text, the keyboard, screen readers, themes, small screens, and connections without sockets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Open, load, start_from_page
from tests.browser.test_watching import SEQS, ended
from tests.live.conftest import Served, start_server
from tests.live.machines import missing

# what `h` once took for the properties of an element
RESTYLE = {"class": "sr restyled", "hidden": True, "vars": {"display": "none"}, "title": "restyled"}
HOSTILE = "<img src=x onerror='window.pwned=1'><script>window.pwned=1</script>\u202e & \"quoted\" {{7*7}}"


def hostile_episode(game: str, episode_id: str) -> list[str]:
    """An episode in which every text that a player or a model may write is hostile."""
    frame = {"counts": [1, 2, 3], "claims": [None, None], "last_acts": [None, None], "seat": 0, "turns_left": 10}
    frame |= {"max_turns": 10, "over": False, "deal": False}
    asked = {"seat": 0, "turn": 0, "source": HOSTILE, "latency": 1.0, "usage": {"cost": 0.1}, "fallback": HOSTILE}
    act = {"act": [0, 1, 0, 0], "text": HOSTILE}
    calls = [{"tool": HOSTILE, "arguments": {HOSTILE: HOSTILE}}]
    started = {"game": game, "version": 1, "players": [HOSTILE, HOSTILE], "frame": frame, "cast": {}}
    events = [
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
        for seq, (kind, payload) in enumerate(events)
    ]


@pytest.mark.parametrize(
    "game", ["deal_or_no_deal", pytest.param("a_game_without_a_page", marks=pytest.mark.conformance)]
)
def test_hostile_text_is_shown_as_text(stage: Served, open_page: Open, game: str) -> None:
    load(stage, hostile_episode(game, f"ep-hostile-{game[:4]}"))
    page = open_page(f"/e/ep-hostile-{game[:4]}")
    page.locator(".status.failed").wait_for()
    page.get_by_role("button", name="Speak the commentary").click()
    page.keyboard.press("Home")
    page.keyboard.press("End")
    shown = page.evaluate("() => document.body.innerText")
    assert shown.count("onerror='window.pwned=1'") >= 5
    assert page.evaluate("() => window.pwned") is None
    assert page.locator("img[src='x']").count() == 0
    page.goto(stage.url + "/lobby")
    page.get_by_text("onerror=").first.wait_for()
    assert page.evaluate("() => window.pwned") is None


@pytest.mark.parametrize(
    "game", ["cricket", *(pytest.param(name, marks=pytest.mark.conformance) for name in ("deal_or_no_deal", "no_page"))]
)
def test_objects_where_words_belong_do_not_restyle_the_page(
    stage: Served, open_page: Open, played: dict[str, str], game: str
) -> None:
    """A model's reason, a name, an option: a real record with objects where the server does not check the words."""
    events = stage.events(played["cricket" if game == "cricket" else "deal_or_no_deal"])
    for event in events:
        event["episode_id"], payload = f"ep-restyle-{game}", event["payload"]
        payload |= {"fallback": RESTYLE} if "fallback" in payload else {}
        payload |= {"private": {"0": {"reason": RESTYLE}}} if event["type"] == "decision" else {}
    started = events[0]["payload"]
    players = [{"name": RESTYLE, "hand": RESTYLE, "style": RESTYLE}] * 11
    started |= {"game": game, "cast": {"sides": [{"name": RESTYLE, "players": players}] * 2, "note": RESTYLE}}
    started["about"] = {"eval_pack_id": RESTYLE, "branched_from": RESTYLE}
    started["frame"]["note"] = RESTYLE
    load(stage, [json.dumps(event) for event in events])
    page = open_page(f"/e/ep-restyle-{game}")
    page.locator(".status.ended").wait_for()
    page.get_by_role("tab", name="Thinking").click()
    page.locator("blockquote").first.wait_for()
    assert page.locator("blockquote").first.inner_text() == json.dumps(RESTYLE, separators=(",", ":"))
    assert page.locator(".restyled, [title=restyled], [style*=none]").count() == 0


@pytest.mark.conformance
def test_the_keyboard_alone_is_enough(stage: Served, open_page: Open) -> None:
    page = open_page("/custom")
    page.get_by_role("button", name="Start", exact=True).wait_for()

    def tab_to(role: str, name: str) -> None:
        wanted = page.get_by_role(role, name=name, exact=True).first
        for _ in range(60):
            if wanted.evaluate("node => node === document.activeElement"):
                return
            page.keyboard.press("Tab")
        raise AssertionError(f"{name} cannot be reached by Tab")

    page.locator("input[name=game]:checked").focus()
    game = page.get_by_role("radio", name="Deal or no deal")
    while not game.is_checked():
        page.keyboard.press("ArrowRight")
    tab_to("combobox", "Seat 0")
    page.keyboard.type("Bayes")
    tab_to("combobox", "Pace")
    page.keyboard.type("as fast")
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
    page.keyboard.press("Space")  # plays from the start, then stops
    page.wait_for_function(f"({at})() < {last}")
    page.keyboard.press("Space")
    page.get_by_role("button", name="Play (space)").wait_for()
    tab_to("link", "Episodes")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Episodes").wait_for()


@pytest.mark.conformance
def test_screen_readers_get_the_commentary_as_a_polite_log(
    stage: Served, open_page: Open, played: dict[str, str]
) -> None:
    episode_id = played["deal_or_no_deal"]
    page = open_page(f"/e/{episode_id}")
    ended(page)
    log = page.get_by_role("log")
    assert log.get_attribute("aria-live") == "polite"
    assert stage.events(episode_id)[-1]["payload"]["text"] in log.inner_text()


def check_accessibility(page: Any, width: int) -> None:
    """No serious finding of axe, and nothing wider than the screen."""
    from axe_playwright_python.sync_playwright import Axe

    page.locator(".status.ended, form .primary, .page .card").first.wait_for()
    violations = Axe().run(page).response["violations"]
    serious = [one for one in violations if one["impact"] in ("serious", "critical")]
    found = [(one["id"], [node["target"] for node in one["nodes"]][:4]) for one in serious]
    assert not found, (page.url, found)
    wide = page.evaluate("() => document.documentElement.scrollWidth")
    assert wide <= width, (page.url, wide)


@pytest.mark.parametrize(("width", "theme", "game"), [(1440, "light", "deal_or_no_deal"), (390, "dark", "cricket")])
def test_a_match_and_the_start_panel_are_accessible_and_fit_the_screen(
    stage: Served, open_page: Open, played: dict[str, str], width: int, theme: str, game: str
) -> None:
    page = open_page(f"/e/{played[game]}", width=width, color_scheme=theme, bypass_csp=True, reduced_motion="reduce")
    check_accessibility(page, width)
    page.goto(stage.url + "/custom")
    check_accessibility(page, width)


@pytest.mark.conformance
@pytest.mark.parametrize(("width", "theme"), [(1440, "light"), (768, "dark"), (360, "light"), (360, "dark")])
def test_every_page_is_accessible_and_fits_the_screen(
    stage: Served, open_page: Open, played: dict[str, str], width: int, theme: str
) -> None:
    page = open_page("/lobby", width=width, color_scheme=theme, bypass_csp=True, reduced_motion="reduce")
    first, second = played.values()
    places = ("/", "/custom", "/lobby", "/leaderboard", "/players/heuristic", "/studies", "/runs")
    for address in (f"/e/{first}", f"/e/{second}", f"/compare?a={first}&b={second}", *places):
        page.goto(stage.url + address)
        check_accessibility(page, width)


@pytest.mark.conformance
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


@pytest.mark.conformance
def test_events_arrive_as_a_stream_where_sockets_do_not_pass(stage: Served, open_page: Open) -> None:
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


@pytest.mark.conformance
def test_a_resync_or_a_gap_loses_no_event(stage: Served, open_page: Open) -> None:
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
# the audio that really played, to its end or until it was muted
SOUNDED = "() => window.heard.filter(one => one.currentTime > 0).map(one => new URL(one.src).pathname)"


@pytest.mark.conformance
def test_commentary_is_spoken_only_while_sound_is_on_and_always_captioned(stage: Served, open_page: Open) -> None:
    speech = stage.get("/custom/presets")["speech"]
    if speech["speaker"] == "silence":
        missing("no voice is installed; `make system` installs espeak-ng on Debian")
    episode_id = stage.start(game="cricket", max_overs=5, seed=4, pace=1.5)
    page = open_page(f"/e/{episode_id}", init=HEARD)
    answers: dict[str, Any] = {}
    page.on("response", lambda answer: answers.update({answer.url.removeprefix(stage.url): answer}))
    page.wait_for_function("() => document.querySelector('kibitz-watch')?.timeline?.last > 10")
    assert page.evaluate(CAPTIONS)
    assert page.evaluate("() => window.heard.length") == 0  # sound is off at first
    page.get_by_role("button", name="Speak the commentary").click()
    page.wait_for_function(f"() => ({SOUNDED})().length >= 1")
    url = page.evaluate(SOUNDED)[0]
    body = answers[url].body()
    assert answers[url].headers["content-type"] == "audio/ogg" and 1000 < len(body) < 30_000, "a line is sent as Opus"
    # the caption shows the text of the event that carried the audio
    spoken = next(
        event["payload"]["text"] for event in stage.events(episode_id) if event["payload"].get("audio") == url
    )
    assert spoken in page.evaluate("() => window.captions")
    page.get_by_role("button", name="Mute the commentary").click()
    assert page.evaluate("() => window.heard.every(one => one.paused)")
    count, last = page.evaluate("() => [window.heard.length, document.querySelector('kibitz-watch')?.timeline?.last]")
    page.wait_for_function(f"() => document.querySelector('kibitz-watch')?.timeline?.last > {last + 6}")
    assert page.evaluate("() => window.heard.length") == count
    assert page.locator(".caption").inner_text()
    page.get_by_role("button", name="Speak the commentary").click()
    page.get_by_role("button", name="Go to the start (Home)").click()
    count = page.evaluate("() => window.heard.length")
    page.get_by_role("button", name="Play (space)").click()
    page.wait_for_function(f"() => ({SOUNDED})().length > {count}")  # a replay speaks, too
    assert not page.evaluate("() => document.querySelector('kibitz-watch').timeline.following")


def test_theme_and_sound_stay_as_the_person_chose_them(stage: Served, open_page: Open) -> None:
    page = open_page("/lobby", color_scheme="dark")
    paint = "() => getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(paint) == "rgb(18, 23, 26)"
    page.get_by_role("button", name="Theme: system").click()
    assert page.evaluate(paint) == "rgb(245, 244, 239)"
    page.get_by_role("button", name="Speak the commentary").click()
    page.get_by_role("button", name="Mute the commentary").wait_for()
    page.reload()
    assert page.evaluate(paint) == "rgb(245, 244, 239)"
    page.get_by_role("button", name="Mute the commentary").wait_for()  # sound is remembered, too


@pytest.mark.conformance
def test_runs_show_their_curve_and_an_empty_leaderboard_says_what_to_do(stage: Served, open_page: Open) -> None:
    page = open_page("/runs")
    curve = page.get_by_role("img", name="Learning curve")
    page.locator(".plot .line.seat0").wait_for()
    assert "share of ceiling of first-try" in curve.get_attribute("aria-label")
    assert page.locator(".plot .thin").count() == 2  # each seed behind the mean
    assert "18 evaluations, with hints from the reference player" in page.locator(".runs p.dim.small").inner_text()
    assert "advised by" not in page.locator(".runs p.dim.small").inner_text()
    page.get_by_text("As a table").click()
    page.locator(".alt tbody tr").nth(8).wait_for()
    page.route("**/leaderboard.json", lambda route: route.fulfill(json={"players": []}))
    page.get_by_role("link", name="Leaderboard").click()
    page.get_by_text("No results yet").wait_for()
    assert page.get_by_role("link", name="Start an episode").get_attribute("href") == "/custom"


@pytest.mark.conformance
def test_the_studies_page_lists_reports_and_opens_one(open_page: Open) -> None:
    page = open_page("/studies")
    card = page.get_by_label("Do hints help?")
    card.get_by_text("It rose.").wait_for()
    assert card.get_by_text("No difference was shown in 1 of 2 comparisons.").is_visible()
    card.get_by_role("link", name="Do hints help?").click()
    page.get_by_role("heading", name="How this was made").wait_for()
    assert page.url.endswith("/reports/study.html")
    assert page.evaluate("getComputedStyle(document.querySelector('dl')).display") == "grid", "its own style applies"


@pytest.mark.conformance
def test_the_leaderboard_shows_tournaments_with_ratings_and_head_to_head_records(open_page: Open) -> None:
    record = {"games": 4, "win_share": 0.75, "win_share_ci95": [0.3, 0.9], "return_mean": 1.5}
    cost = {"illegal_share": 0.0, "fallback_share": 0.0, "tokens": 0, "money": 0.0, "seconds": 0.0}
    best = record | cost | {"name": "bayes", "rating": 1600.4, "rating_ci95": [1550.0, 1650.0], "rated": True}
    down = record | cost | {"name": "llm:down", "rating": None, "rating_ci95": None, "rated": False, "win_share": None}
    told = {
        "name": "mine",
        "game": "cricket",
        "episodes": 4,
        "seed": 0,
        "pack": "death",
        "unfinished": "",
        "changed": 1.0,
    }
    told |= {"players": [best, down | {"fallback_share": 1.0}], "matrix": {"bayes": {"llm:down": record}}}
    page = open_page("/runs")
    page.route("**/tournaments.json", lambda route: route.fulfill(json={"tournaments": [told]}))
    page.get_by_role("link", name="Leaderboard").click()
    page.get_by_role("group", name="Tournament mine, ratings").wait_for()
    page.get_by_role("link", name="Head to head").click()
    ratings = page.get_by_role("group", name="Ratings").get_by_role("row")
    page.get_by_text("4 games of every pairing, pack death").wait_for()
    assert ratings.nth(1).inner_text().split("\t")[:4] == ["1", "bayes", "1600", "1550 to 1650"]
    assert "not rated" in ratings.nth(2).inner_text() and "100.0 %" in ratings.nth(2).inner_text()
    met = page.get_by_role("group", name="Head to head").get_by_role("row")
    assert "75.0 %" in met.nth(1).inner_text()


@pytest.mark.conformance
def test_a_private_server_asks_for_the_token_before_it_shows_anything(tmp_path: Path, open_page: Open) -> None:
    """Also when the token's role does not suffice: the page names the role and takes another token."""
    (tmp_path / "tokens").write_text("watch wanda secret-of-wanda\nstart stella secret-of-stella", encoding="utf-8")
    private = start_server(tmp_path / "a.db", "--no-warm", "--tokens", str(tmp_path / "tokens"))
    try:
        page = open_page("/custom", served=private)

        def give(token: str) -> None:
            page.get_by_label("Token", exact=True).last.fill(token)
            page.get_by_role("button", name="Continue").click()

        page.get_by_text("Ask the person who runs the server.").wait_for()
        give("an-unknown-secret")
        page.get_by_text("did not accept").wait_for()
        give("secret-of-wanda")
        start_from_page(page, "Deal or no deal", Seat_0="heuristic", Seat_1="heuristic")
        page.get_by_text("The token of wanda has the role watch").wait_for()
        give("secret-of-stella")
        page.locator(".status.ended").wait_for()
        assert "secret" not in page.url
    finally:
        private.stop()
