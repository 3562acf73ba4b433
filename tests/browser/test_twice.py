"""Clicks that come twice, and answers that come late."""

from __future__ import annotations

import json
from typing import Any

from tests.browser.conftest import Open, load, start_from_page
from tests.live.conftest import Served

CHAIR = "document.querySelector('kibitz-watch').chair"


class Held:
    """Requests of a page to an address, counted, and let through when a test wants."""

    def __init__(self, page: Any, address: str, hold: int = 0) -> None:
        self.page = page
        self.routes: list[tuple[Any, Any]] = []
        self.asked: list[str] = []

        def take(route: Any) -> None:
            self.asked.append(route.request.url)
            if len(self.asked) <= hold:
                self.routes.append((route, route.fetch()))  # answered now, told later
            else:
                route.continue_()

        page.route(address, take)

    def wait(self) -> None:
        """Until one of them is held."""
        for _ in range(600):
            if self.routes:
                return
            self.page.wait_for_timeout(100)
        raise AssertionError("nothing was asked")

    def release(self) -> None:
        for route, answer in self.routes:
            route.fulfill(response=answer)
        self.routes.clear()


def test_a_double_click_is_one_act(stage: Served, open_page: Open) -> None:
    page = open_page("/custom")
    start_from_page(page, "Deal or no deal", Seat_0="human", Seat_1="heuristic", Agent_starts="true")
    page.locator(".seat.mine").wait_for()
    sent = Held(page, "**/act")
    page.get_by_role("button", name="Propose").dblclick()
    page.locator(".turn").nth(1).wait_for()
    page.locator(".seat.mine").wait_for()
    record = stage.events(page.url.split("/e/")[1].split("?")[0])
    assert len(sent.asked) == 1
    assert sum(event["type"] == "decision" and event["payload"]["seat"] == 0 for event in record) == 1


def test_what_was_asked_before_an_act_is_not_taken_for_the_next_turn(stage: Served, open_page: Open) -> None:
    page = open_page("/custom")
    start_from_page(page, "Deal or no deal", Seat_0="human", Seat_1="heuristic", Agent_starts="true")
    page.locator(".seat.mine").wait_for()
    held = Held(page, "**/turn?*", hold=1)
    held.wait()
    page.evaluate(
        f"""() => {{
          const chair = {CHAIR};
          let now = chair.turn;
          window.turns = [];
          const set = (x) => {{ now = x; window.turns.push(x && x.turn); }};
          Object.defineProperty(chair, 'turn', {{ get: () => now, set }});
        }}"""
    )
    page.get_by_role("button", name="Propose").click()
    page.locator(".turn").nth(1).wait_for()
    assert page.evaluate("() => window.turns") == [None]
    held.release()
    page.locator(".seat.mine").wait_for()
    first, *later = [turn for turn in page.evaluate("() => window.turns") if turn is not None]
    assert first == 2 and set(later) <= {2}


def test_an_act_that_comes_too_late_is_not_played_in_the_next_turn(stage: Served, open_page: Open) -> None:
    page = open_page("/custom")
    start_from_page(page, "Deal or no deal", Seat_0="human", Seat_1="heuristic", Agent_starts="true")
    page.locator(".seat.mine").wait_for()
    # the page has not heard yet that the turn has passed
    page.wait_for_function(
        f"""() => {{
          const chair = {CHAIR};
          if (chair.asking) return false;
          clearTimeout(chair.timer);
          chair.turn = {{ ...chair.turn, turn: 7 }};
          return true;
        }}"""
    )
    page.get_by_role("button", name="Propose").click()
    page.locator(".seat .error").filter(has_text="meant for another turn").wait_for()


def test_what_may_be_chosen_is_drawn_again_for_another_turn_also_before_its_events_have_come(
    stage: Served, open_page: Open
) -> None:
    """Or an act that was chosen for the turn on the page would be sent for the next one."""
    page = open_page("/custom")
    start_from_page(page, "Deal or no deal", Seat_0="human", Seat_1="heuristic", Agent_starts="true")
    page.locator(".seat.mine").wait_for()

    def later(route: Any) -> None:
        told = route.fetch().json()
        route.fulfill(json=told | ({"turn": 2, "view_text": "Another turn."} if told["your_turn"] else {}))

    page.route("**/turn?*", later)
    page.wait_for_function(f"() => {CHAIR}.turn?.turn === 2")
    assert page.locator(".seat").get_by_text("Another turn.").count() == 1


def test_who_leaves_an_episode_is_not_held_by_its_address(
    stage: Served, open_page: Open, played: dict[str, str]
) -> None:
    """The address changes at once, the page when it has been fetched; in between the episode goes on."""
    page = open_page(f"/e/{played['deal_or_no_deal']}")
    page.locator(".status.ended").wait_for()
    page.evaluate(
        """() => {
          const watch = document.querySelector('kibitz-watch');
          const { need } = watch.app;
          watch.app.need = async (name) => { await new Promise((done) => setTimeout(done, 800)); return need(name); };
          document.querySelector('nav a[href="/lobby"]').click();
          watch.paint();
        }"""
    )
    page.locator("kibitz-episodes").wait_for(timeout=20_000)
    assert page.url == stage.url + "/lobby"


def test_a_branch_is_made_once(stage: Served, open_page: Open, played: dict[str, str]) -> None:
    page = open_page(f"/e/{played['deal_or_no_deal']}?seq=4")
    page.wait_for_function("() => document.querySelector('kibitz-watch')?.timeline?.shown.seq === 4")
    page.get_by_role("button", name="Branch from here").click()
    sent = Held(page, "**/branch", hold=1)
    page.get_by_role("button", name="Play on").dblclick()
    sent.wait()
    page.wait_for_timeout(200)
    assert len(sent.asked) == 1
    sent.release()
    page.wait_for_function(f"() => !location.pathname.includes('{played['deal_or_no_deal']}')")


def test_a_curve_that_comes_late_is_not_drawn_over_the_one_that_was_chosen(stage: Served, open_page: Open) -> None:
    page = open_page("/lobby")
    held = Held(page, "**/runs/first-try.json", hold=1)
    page.get_by_role("link", name="Runs", exact=True).click()
    first, second = (page.get_by_role("button", name=name) for name in ("first-try", "second-try"))
    first.click()
    held.wait()
    second.click()
    curve = page.get_by_role("img", name="second-try")
    curve.wait_for()
    held.release()
    page.wait_for_timeout(300)
    assert curve.is_visible() and second.get_attribute("aria-pressed") == "true"
    assert "seed 7" in page.locator("kibitz-runs p.dim.small").inner_text()


def test_the_next_page_of_episodes_comes_once_and_a_failure_loses_nothing(
    stage: Served, open_page: Open, played: dict[str, str]
) -> None:
    record = stage.events(played["deal_or_no_deal"])
    for number in range(31):
        copies = [{**event, "episode_id": f"ep-copy-{number}"} for event in record]
        load(stage, [json.dumps(event) for event in copies])
    page = open_page("/lobby")
    rows, more = page.locator("a.episode"), page.get_by_role("button", name="More")
    more.wait_for()
    assert rows.count() == 30
    page.route("**/episodes?*before=*", lambda route: route.abort())
    more.click()
    page.get_by_text("The server does not answer.").wait_for()
    assert rows.count() == 30
    page.unroute("**/episodes?*before=*")
    sent = Held(page, "**/episodes?*before=*", hold=1)
    more.click()
    more.click(force=True)
    sent.wait()
    page.wait_for_timeout(100)
    sent.release()
    rows.nth(31).wait_for()
    found = rows.evaluate_all("all => all.map(one => one.href)")
    assert len(sent.asked) == 1 and len(found) == len(set(found))
    assert page.get_by_text("The server does not answer.").count() == 0
