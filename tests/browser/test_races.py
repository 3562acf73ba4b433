"""Double clicks and late answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.browser.conftest import Open, load, start_from_page
from tests.live.conftest import Served

CHAIR = "document.querySelector('kibitz-watch').chair"


def settle(page: Any) -> None:
    """Returns once the browser has sent every request it had started, and handled every answer it had received."""
    page.evaluate("() => fetch('/custom/status').then(() => new Promise(requestAnimationFrame))")


class Held:
    """Counts a page's requests to an address and holds back the first `hold` answers until `release`."""

    def __init__(self, page: Any, address: str, hold: int = 0) -> None:
        self.page = page
        self.routes: list[tuple[Any, Any]] = []
        self.asked: list[str] = []

        def take(route: Any) -> None:
            self.asked.append(route.request.url)
            if len(self.asked) <= hold:
                self.routes.append((route, route.fetch()))  # the server answers now, the page receives it later
            else:
                route.continue_()

        page.route(address, take)

    def wait(self) -> None:
        """Waits until an answer is held."""
        for _ in range(3000):
            if self.routes:
                return
            self.page.wait_for_timeout(20)  # processes the browser's messages
        raise AssertionError("the page sent no request")

    def release(self) -> None:
        """Hands over the held answers and returns once the page has handled them."""
        for route, answer in self.routes:
            route.fulfill(response=answer)
        self.routes.clear()
        settle(self.page)


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


# a turn that only this page believes in: the same choices under another number
ANOTHER_TURN = f"""(turn) => {{
  const {{ feed, timeline }} = document.querySelector('kibitz-watch');
  const details = {{ ...{CHAIR}.turn, turn, view_text: 'Another turn.' }};
  const payload = {{ seat: 0, turn, seconds: 120, private: {{ 0: details }} }};
  const event = {{ v: 1, episode_id: feed.id, seq: timeline.expected, ts: 0, type: 'turn.requested', payload }};
  feed.message({{ events: [event] }}, 'live');
}}"""


def test_a_late_answer_to_an_act_does_not_close_the_next_turn(stage: Served, open_page: Open) -> None:
    page = open_page("/custom")
    start_from_page(page, "Deal or no deal", Seat_0="human", Seat_1="heuristic", Agent_starts="true")
    page.locator(".seat.mine").wait_for()
    held = Held(page, "**/act", hold=1)
    page.get_by_role("button", name="Propose").click()
    held.wait()
    page.locator(".turn").nth(1).wait_for()
    page.locator(".seat.mine").wait_for()  # the other side has answered while our own answer is still held
    held.release()
    page.wait_for_function("() => !document.querySelector('.seat [inert]')")
    assert page.evaluate(f"() => {CHAIR}.turn.turn") == 2
    assert page.locator(".seat .error").inner_text() == ""
    page.get_by_role("button", name="Insist").click()
    page.wait_for_function("() => document.querySelector('kibitz-watch').timeline.live.turn >= 2")
    record = stage.events(page.url.split("/e/")[1].split("?")[0])
    mine = [event["payload"] for event in record if event["type"] == "decision" and event["payload"]["seat"] == 0]
    assert [one["turn"] for one in mine] == [0, 2]


@pytest.mark.conformance
def test_an_act_that_comes_too_late_is_not_played_in_the_next_turn(stage: Served, open_page: Open) -> None:
    page = open_page("/custom")
    start_from_page(page, "Deal or no deal", Seat_0="human", Seat_1="heuristic", Agent_starts="true")
    page.locator(".seat.mine").wait_for()
    page.evaluate(ANOTHER_TURN, 7)
    page.locator(".seat").get_by_text("Another turn.").wait_for()
    page.get_by_role("button", name="Propose").click()
    page.locator(".seat .error").filter(has_text="meant for another turn").wait_for()
    assert page.locator(".seat.mine").is_visible()


@pytest.mark.conformance
def test_the_choices_are_drawn_again_for_each_turn_and_the_act_names_it(stage: Served, open_page: Open) -> None:
    """Otherwise an act chosen for one turn could be sent for the next."""
    page = open_page("/custom")
    start_from_page(page, "Deal or no deal", Seat_0="human", Seat_1="heuristic", Agent_starts="true")
    page.locator(".seat.mine").wait_for()
    page.get_by_role("button", name="one ball fewer").click()
    kept = page.locator(".seat .stepper output").last.inner_text()
    page.evaluate(ANOTHER_TURN, 2)
    page.locator(".seat").get_by_text("Another turn.").wait_for()
    assert page.locator(".seat .stepper output").last.inner_text() != kept
    with page.expect_request("**/act") as sent:
        page.get_by_role("button", name="Propose").click()
    assert sent.value.post_data_json["turn"] == 2


def test_a_seat_never_polls_for_its_turn_and_finds_it_again_after_a_reload(stage: Served, open_page: Open) -> None:
    page = open_page("/custom")
    polls = Held(page, "**/turn?*")
    start_from_page(page, "Deal or no deal", Seat_0="human", Seat_1="heuristic", Agent_starts="true")
    page.locator(".seat.mine").wait_for()
    page.get_by_role("button", name="Propose").click()
    page.locator(".turn").nth(1).wait_for()
    page.locator(".seat.mine").wait_for()
    before = len(polls.asked)
    assert before <= 1, "it asks for the time left only if the turn was open before the page connected"
    page.reload()
    page.locator(".seat.mine").wait_for()
    assert page.evaluate(f"() => {CHAIR}.turn.turn") == 2
    page.get_by_role("button", name="Insist").wait_for()
    assert len(polls.asked) - before <= 2, "once for the open turn, and once if the page drew the earlier one, too"


@pytest.mark.conformance
def test_navigating_away_from_an_episode_does_not_redirect_back(
    stage: Served, open_page: Open, played: dict[str, str]
) -> None:
    """The address changes at once, the page only when its module has loaded; meanwhile the episode continues."""
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


@pytest.mark.conformance
def test_a_double_click_branches_once(stage: Served, open_page: Open, played: dict[str, str]) -> None:
    page = open_page(f"/e/{played['deal_or_no_deal']}?seq=4")
    page.wait_for_function("() => document.querySelector('kibitz-watch')?.timeline?.shown.seq === 4")
    page.get_by_role("button", name="Branch from here").click()
    sent = Held(page, "**/branch", hold=1)
    page.get_by_role("button", name="Play on").dblclick()
    sent.wait()
    settle(page)
    assert len(sent.asked) == 1
    sent.release()
    page.wait_for_function(f"() => !location.pathname.includes('{played['deal_or_no_deal']}')")


@pytest.mark.conformance
def test_a_late_curve_does_not_replace_the_chosen_one(stage: Served, open_page: Open) -> None:
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
    assert curve.is_visible() and second.get_attribute("aria-pressed") == "true"
    assert "seed 7" in page.locator(".runs p.dim.small").inner_text()


@pytest.mark.conformance
def test_the_next_page_of_episodes_loads_once_and_a_failure_loses_nothing(
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
    page.get_by_text("The server is not responding.").wait_for()
    assert rows.count() == 30
    page.unroute("**/episodes?*before=*")
    sent = Held(page, "**/episodes?*before=*", hold=1)
    more.click()
    more.click(force=True)
    sent.wait()
    settle(page)
    sent.release()
    rows.nth(31).wait_for()
    found = rows.evaluate_all("all => all.map(one => one.href)")
    assert len(sent.asked) == 1 and len(found) == len(set(found))
    assert page.get_by_text("The server is not responding.").count() == 0
