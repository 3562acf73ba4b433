"""A spectator starts an episode, watches it, goes back, shares a link and branches."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import httpx
import pytest

from tests.browser.conftest import Open, load, start_from_page
from tests.live.conftest import Served
from tests.live.machines import wait_until

WATCH = "document.querySelector('kibitz-watch')"
SEQS = f"() => {WATCH}.timeline.log.map(event => event.seq)"


def ended(page: Any) -> None:
    """Waits for the end of the episode and until the list of turns, which takes a few frames, is complete.

    If the address names an episode, it must be that one: the address changes a moment before the page
    does, and the previous page may show a finished episode too.
    """
    page.wait_for_function(
        r"""() => {
          const watch = document.querySelector('kibitz-watch');
          const [, named] = location.pathname.match(/^\/e\/(.+)/) || [];
          return watch?.timeline && (!named || named === watch.timeline.id)
            && watch.querySelector('.meta .status.ended')
            && !watch.drawing && [...watch.turns.children].every(one => one.childElementCount);
        }"""
    )


def open_tab(page: Any, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()


def test_a_cricket_match_is_started_from_the_page_and_watched_to_its_end(stage: Served, open_page: Open) -> None:
    page = open_page("/custom")
    start_from_page(page, "Cricket", Max_overs="1", Seat_0="balanced", Seat_1="aggressive")
    page.wait_for_url("**/e/*")
    ended(page)
    episode_id = page.url.split("/e/")[1].split("?")[0]
    record = stage.events(episode_id)
    assert page.evaluate(SEQS) == [event["seq"] for event in record]
    assert page.locator(".caption").inner_text() == record[-1]["payload"]["text"]
    frame = record[-1]["payload"]["frame"]
    shown = page.locator(".score .main").all_inner_texts()
    assert any(text.startswith(f"{frame['score']}/{frame['wickets']}") for text in shown)
    sides = page.evaluate(f"() => {WATCH}.timeline.live.cast.sides")
    players = [player["name"] for side in sides for player in side["players"]]
    assert len(set(players)) == len(players) == 22, "no two players share a name"
    words = [word for side in sides for word in side["name"].split()]
    assert len(set(words)) == len(words), "nor do the sides share a word"
    open_tab(page, "Scorecard")
    assert "Fall of wickets" in page.locator(".sheet").inner_text()
    open_tab(page, "Charts")
    page.get_by_role("img", name="Win probability. ").wait_for()
    page.get_by_role("button", name="Manhattan").click()
    page.get_by_role("img", name="Manhattan").wait_for()
    page.get_by_role("button", name="Partnerships").click()
    page.locator(".stands table").wait_for()


@pytest.mark.conformance
def test_the_scorecard_on_the_page_matches_the_rules(stage: Served, open_page: Open) -> None:
    from kibitz.core.play.episode import play_episode
    from kibitz.games import cricket
    from kibitz.games.cricket.drawing.scorecard import Scorecard
    from kibitz.players import player_named

    game, settings = cricket.game(), cricket.CricketOptions(max_overs=3).settings()
    card, states = Scorecard(), []
    review = game.drawing.review

    def keep(settings: Any, state: Any, past: Any) -> dict[str, Any]:
        states.extend([*(before for before, _ in past), state])
        return dict(review(settings, state, past))

    kept = replace(game, drawing=replace(game.drawing, review=keep))
    players = [player_named(game, "aggressive"), player_named(game, "random")]
    played = play_episode(kept, settings, players, seed=5, episode_id="ep-card")
    for before, after in pairwise(states):
        card.add(before, after)
    load(stage, [event.as_json() for event in played.events])
    page = open_page("/e/ep-card")
    ended(page)
    found = page.evaluate(
        """() => document.querySelector('kibitz-watch')?.timeline?.live.memory.innings.map(i => ({
          total: i.total, wickets: i.wickets, legal: i.legal, extras: i.extras,
          bat: [...i.batters.values()].map(b => [b.player, b.runs, b.balls, b.fours, b.sixes])
            .sort((a, b) => a[0] - b[0]),
          bowl: [...i.bowlers.values()].map(b => [b.player, b.balls, b.runs, b.wickets])
            .sort((a, b) => a[0] - b[0])}))"""
    )
    for shown, true in zip(found, card.innings, strict=True):
        assert (shown["total"], shown["wickets"], shown["legal"]) == (true.total, true.wickets, true.legal)
        assert shown["extras"] == true.extras
        bat = [[i, b.runs, b.balls, b.fours, b.sixes] for i, b in enumerate(true.batters) if b.came_in]
        assert [row for row in shown["bat"] if row[2] or row[1]] == [row for row in bat if row[2] or row[1]]
        bowl = [[i, b.balls, b.runs, b.wickets] for i, b in enumerate(true.bowlers) if b.balls or b.runs]
        assert shown["bowl"] == bowl


def test_a_negotiation_is_watched_to_its_end_with_plane_and_reference(stage: Served, open_page: Open) -> None:
    page = open_page("/custom")
    start_from_page(page, "Deal or no deal", Seat_0="bayes", Seat_1="heuristic", Seed="3")
    page.wait_for_url("**/e/*")
    ended(page)
    plane = page.get_by_role("img", name="Payoff plane")
    plane.wait_for()
    assert page.locator(".plot .nash").count() == 1
    assert page.locator(".plot .dot.best").count() >= 1
    offers = page.evaluate("() => document.querySelector('kibitz-watch')?.timeline?.live.memory.offers.length")
    assert page.locator(".plot .stop").count() == offers
    open_tab(page, "The talk")
    assert "bayes would" in page.locator(".talk").inner_text()
    # players go by their names, not by their seats
    assert page.locator(".caption").inner_text().startswith("Bayes takes ")
    assert "seat 0" not in page.locator("main").inner_text().lower()
    # who won is a matter of shares: the pools differ
    main, sub = (page.locator(f".score .side {part}").all_inner_texts() for part in (".main", ".sub"))
    shares = [int(got) / int(of.split()[1]) for got, of in zip(main, sub, strict=True)]
    assert shares[0] != shares[1] and page.locator(".score .side.won .main").inner_text() == main[shares[1] > shares[0]]
    assert page.locator(".bubble").count() >= 2


@pytest.mark.conformance
def test_two_pages_show_the_same_and_one_without_an_id_follows(stage: Served, open_page: Open) -> None:
    waiting = open_page("/custom")
    waiting.get_by_role("button", name="Start", exact=True).wait_for()
    episode_id = stage.start(game="cricket", max_overs=1, captain_preset="balanced", opponent_choice="random")
    other = open_page(f"/e/{episode_id}")
    for page in (waiting, other):
        ended(page)
    assert waiting.evaluate(SEQS) == other.evaluate(SEQS)
    assert waiting.locator(".turns").inner_text() == other.locator(".turns").inner_text()
    open_tab(waiting, "Scorecard"), open_tab(other, "Scorecard")
    assert waiting.locator(".sheet").inner_text() == other.locator(".sheet").inner_text()


def test_a_permalink_shows_the_moment_that_the_slider_reached(open_page: Open, played: dict[str, str]) -> None:
    episode_id = played["cricket"]
    page = open_page(f"/e/{episode_id}")
    ended(page)
    slider = page.get_by_role("slider")
    slider.evaluate("(node) => { node.value = 20; node.dispatchEvent(new Event('input')); }")
    page.wait_for_url("**?seq=20")
    assert page.evaluate("() => document.querySelector('kibitz-watch')?.timeline?.shown.seq") == 20
    again = open_page(f"/e/{episode_id}?seq=20")
    again.wait_for_function("() => document.querySelector('kibitz-watch')?.timeline?.shown.seq === 20")
    assert again.locator(".score").inner_text() == page.locator(".score").inner_text()
    assert again.locator(".caption").inner_text() == page.locator(".caption").inner_text()
    page.keyboard.press("End")
    page.wait_for_function("() => document.querySelector('kibitz-watch')?.timeline?.shown.status === 'ended'")


# what a slow machine does for a while: all events are there, and the moment that was asked for is still being rebuilt
REBUILDING = f"""() => new Promise(done => {{
  const watch = {WATCH};
  watch.timeline.job += 1;
  watch.timeline.shown = watch.timeline.live;
  watch.paint();
  let frames = 5;
  const next = () => (frames-- ? requestAnimationFrame(next) : done());
  next();
}})"""


def test_a_permalink_opens_at_its_moment_and_the_end_fits_a_small_phone(
    stage: Served, open_page: Open, played: dict[str, str]
) -> None:
    page = open_page(f"/e/{played['deal_or_no_deal']}?seq=8", width=320, height=640)
    page.wait_for_function(f"() => {WATCH}?.timeline?.shown.seq === 8")
    ended(page)
    page.evaluate(REBUILDING)
    assert page.get_by_role("tab", name="The talk").get_attribute("aria-selected") == "true", "not the end's own tab"
    assert page.locator(".endcard").is_hidden()
    page.keyboard.press("End")
    page.get_by_role("tab", name="Payoffs", selected=True).wait_for()
    rematch, table = page.get_by_role("button", name="Rematch"), page.locator(".table")
    rematch.scroll_into_view_if_needed()
    inner, outer = rematch.bounding_box(), table.bounding_box()
    assert outer["y"] <= inner["y"] and inner["y"] + inner["height"] <= outer["y"] + outer["height"]


def test_a_key_moment_shows_its_own_ball_and_escape_closes_the_list(open_page: Open, played: dict[str, str]) -> None:
    page = open_page(f"/e/{played['cricket']}")
    ended(page)
    moments = page.evaluate(f"() => {WATCH}.timeline.live.moments.map(one => [one.seq, one.at])")
    assert moments, "the match has a key moment"
    page.locator(".replay summary").click()
    page.locator(".momentlist button").last.wait_for()
    for one in page.locator(".momentlist button").all():  # an icon or a sign, and what happened in words
        assert one.locator(".chip").count() == 1 and len(one.locator(".small").inner_text().split()) > 2
    page.keyboard.press("Escape")
    assert page.locator(".momentlist").is_hidden()
    page.locator(".replay summary").click()
    page.locator(".momentlist button").last.click()
    seq, at = moments[0]
    page.wait_for_function(f"() => {WATCH}.timeline.shown.seq === {seq}")
    page.wait_for_function(f"() => document.querySelector('.caption').innerText.startsWith({json.dumps(at + ' ')})")
    track = page.locator(".track").bounding_box()
    last = page.evaluate(f"() => {WATCH}.timeline.last")
    page.mouse.move(track["x"] + 8 + (track["width"] - 16) * seq / last, track["y"] + 10)
    page.locator(".peek", has_text=page.locator(".caption").inner_text().removeprefix(f"{at} ")).wait_for()
    page.mouse.move(track["x"], 5)
    page.locator(".peek").wait_for(state="hidden")


def test_a_models_failure_is_told_in_plain_words(stage: Served, open_page: Open, played: dict[str, str]) -> None:
    events = [one | {"episode_id": "ep-down"} for one in stage.events(played["deal_or_no_deal"])]
    for one in events:
        if one["type"] == "decision":
            one["payload"]["fallback"] = "NoAnswer: transport (connection)"
    load(stage, [json.dumps(one) for one in events])
    page = open_page("/e/ep-down")
    ended(page)
    open_tab(page, "The talk")
    shown = page.locator(".fallback").first.inner_text()
    assert shown == "⚠ The fallback played this turn: the model could not be reached"


def test_batters_keep_their_rows_and_the_win_chart_starts_where_its_legend_does(
    stage: Served, open_page: Open, played: dict[str, str]
) -> None:
    first = stage.events(played["cricket"])[0]["payload"]["frame"]["win_probability"][0]
    page = open_page(f"/e/{played['cricket']}")
    ended(page)
    assert page.evaluate(f"() => {WATCH}.timeline.live.memory.start") == first
    open_tab(page, "Charts")
    balls = sum(one["type"] == "step" for one in stage.events(played["cricket"]))
    win = page.get_by_role("region", name="Win probability")
    win.get_by_text(f"ball {balls}", exact=True).wait_for()  # the axis ends with the match
    steps = [one for one in stage.events(played["cricket"]) if one["type"] == "step"]
    ball = next(one for one in steps if (s := one["payload"]["frame"].get("striker")) and s["player"] == 1)
    page.evaluate(f"() => {WATCH}.replay.go({ball['seq']})")
    page.wait_for_function("() => document.querySelector('.batters li:last-child')?.className === 'strike'")


def test_a_branch_keeps_the_earlier_turns_and_continues(stage: Served, open_page: Open, played: dict[str, str]) -> None:
    first = played["cricket"]
    steps = [event for event in stage.events(first) if event["type"] == "step"]
    page = open_page(f"/e/{first}?seq={steps[1]['seq']}")
    page.wait_for_function(f"() => document.querySelector('kibitz-watch')?.timeline?.shown.seq === {steps[1]['seq']}")
    page.get_by_role("button", name="Branch from here").click()
    page.get_by_label("Player in seat 0").select_option("random")
    page.get_by_role("button", name="Play on").click()
    page.wait_for_function(f"() => location.pathname.startsWith('/e/') && !location.pathname.includes('{first}')")
    ended(page)
    acts = f"() => {WATCH}.timeline.log.filter(e => e.type === 'step').map(e => e.payload.acts)"
    assert page.evaluate(acts)[:2] == [event["payload"]["acts"] for event in steps[:2]]
    assert (
        page.get_by_role("link", name="compare with the original")
        .get_attribute("href")
        .startswith(f"/compare?a={first}&b=")
    )


def test_games_of_a_single_turn_can_be_compared(stage: Served, open_page: Open) -> None:
    request = {"game": "deal_or_no_deal", "players": ["human", "heuristic"], "options": {"agent_starts": True}}
    started = httpx.post(f"{stage.url}/custom/start_episode", json=request, timeout=60).json()
    episode_id, seat = started["episode_id"], {"seat_token": started["seat_token"]}
    wait_until(lambda: stage.get(f"/episodes/{episode_id}/turn", **seat)["your_turn"])
    httpx.post(
        f"{stage.url}/episodes/{episode_id}/act", json=seat | {"text": "disagree"}, timeout=60
    ).raise_for_status()
    stage.wait_for_end(episode_id)
    page = open_page(f"/compare?a={episode_id}&b={episode_id}")
    page.get_by_text("turn 1 of 1").wait_for()
    page.get_by_text("Two games, turn by turn.").wait_for()
    page.get_by_text("No turn differs.").wait_for()


def second_start(page: Any) -> Any:
    """Presses Start in the panel of a page whose server plays already, and returns what the page says about it."""
    page.locator(".score").wait_for()
    page.evaluate(f"() => import('/static/pages/start.js').then(panel => panel.openStart({WATCH}.app))")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Pace").select_option("3")  # slow, so that what starts is still in play later
    dialog.get_by_role("button", name="Start", exact=True).click()
    alert = dialog.get_by_role("alert")
    alert.get_by_role("link", name="Watch it").wait_for()
    return alert


def test_a_second_start_names_the_running_episode_and_only_its_people_may_stop_it(
    stage: Served, open_page: Open
) -> None:
    request = {"game": "deal_or_no_deal", "players": ["human", "heuristic"]}
    started = httpx.post(f"{stage.url}/custom/start_episode", json=request, timeout=60).json()
    running = started["episode_id"]
    lobby = open_page("/lobby")
    lobby.get_by_role("link", name="a person").first.wait_for()
    answer = httpx.post(f"{stage.url}/custom/start_episode", json={"game": "cricket"})
    assert answer.status_code == 409
    alert = second_start(open_page(f"/e/{running}"))
    assert alert.get_by_role("link", name="Watch it").get_attribute("href") == f"/e/{running}"
    alert.get_by_text("This server plays one game at a time").wait_for()
    assert "kibitz serve --max-episodes" in alert.inner_text()
    assert alert.get_by_role("button").count() == 0, "a visitor cannot stop a person's game"
    page = open_page(f"{started['url']}#seat={started['seat_token']}")
    alert = second_start(page)
    assert json.loads(answer.text)["error"] in alert.inner_text()
    assert alert.get_by_role("link", name="Watch it").get_attribute("href") == f"/e/{running}"
    alert.get_by_role("button", name="Stop it and start mine").click()
    page.wait_for_function(f"() => location.pathname !== '/e/{running}'")
    assert stage.get(f"/episodes/{running}")["status"] == "failed"
    # so may another tab of the browser that started it
    page.wait_for_function(f"() => {WATCH}?.timeline?.live.status === 'running'")
    other = page.context.new_page()
    other.goto(page.url)
    second_start(other).get_by_role("button", name="Stop it and start mine").wait_for()


@pytest.mark.conformance
def test_an_unavailable_player_says_why(stage: Served, open_page: Open) -> None:
    games = stage.get("/custom/presets")["games"]
    missing = [one for one in next(iter(games.values()))["players"] if not one["usable"]]
    assert missing, "every preset is usable on this machine"
    page = open_page("/custom")
    page.get_by_text("not available here").click()
    shown = page.locator(".missing").inner_text()
    for one in missing:
        assert one["why"] in shown
    assert page.locator(f"option[value='{missing[0]['name']}']").count() == 0, "only players that are there are offered"
