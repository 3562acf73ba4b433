"""Where the system asks for less motion, nothing on the page moves."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Open
from tests.browser.test_watching import WATCH, ended

# goes to each turn and collects what moves in the frames after it
MOVING = f"""async () => {{
  const found = new Set();
  const frame = () => new Promise(requestAnimationFrame);
  const {{ replay, timeline }} = {WATCH};
  for (const seq of timeline.stops.slice(0, 8)) {{
    replay.go(seq);
    for (let i = 0; i < 12; i++) {{
      await frame();
      for (const one of document.getAnimations()) found.add(one.effect.target.getAttribute('class'));
    }}
  }}
  return [...found];
}}"""


@pytest.mark.parametrize(("game", "mover"), [("cricket", "flying"), ("deal_or_no_deal", "item")])
def test_nothing_moves_with_reduced_motion(open_page: Open, played: dict[str, str], game: str, mover: str) -> None:
    page = open_page(f"/e/{played[game]}", reduced_motion="no-preference")
    ended(page)
    assert mover in page.evaluate(MOVING), "the check sees what moves otherwise"
    page = open_page(f"/e/{played[game]}", reduced_motion="reduce")
    ended(page)
    assert page.evaluate(MOVING) == []
