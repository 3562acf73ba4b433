"""The review of a finished match: the balls that decided it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax

from kibitz.games.cricket.drawing.frame import chance, frame
from kibitz.games.cricket.words import commentary

MAX_MOMENTS = 5


def review(settings: Any, state: Any, past: Sequence[tuple[Any, Any]]) -> dict[str, Any]:
    """`moments`: the balls with the largest changes of win probability, in order; `change` is seat 0's."""
    settings = jax.device_get(settings)
    states = [*(before for before, _ in past), state]
    mine = [now if int(s.batting) == 0 else 1 - now for s in states for now in [chance(settings, s)]]
    moved = [after - before for before, after in pairwise(mine)]
    largest = sorted(range(len(moved)), key=lambda turn: -abs(moved[turn]))[:MAX_MOMENTS]
    moments = []
    for turn in sorted(largest):
        drawn = frame(settings, states[turn + 1])
        line = commentary.commentary({"type": "step", "payload": {"turn": turn}}, drawn)
        moments.append({"turn": turn, "change": round(moved[turn], 4), "text": line})
    return {"moments": moments}
