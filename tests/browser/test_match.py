"""The page of one episode and the seat in it: what it shows, at which sizes, and what a player can do there.

Defects that these tests would show again: a field cut off at 1600x900 or 1280x800; labels under 12 px or on top of
each other; a caption over the top of the field; a page that moves while it loads or plays; a play button below the
fold on a phone; 80 tab stops; nothing to see while a model decides; hints hidden after the end until a reload; a seat
lost by leaving the page; captions in the words of a prompt; both hands hidden when only machines play.
test_watching.py has key moments, the win chart's start, the rows of batters and fallbacks in plain words;
test_seat.py the buttons' consequences, the question before walking away, the server's countdown and *Stop*;
test_weight.py the bytes of each view; test_sides.py the players' names. No test says that the field looks good:
people look at the pictures of `make screenshots`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from kibitz.games.cricket.drawing.fielders import fielders
from kibitz.games.cricket.model.tactics import FIELDS
from tests.browser.conftest import Open
from tests.browser.test_endurance import thread_times
from tests.browser.test_home import MAX_SHIFT, SHIFTS, shift
from tests.browser.test_watching import WATCH, ended, open_tab
from tests.live.conftest import Served, start_server
from tests.llm.fake_server import FakeServer

HEROES = {"cricket": ".oval", "deal_or_no_deal": ".table"}
MIN_LABEL_PX = 12
MAX_TAB_STOPS = 35
LABELS = """() => [...document.querySelectorAll('.ground text.pos')].map(node => {
  const { x, y, width, height } = node.getBoundingClientRect();
  return { name: node.textContent, size: parseFloat(getComputedStyle(node).fontSize), x, y, width, height };
})"""


# the names that the ball's path crosses
CROSSED = """() => {
  const { x: left, y: top } = document.querySelector('.ground').getBoundingClientRect();
  const path = document.querySelector('.flight');
  const points = [...Array(120).keys()].map(i => path.getPointAtLength(path.getTotalLength() * i / 119));
  return [...document.querySelectorAll('.ground text.pos')].filter(node => {
    const box = node.getBoundingClientRect();
    return points.some(({ x, y }) => x + left > box.left && x + left < box.right
      && y + top > box.top && y + top < box.bottom);
  }).map(node => node.textContent);
}"""


# a caption as long as commentary gets, and how far it reaches into the field or out of its own place, in pixels
LONG_CAPTION = (
    "15.6 Redfern strikes, Fenn Thistledown picks out the fielder. "
    "Brindle Lapwings are 112/10. 116 to get, 5 balls left."
)
OVERLAP = """words => {
  const caption = document.querySelector('.turf .caption');
  caption.textContent = words;
  const [over, rope] = [caption, document.querySelector('.ground .grass')].map(one => one.getBoundingClientRect());
  return [over.bottom - rope.top, caption.scrollHeight - caption.clientHeight];
}"""


def place_field(page: Any, field: str, left: bool, number: int, angle: int = 0) -> None:
    """Draws the page with this field and the last ball hit at this angle, high for a six or along the ground."""
    placed = [list(one) for one in fielders(field, left)]
    ball = {"shot": {"angle": angle, "distance": 1.05}, "runs": 6 if number % 2 else 4}
    change = f"""([placed, ball]) => {{ const watch = {WATCH}; const {{ shown }} = watch.timeline;
      const frame = {{ ...shown.frame, fielders: placed, ball: {{ ...shown.frame.ball, how: '', ...ball }} }};
      watch.draw({{ ...shown, turn: {1000 + number}, frame }}); }}"""
    page.evaluate(change, [placed, ball])


def seated(stage: Served, open_page: Open, request: dict[str, Any], **more: Any) -> Any:
    """A page on a fresh episode, in the person's seat."""
    answer = httpx.post(f"{stage.url}/custom/start_episode", json=request, timeout=60)
    assert answer.status_code == 202, answer.text
    started = answer.json()
    page = open_page(f"{started['url']}#seat={started['seat_token']}", **more)
    page.locator(".seat.mine").wait_for()
    return page


def test_the_field_and_the_table_are_whole_and_no_two_labels_touch(open_page: Open, played: dict[str, str]) -> None:
    for game, hero in HEROES.items():
        page = open_page(f"/e/{played[game]}?seq=8", width=1280, height=800)
        for width, height in ((1280, 800), (1600, 900)):
            page.set_viewport_size({"width": width, "height": height})
            page.locator(hero).wait_for()
            box, bar = page.locator(hero).bounding_box(), page.locator(".replay").bounding_box()
            assert box["height"] >= 520 and box["width"] >= 520
            assert box["y"] > 0 and box["y"] + box["height"] <= bar["y"] + 1, (game, width, box, bar)
            tabs = page.locator(".tabcard").bounding_box()
            assert tabs["x"] + tabs["width"] <= width and tabs["y"] + tabs["height"] <= bar["y"] + 1
            assert game != "cricket" or max(page.evaluate(OVERLAP, LONG_CAPTION)) <= 0, width
    page = open_page(f"/e/{played['cricket']}?seq=8", width=1600, height=900)
    page.locator(".ground text.pos").first.wait_for()
    for width, fewest in ((1600, 8), (390, 4)):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function("() => document.querySelector('.ground').clientWidth < innerWidth")
        assert max(page.evaluate(OVERLAP, LONG_CAPTION)) <= 0, width
        for number, field in enumerate(FIELDS):
            place_field(page, field, left=bool(number % 2), number=width + number)
            shown = page.evaluate(LABELS)
            assert len(shown) >= min(fewest, 7 if field == "attacking" else 8), (width, field, shown)
            for angle in range(10, 360, 25):
                place_field(page, field, bool(number % 2), 10_000 + 1000 * width + 400 * number + angle, angle)
                assert not page.evaluate(CROSSED), (width, field, angle)
                assert page.locator(".ground text.pos").count() >= fewest - 2, (width, field, angle)
            assert min(one["size"] for one in shown) >= MIN_LABEL_PX
            for i, one in enumerate(shown):
                for other in shown[:i]:
                    apart = (
                        one["x"] >= other["x"] + other["width"]
                        or other["x"] >= one["x"] + one["width"]
                        or one["y"] >= other["y"] + other["height"]
                        or other["y"] >= one["y"] + one["height"]
                    )
                    assert apart, (width, field, one, other)


# what a watcher sees of the ground: the grass up to the rope, and the room that the turf has for it below the caption
GROUND = """() => {
  const box = name => document.querySelector(name).getBoundingClientRect();
  const [{ x, y, width, height }, turf, caption, bar] = ['.grass', '.turf', '.turf .caption', '.replay'].map(box);
  return { x, y, width, height, room: [turf.width, turf.bottom - caption.bottom], bottom: bar.top };
}"""
MIN_GROUND_PX = 520
EDGE_PX = 12  # both edges around the rope


def test_the_ground_itself_is_the_hero_and_fills_the_room_that_it_has(open_page: Open, played: dict[str, str]) -> None:
    page = open_page(f"/e/{played['cricket']}?seq=8", width=1600, height=900)
    page.locator(".ground text.pos").first.wait_for()
    for width, height in ((1600, 900), (1280, 800)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function("() => document.querySelector('.ground').clientWidth < innerWidth - 400")
        page.wait_for_function(f"() => {{ const {{ y, height, bottom }} = ({GROUND})(); return y + height < bottom; }}")
        ground = page.evaluate(GROUND)
        assert ground["x"] >= 0 and ground["y"] > 0 and ground["x"] + ground["width"] <= width
        assert max(ground["width"], ground["height"]) >= MIN_GROUND_PX, (width, ground)
        if height >= 900:
            assert min(ground["width"], ground["height"]) >= MIN_GROUND_PX, (width, ground)
        room = ground["room"]
        assert abs(ground["height"] - (room[1] - EDGE_PX)) <= 2, "it is as high as it can be"
        assert abs(ground["width"] - min(room[0] - EDGE_PX, 2.1 * ground["height"])) <= 2, "and as wide"


def test_a_ball_flies_where_its_event_says_and_tabs_replace_eighty_stops(
    stage: Served, open_page: Open, played: dict[str, str]
) -> None:
    step = next(one for one in stage.events(played["cricket"]) if one["type"] == "step")
    page = open_page(f"/e/{played['cricket']}?seq={step['seq'] + 1}")
    page.locator(".flight").wait_for(state="attached")
    assert page.locator(".winbar").get_attribute("aria-label").startswith("Win probability: ")
    sides = page.locator(".score .who b").all_inner_texts()
    crests = page.locator(".score .crest:visible text").all_text_contents()
    assert crests == ["".join(word[0] for word in name.split()) for name in sides], "each side has its crest"
    landed = page.evaluate(
        "() => ['cx', 'cy'].map(name => Number(document.querySelector('.landing').getAttribute(name)))"
    )
    centre = page.evaluate(
        "() => ['cx', 'cy'].map(name => Number(document.querySelector('.grass').getAttribute(name)))"
    )
    shot = step["payload"]["frame"]["ball"]["shot"]
    assert (landed[0] < centre[0]) == (0 < shot["angle"] < 180), "a right-hander's off side is to the left"
    page.keyboard.press("End")
    ended(page)
    shown = page.locator("main").inner_text()
    assert not re.search(r"wide_of_off|comes in next|^bowl |Dots mark", shown, re.M)
    assert page.locator(".turn .tag").first.inner_text().count(" v ") == 1, "what both captains chose is one chip"
    page.get_by_role("button", name="Wickets").click()
    page.wait_for_function(
        "() => [...document.querySelectorAll('.turns > li')].every(one => one.classList.contains('wicket'))"
    )
    page.get_by_role("button", name="All", exact=True).click()
    page.locator(".overcard").first.wait_for()
    assert page.locator(".endcard .verdict").inner_text() == page.locator(".caption").inner_text()
    stops = page.evaluate(
        "() => [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex]')]"
        ".filter(one => one.tabIndex >= 0 && !one.disabled && one.checkVisibility()).length"
    )
    assert stops <= MAX_TAB_STOPS
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keys").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog", name="Keys").wait_for(state="detached")


@pytest.mark.conformance
@pytest.mark.parametrize("width", [390, 1024, 1600])
def test_an_episode_stands_still_while_it_loads_and_plays(stage: Served, open_page: Open, width: int) -> None:
    for game in HEROES:
        episode = stage.start(game=game, seed=4, pace=0.1, **({"max_overs": 1} if game == "cricket" else {}))
        page = open_page(f"/e/{episode}", width=width, height=844, init=SHIFTS)
        ended(page)
        page.locator(".endcard .verdict").wait_for()
        assert shift(page) <= MAX_SHIFT, (game, width)
    for request in (TALK, CRICKET):
        page = seated(stage, open_page, request, width=width, height=844, init=SHIFTS)
        assert shift(page) <= MAX_SHIFT, (request["game"], width)
        httpx.post(f"{stage.url}/custom/stop_episode", json={}, timeout=60)
        stage.wait_for_end(page.url.split("/e/")[1])


@pytest.mark.conformance
@pytest.mark.timed
def test_no_task_takes_fifty_milliseconds_while_the_ball_flies(open_page: Open, played: dict[str, str]) -> None:
    def tasks() -> list[float]:
        page = open_page(f"/e/{played['cricket']}?seq=8", reduced_motion="no-preference")
        page.locator(".flight").wait_for(state="attached")
        page.wait_for_load_state("networkidle")
        page.context.browser.start_tracing(page=page, categories=["toplevel", "disabled-by-default-lighthouse"])
        for _ in range(8):
            at = page.evaluate(f"() => {WATCH}.timeline.shown.seq")
            page.keyboard.press("ArrowRight")
            page.wait_for_function(f"() => {WATCH}.timeline.shown.seq !== {at}")
            page.wait_for_function("() => document.querySelector('.flying').getAnimations().length === 0")
        return sorted(thread_times(page.context.browser.stop_tracing()))

    # a virtual machine that stalls lengthens one task of one attempt; a slow page is slow in all of them
    attempts = []
    while len(attempts) < 3 and (not attempts or attempts[-1][-1] >= 50):
        attempts.append(tasks())
    assert len(attempts[-1]) > 50 and attempts[-1][-1] < 50, [attempt[-5:] for attempt in attempts]


def test_watchers_see_both_hands_of_machines_and_neither_beside_a_person(stage: Served, open_page: Open) -> None:
    episode = stage.start(game="deal_or_no_deal", players=["bayes", "heuristic"], seed=3, pace=30)
    page = open_page(f"/e/{episode}", width=390, height=844)
    page.locator(".hand").first.wait_for()
    assert page.get_by_text("? each").count() == 0 and "both hands shown" in page.locator(".meta").inner_text()
    httpx.post(f"{stage.url}/custom/stop_episode", json={"episode_id": episode}, timeout=60)
    stage.wait_for_end(episode)
    request = {"game": "deal_or_no_deal", "players": ["human", "heuristic"], "options": {"agent_starts": True}}
    mine = seated(stage, open_page, request | {"adviser": "bayes", "seed": 3}, width=390, height=844)
    button = mine.locator(".seat .go .primary").bounding_box()
    assert button["y"] + button["height"] <= 844, "the main button is above the fold"
    other = open_page(mine.url.removeprefix(stage.url))
    other.locator(".hand").first.wait_for()
    other.locator(".meta", has_text=re.compile(r"\d watching")).wait_for()
    assert other.get_by_text("? each").count() == 6
    # a tapped hint fills the form
    hinted = mine.evaluate(f"() => {WATCH}.chair.asked.hint.act")
    mine.locator(".hintline").click()
    kept = [int(line.split()[0]) for line in mine.locator(".stepper output").all_inner_texts()]
    assert kept == hinted[1:] and mine.locator(".hinted").count() == 1
    # leaving and returning keeps the seat, in this tab and in a new one
    mine.get_by_role("link", name="Episodes").click()
    mine.get_by_role("link", name="Your game").click()
    mine.locator(".seat.mine").wait_for()
    again = mine.context.new_page()
    again.goto(stage.url + mine.evaluate("() => location.pathname"))
    again.locator(".seat.mine").wait_for()
    replay = stage.url + mine.evaluate("() => `/episodes/${location.pathname.split('/')[2]}/reference`")
    assert httpx.get(replay).status_code == 409, "before the end a replay would tell the hidden values"
    mine.get_by_role("button", name="Walk away (0 : 0)").click()
    mine.get_by_role("button", name="Yes, walk away").click()
    ended(mine)
    mine.locator(".endcard", has_text="walking away gives nothing").wait_for()
    mine.locator(
        ".endcard", has_text="with the same partner and the same luck, the Bayesian player would have"
    ).wait_for()
    (would, _), _ = (seat["returns"] or (None, None) for seat in httpx.get(replay).json()["seats"])
    mine.locator(".endcard", has_text=f"would have taken {would:g} points, {would:g} more than you.").wait_for()
    open_tab(mine, "Thinking")
    mine.get_by_text("Hint: ").first.wait_for()  # hints are public now, without a reload
    assert mine.get_by_role("link", name="Your game").count() == 0
    before = mine.url
    mine.get_by_role("button", name="Swap sides").click()
    mine.wait_for_url(lambda url: url.split("?")[0] != before.split("?")[0])
    mine.locator(".seat.mine").wait_for()
    assert mine.evaluate(f"() => {WATCH}.timeline.mine") == 1
    assert mine.locator(".hand.near h3").inner_text().startswith("You")


CRICKET = {"game": "cricket", "players": ["human", "heuristic"], "max_overs": 2, "seed": 5, "adviser": "balanced"}
TALK = {"game": "deal_or_no_deal", "players": ["human", "heuristic"], "seed": 3, "options": {"agent_starts": True}}


@pytest.mark.conformance
def test_a_negotiation_and_two_overs_are_played_by_keyboard_alone(stage: Served, open_page: Open) -> None:
    page = seated(stage, open_page, TALK)
    for _ in range(60):
        if page.evaluate("() => document.activeElement.getAttribute('aria-label')") == "one book fewer":
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_text("3 of 4").wait_for()
    page.keyboard.press("1")  # propose
    page.locator(".turn").nth(1).wait_for()
    page.locator(".seat.mine").wait_for()
    page.keyboard.press("3")  # accept
    ended(page)
    assert page.locator(".caption").inner_text().startswith("You take ")
    page = seated(stage, open_page, CRICKET, height=800)
    button, bar = (page.locator(one).bounding_box() for one in (".seat .go .primary", ".replay"))
    assert button["y"] + button["height"] <= bar["y"], "the main button is visible at 1280x800"
    turns = 0
    while page.evaluate(f"() => {WATCH}.timeline.live.status") == "running":
        turn = page.evaluate(f"() => {WATCH}.chair.turn?.turn ?? -1")
        if turn >= 0:
            page.keyboard.press("h" if turns % 2 else "1")
            page.keyboard.press("Enter")
            turns += 1
        page.wait_for_function(
            f"""() => {{ const {{ chair: {{ turn, drawn }}, timeline }} = {WATCH};
            if (timeline.live.status !== 'running') return true;
            return turn && turn.turn !== {turn} && drawn === String(turn.turn); }}"""
        )
    ended(page)
    record = stage.events(page.url.split("/e/")[1].split("?")[0])
    mine = [one["payload"] for one in record if one["type"] == "decision" and one["payload"]["seat"] == 0]
    assert len(mine) >= 12 and all(one["source"] == "human" and not one["fallback"] for one in mine)
    assert page.locator(".endcard .verdict").inner_text().startswith(("You win", "You lose", "A tie"))
    open_tab(page, "Thinking")
    page.get_by_text(re.compile("^Hint: ")).first.wait_for()
    assert not re.search(r"no\. \d|good,", page.locator(".turns").inner_text()), "players have names, lengths too"


@pytest.mark.conformance
def test_a_negotiation_and_two_overs_are_played_by_touch_on_a_phone(stage: Served, open_page: Open) -> None:
    phone = {"width": 390, "height": 844, "has_touch": True, "is_mobile": True}
    page = seated(stage, open_page, TALK, **phone)
    page.get_by_role("button", name="one hat fewer").tap()
    page.get_by_role("button", name=re.compile("^Propose")).tap()
    page.locator(".turn").nth(1).wait_for(state="attached")
    page.locator(".seat.mine").wait_for()
    page.get_by_role("button", name=re.compile("^Accept")).tap()
    ended(page)
    page = seated(stage, open_page, CRICKET, **phone)
    button = page.locator(".seat .go .primary").bounding_box()
    assert button["y"] + button["height"] <= 844, "the main button is above the fold"
    while page.evaluate(f"() => {WATCH}.timeline.live.status") == "running":
        # an over is played out with one tap, until a wicket falls
        page.get_by_role("button", name="Play out the over").tap()
        page.wait_for_function(
            f"""() => {{ const {{ chair, timeline }} = {WATCH};
            return timeline.live.status !== 'running' || (chair.turn && !chair.playingOut); }}"""
        )
    ended(page)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390


@pytest.mark.conformance
def test_a_model_that_thinks_shows_seconds_and_its_words(tmp_path: Path, open_page: Open) -> None:
    fake, presets = FakeServer(), tmp_path / "presets.yaml"
    muse = {"provider": "openai", "base_url": fake.url, "model": "streamed-slowly", "structure": "schema"}
    presets.write_text(json.dumps({"presets": {"muse": muse}}), encoding="utf-8")
    own = start_server(tmp_path / "kibitz.db", "--no-warm", env={"KIBITZ_LLM_PRESETS": str(presets)})
    try:
        request = {"game": "deal_or_no_deal", "players": ["llm:muse", "heuristic"], "options": {"agent_starts": True}}
        episode = own.start(**request)
        page = open_page(f"/e/{episode}", served=own)
        page.locator(".side .thinks").filter(has_text=re.compile(r"thinking · \d+ s")).wait_for()
        page.locator(".words").filter(has_text="Let me think.").wait_for()
        asked = next(one for one in own.events(episode) if one["type"] == "turn.requested")
        assert asked["payload"] | {"private": {}} == {"seat": 0, "turn": 0, "seconds": 30.0, "private": {}}
        httpx.post(f"{own.url}/custom/stop_episode", json={}, timeout=60)
        own.wait_for_end(episode)
        # beside a person, nobody sees a model's words
        closed = own.start(**request | {"players": ["llm:muse", "human"]})
        page = open_page(f"/e/{closed}", served=own)
        page.locator(".side .thinks").filter(has_text="thinking").wait_for()
        answer = httpx.get(f"{own.url}/episodes/{closed}/thinking?seat=0&turn=0", timeout=30)
        assert answer.status_code == 404 and page.locator(".words").is_hidden()
    finally:
        own.stop()
        fake.stop()
