"""A person plays from the page, and the page holds no private values of the other side."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.browser.conftest import Open, start_from_page
from tests.browser.test_watching import WATCH, ended, open_tab
from tests.live.conftest import Served

# everything that a script in the page could find: events, states, text, storage
MEMORY = """() => {
  const watch = document.querySelector('kibitz-watch');
  const seen = new Set();
  const { log, live, queue } = watch.timeline;
  return JSON.stringify([log, live, queue, document.body.innerText, {...sessionStorage}],
    (key, value) => {
      if (typeof value === 'function') return undefined;
      if (value instanceof Map) return [...value];
      if (typeof value === 'object' && value !== null) { if (seen.has(value)) return undefined; seen.add(value); }
      return value;
    });
}"""


def received(page: Any) -> list[str]:
    """Collects every socket message and every answer about the episode."""
    messages: list[str] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda data: messages.append(str(data))))
    page.on("response", lambda answer: messages.append(answer.text()) if "/episodes/" in answer.url else None)
    return messages


def secrets(text: str, seat: int) -> bool:
    """Whether the text contains a seat's private values."""
    return f'"private":{{"{seat}":{{"utilities"' in text.replace(" ", "").replace('\\"', '"')


def test_a_person_plays_a_negotiation_and_never_receives_the_other_sides_values(stage: Served, open_page: Open) -> None:
    page = open_page("/custom")
    messages = received(page)
    start_from_page(page, "Deal or no deal", Seat_0="human", Seat_1="heuristic", Adviser_of_seat_0="bayes", Seed="3")
    page.locator(".seat.mine").wait_for()
    assert "s left" in page.get_by_role("timer").inner_text()
    assert page.locator(".who b").all_inner_texts() == ["You", "heuristic"]
    page.get_by_text("Your adviser:").wait_for()
    # the other side has begun; asking for everything, which it refuses, is a counter-offer
    page.get_by_role("button", name=re.compile("^Counter for ")).click()
    page.locator(".turn").nth(1).wait_for()
    page.locator(".seat.mine").wait_for()
    memory = page.evaluate(MEMORY)
    assert secrets(memory, 0) and not secrets(memory, 1)
    assert not any(secrets(line, 1) for line in messages)
    assert page.get_by_text("? each").count() == 3
    page.get_by_role("button", name="one ball fewer").click()
    page.get_by_role("button", name=re.compile("^Insist")).click()
    page.locator(".turn").nth(3).wait_for()
    page.locator(".seat.mine").wait_for()
    assert not secrets(page.evaluate(MEMORY), 1) and not any(secrets(line, 1) for line in messages)
    page.get_by_role("button", name=re.compile("^Accept")).click()
    ended(page)
    assert page.locator(".caption").inner_text().startswith("You take "), "at the end the page addresses the player"
    record = stage.events(page.url.split("/e/")[1].split("?")[0])
    mine = [event["payload"] for event in record if event["type"] == "decision" and event["payload"]["seat"] == 0]
    assert [act["source"] for act in mine] == ["human"] * 3 and not any(act["fallback"] for act in mine)
    assert record[-1]["payload"]["scores"]["agreement"][0] == 1
    assert page.locator(".who b").first.inner_text() == "You"  # even though both sides' values are public now
    page.get_by_text("? each").first.wait_for(state="detached")
    assert secrets(page.evaluate(MEMORY), 1) or '"1":{"utilities"' in page.evaluate(MEMORY)


@pytest.mark.conformance
def test_a_person_captains_an_over(stage: Served, open_page: Open) -> None:
    page = open_page("/custom")
    start_from_page(page, "Cricket", Seat_0="human", Seat_1="balanced", Max_overs="1", Captain_side="bowl")
    balls = 0
    while balls < 6:
        page.locator(".seat.mine").wait_for()
        page.get_by_role("radio", name="yorker").check(force=True)
        page.get_by_role("button", name="Play", exact=True).click()
        page.wait_for_function(f"() => document.querySelector('kibitz-watch')?.timeline?.live.turn >= {balls}")
        balls += 1
    record = stage.events(page.url.split("/e/")[1].split("?")[0])
    mine = [event["payload"] for event in record if event["type"] == "decision" and event["payload"]["seat"] == 0]
    assert len(mine) >= 6
    assert all(act["source"] == "human" and not act["fallback"] for act in mine[:6])
    bowled = [event["payload"]["frame"].get("ball") for event in record if event["type"] == "step"]
    assert all(ball["plan"] == "yorker" for ball in bowled[:6] if ball)


@pytest.mark.conformance
def test_buttons_state_their_consequences_and_the_seat_survives_a_visit_to_watch(
    stage: Served, open_page: Open
) -> None:
    page = open_page("/custom")
    start_from_page(page, "Deal or no deal", Seat_0="human", Seat_1="heuristic", Agent_starts="true", Seed="3")
    page.locator(".seat.mine").wait_for()
    address = page.url
    propose = page.get_by_role("button", name=re.compile("^(Propose|Counter)"))
    whole = int(propose.inner_text().removeprefix("Propose: keep all "))
    page.locator(".seat", has_text=f"{whole} of {whole} points. The other side gets nothing.").wait_for()
    page.get_by_role("button", name="one ball fewer").click()
    asked, of = map(int, propose.inner_text().removeprefix("Propose: keep ").split(" of "))
    assert asked < whole == of
    # ending the talk before the other side has spoken is no deal, and asks first
    page.get_by_role("button", name="End the talk (0 : 0)").click()
    page.get_by_role("button", name="Yes, end the talk").wait_for()
    page.get_by_role("button", name="Keep talking").click()
    propose.click()
    page.locator(".turn").nth(1).wait_for()
    page.locator(".seat.mine").wait_for()
    assert propose.inner_text() == f"Counter for {asked}", "the steppers go on from the last offer"
    # the green button is not the one that ends the game
    assert page.locator(".seat .primary").inner_text() == f"Counter for {asked}"
    assert "The other side's offer leaves you" in page.locator(".seat .view").inner_text()
    assert page.get_by_role("button", name=re.compile("^Accept")).inner_text().removeprefix("Accept ").isdigit()
    page.get_by_role("button", name="Walk away (0 : 0)").click()
    page.get_by_text("both sides get 0 points").wait_for()
    page.get_by_role("button", name="Keep talking").click()
    assert page.locator(".seat.mine").is_visible() and propose.is_visible()
    spectator = open_page(address.removeprefix(stage.url))
    spectator.locator(".status.running").wait_for()
    assert spectator.get_by_role("button", name="Stop").count() == 0
    assert page.get_by_role("button", name="Stop").is_visible()
    page.get_by_role("link", name="Watch", exact=True).click()
    page.wait_for_url(address)
    page.locator(".seat.mine").wait_for()
    page.get_by_role("button", name="Walk away (0 : 0)").click()
    page.get_by_role("button", name="Yes, walk away").click()
    ended(page)


def test_ones_own_game_addresses_the_player_in_play_and_at_an_end_without_a_deal(
    stage: Served, open_page: Open
) -> None:
    page = open_page("/custom")
    start_from_page(page, "Deal or no deal", Seat_0="human", Seat_1="heuristic", Agent_starts="true", Seed="3")
    page.locator(".seat.mine").wait_for()
    page.get_by_role("button", name="one ball fewer").click()
    page.get_by_role("button", name=re.compile("^Propose: keep ")).click()
    page.locator(".turn").nth(1).wait_for()
    page.locator(".seat.mine").wait_for()
    open_tab(page, "Payoffs")
    page.get_by_role("img", name=re.compile(r"What each offer gives you\. Your points: turn 1 \d+")).wait_for()
    page.evaluate(f"() => {WATCH}.replay.go({WATCH}.timeline.live.turns[0].seq)")
    page.locator(".caption", has_text=re.compile("^You ask for ")).wait_for()
    page.keyboard.press("l")
    page.locator(".caption", has_text=re.compile("^Heuristic ")).wait_for()
    page.get_by_role("button", name="Walk away (0 : 0)").click()
    page.get_by_role("button", name="Yes, walk away").click()
    ended(page)
    said = "You and heuristic reached no deal: neither gets anything."
    assert page.locator(".caption").inner_text() == said == page.locator(".endcard .verdict").inner_text()


def test_a_refused_act_is_explained_and_the_turn_stays_open(stage: Served, open_page: Open) -> None:
    page = open_page("/custom")
    start_from_page(page, "Deal or no deal", Seat_0="human", Seat_1="heuristic", Agent_starts="true")
    page.locator(".seat.mine").wait_for()
    page.evaluate("() => document.querySelector('kibitz-watch').chair.send([2, 0, 0, 0])")
    page.locator(".seat .error").filter(has_text="not legal").wait_for()
    assert page.locator(".seat.mine").is_visible()


@pytest.mark.conformance
def test_another_page_cannot_take_the_seat(stage: Served, open_page: Open) -> None:
    page = open_page("/custom")
    start_from_page(page, "Deal or no deal", Seat_0="human", Seat_1="heuristic")
    page.locator(".seat.mine").wait_for()
    other = open_page(page.url.removeprefix(stage.url))
    other.locator(".talk").wait_for()
    assert other.locator(".seat.card").count() == 0
    known = json.loads(
        other.evaluate("() => JSON.stringify(document.querySelector('kibitz-watch')?.timeline?.live.private)")
    )
    assert known == {}


@pytest.mark.conformance
def test_two_people_play_from_the_links_that_the_start_shows(stage: Served, open_page: Open) -> None:
    starter = open_page("/custom")
    start_from_page(starter, "Deal or no deal", Seat_0="human", Seat_1="human", Agent_starts="true", Seed="3")
    links = starter.get_by_role("dialog", name="Two people play").get_by_role("link")
    links.nth(1).wait_for()
    addresses = [link.get_attribute("href") for link in links.all()]
    pages = [open_page("/lobby") for _ in addresses]  # each in a context of its own, as on two machines
    messages = [received(page) for page in pages]
    for page, address in zip(pages, addresses, strict=True):
        page.goto(stage.url + address)
    first, second = pages
    first.locator(".seat.mine").wait_for()
    assert "#" not in first.url, "the address holds no secret"
    second.get_by_text("Waiting for the other side").wait_for()
    first.get_by_role("button", name=re.compile("^Propose")).click()
    second.locator(".seat.mine").wait_for()
    assert [page.locator(".who b").all_inner_texts() for page in pages] == [["You", "a person"], ["a person", "You"]]
    for seat, (page, seen) in enumerate(zip(pages, messages, strict=True)):
        memory = page.evaluate(MEMORY)
        assert secrets(memory, seat) and not secrets(memory, 1 - seat)
        assert not any(secrets(line, 1 - seat) for line in seen)
    assert starter.locator(".seat").count() == 0 and not secrets(starter.evaluate(MEMORY), 0)
    second.get_by_role("button", name=re.compile("^Accept")).click()
    ended(first), ended(second)


@pytest.mark.conformance
def test_the_countdown_shows_the_servers_seconds_whatever_the_clock_of_the_machine_says(
    stage: Served, open_page: Open
) -> None:
    page = open_page("/custom", init="const now = Date.now; Date.now = () => now() + 3600e3;")
    start_from_page(page, "Deal or no deal", Seat_0="human", Seat_1="heuristic", Agent_starts="true")
    page.locator(".seat.mine").wait_for()
    assert 0 < int(page.get_by_role("timer").inner_text().split()[0]) <= 60

    def later(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json=answer.json() | {"seconds_left": 17.2})

    page.route("**/turn?*", later)
    page.reload()
    page.get_by_text("17 s left").wait_for()
