"""The compressed bytes that each view fetches, by the browser's own figures; pytest's `-s` prints them."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.browser.conftest import STATIC, Open
from tests.browser.test_watching import ended
from tests.live.conftest import Served

pytestmark = pytest.mark.conformance
MAX_BYTES = 60_000  # on the wire: page, style sheets, modules, icon
MIN_BYTES = 5_000  # a view that fetches less has not been measured
ICON_BYTES = (STATIC / "icon.svg").stat().st_size
WEIGHT = """() => {
  const all = performance.getEntries().filter(e => e.entryType === 'navigation' || e.name.includes('/static/'));
  const sum = (size) => all.reduce((total, e) => total + e[size], 0);
  return { written: sum('decodedBodySize'), wire: sum('encodedBodySize'), files: all.length,
           icon: all.some(e => e.name.endsWith('icon.svg')) };
}"""


def weigh(page: Any, view: str) -> None:
    """Scrolls to the end first: what the page fetches only then counts too."""
    page.keyboard.press("Control+End")
    page.wait_for_load_state("networkidle")
    found = page.evaluate(WEIGHT)
    found["wire"] += 0 if found["icon"] else ICON_BYTES  # a headless browser may not request it
    print(f"\n{view:24} {found['wire']:6,} bytes on the wire, {found['written']:7,} as written, {found['files']} files")
    assert found["wire"] < found["written"] / 2, "the files are not compressed"
    assert MIN_BYTES < found["wire"] < MAX_BYTES, found


def test_every_page_fetches_at_most_sixty_kilobytes(open_page: Open, played: dict[str, str]) -> None:
    match = played["cricket"]
    pages = ("/", "/custom", "/lobby", "/leaderboard", "/players/heuristic", "/studies", "/runs", "/tournaments/cup")
    for address in (*pages, f"/compare?a={match}&b={match}", f"/embed/{match}"):
        page = open_page(address)
        page.locator("form .primary, .page .card, .boardscore .side").first.wait_for()
        weigh(page, address)


@pytest.mark.parametrize("game", ["cricket", "deal_or_no_deal"])
def test_every_game_fetches_at_most_sixty_kilobytes(
    stage: Served, open_page: Open, played: dict[str, str], game: str
) -> None:
    page = open_page(f"/e/{played[game]}")
    ended(page)
    weigh(page, game)
    request = {"game": game, "captain_preset": "human", "opponent_choice": "heuristic", "max_overs": 1}
    seat = httpx.post(f"{stage.url}/custom/start_episode", json=request, timeout=60).json()
    held = [f"seat:{seat['episode_id']}", seat["seat_token"]]
    page = open_page(seat["url"], init=f"sessionStorage.setItem(...{json.dumps(held)})")
    page.locator(".seat.mine").wait_for()
    httpx.post(f"{stage.url}/custom/stop_episode", json={"episode_id": seat["episode_id"]}, timeout=60)
    page.locator(".status.failed").wait_for()  # what the page fetches at the end counts too
    weigh(page, f"{game}, a seat")
