"""What each view makes the browser fetch, by the browser's own figures; pytest's `-s` prints them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.browser.conftest import STATIC, Open
from tests.browser.test_watching import ended
from tests.live.conftest import Served

ICON = (STATIC / "icon.svg").stat().st_size
MOST = 100_000  # bytes as they are written: page, style sheets, modules, icon
WEIGHT = """() => {
  const all = performance.getEntries().filter(e => e.entryType === 'navigation' || e.name.includes('/static/'));
  const sum = (size) => all.reduce((total, e) => total + e[size], 0);
  return { bytes: sum('decodedBodySize'), gzip: sum('encodedBodySize'), files: all.length,
           icon: all.some(e => e.name.endsWith('icon.svg')) };
}"""


def weigh(page: Any, view: str) -> None:
    """Everything is looked at once: what comes only when it is scrolled to counts too."""
    page.keyboard.press("Control+End")
    page.wait_for_load_state("networkidle")
    found = page.evaluate(WEIGHT)
    found["bytes"] += 0 if found["icon"] else ICON  # a browser without a window need not ask for it
    print(f"\n{view:24} {found['bytes']:7,} bytes as written, {found['gzip']:6,} on the wire, {found['files']} files")
    assert 15_000 < found["bytes"] < MOST, found


def test_every_page_is_small(stage: Served, open_page: Open) -> None:
    for address in ("/custom", "/lobby", "/leaderboard", "/runs"):
        page = open_page(address)
        page.locator("form .primary, .page .card").first.wait_for()
        weigh(page, address)


@pytest.mark.parametrize("game", ["cricket", "deal_or_no_deal"])
def test_every_match_is_small_also_for_who_plays_in_it(
    stage: Served, open_page: Open, played: dict[str, str], game: str
) -> None:
    page = open_page(f"/e/{played[game]}")
    ended(page)
    weigh(page, game)
    import httpx

    wish = {"game": game, "captain_preset": "human", "opponent_choice": "heuristic", "max_overs": 1}
    seat = httpx.post(f"{stage.url}/custom/start_episode", json=wish, timeout=60).json()
    held = [f"seat:{seat['episode_id']}", seat["seat_token"]]
    page = open_page(seat["url"], init=f"sessionStorage.setItem(...{json.dumps(held)})")
    page.locator(".seat.mine").wait_for()
    httpx.post(f"{stage.url}/custom/stop_episode", json={"episode_id": seat["episode_id"]}, timeout=60)
    page.locator(".status.failed").wait_for()  # what is fetched at the end counts as well
    weigh(page, f"{game}, a seat")
