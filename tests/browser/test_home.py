"""Home, unknown addresses, and pages that stand still while they load."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.browser.conftest import Open
from tests.live.conftest import Served

MAX_SHIFT = 0.02
SHIFTS = """window.shifted = 0;
  new PerformanceObserver((list) => { for (const one of list.getEntries()) window.shifted += one.value; })
    .observe({ type: 'layout-shift', buffered: true });"""


def shift(page: Any) -> float:
    """The layout shift so far, after the newest frame was measured."""
    page.wait_for_load_state("networkidle")
    frames = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(window.shifted))))"
    return float(page.evaluate(frames))


def test_home_starts_a_game_in_one_click_and_an_unknown_address_is_a_page(stage: Served, open_page: Open) -> None:
    page = open_page("/no/such/page")
    page.get_by_role("heading", name="Page not found").wait_for()
    page.get_by_role("link", name="Go to the home page").click()
    page.get_by_role("link", name="All episodes").wait_for()
    page.get_by_role("button", name="Play Deal or no deal").click()
    page.locator(".seat.mine").wait_for()
    for accept, kind in (("text/html,*/*;q=0.8", "text/html"), ("*/*", "application/json")):
        answer = httpx.get(f"{stage.url}/no/such/page", headers={"Accept": accept})
        assert answer.status_code == 404 and answer.headers["content-type"].startswith(kind)


@pytest.mark.parametrize("address", ["/", "/custom"])
def test_a_page_stands_still_on_a_phone_while_it_loads(open_page: Open, played: dict[str, str], address: str) -> None:
    page = open_page(address, width=390, height=844, init=SHIFTS)
    page.get_by_role("link", name="All episodes").wait_for()
    page.locator("a.episode").first.wait_for()
    assert page.get_by_text("0 : 1").count() + page.get_by_text("1 : 0").count() == 0, "points are no result of a match"
    assert shift(page) <= MAX_SHIFT


def test_a_page_that_cannot_be_loaded_says_so(open_page: Open) -> None:
    page = open_page("/lobby")
    page.get_by_role("heading", name="Episodes").wait_for()
    page.route("**/static/runs.js", lambda route: route.abort())
    page.get_by_role("link", name="Runs", exact=True).click()
    page.get_by_role("heading", name="The server is not responding").wait_for()
    assert page.locator("kibitz-episodes").count() == 0
