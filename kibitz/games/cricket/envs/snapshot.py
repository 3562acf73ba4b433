"""A state and what both seats see of it, brought to the host in one piece.

A hundred small arrays fetched one by one cost more than the ball itself; the functions are the
game's own.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np

from kibitz.core.game import SEATS, Game, blank
from kibitz.core.xla.flat_tree import Wire


class Sight(NamedTuple):
    state: Any
    views: list[Any]  # by seat
    masks: list[Any]


class Glimpse:
    def __init__(self, game: Game) -> None:
        def seen(settings: Any, state: Any) -> Any:
            views = [game.rules.view(settings, state, seat)._replace(seat=np.int32(seat)) for seat in SEATS]
            return state, views, [game.rules.legal(settings, state, seat) for seat in SEATS]

        wire = self._wire = Wire(blank(seen, game.default_settings, game.example))
        self._pack = jax.jit(lambda settings, state: wire.pack(seen(settings, state)))

    def __call__(self, settings: Any, state: Any) -> Sight:
        state, views, masks = self._wire.read(np.asarray(self._pack(settings, state)))
        return Sight(state, [view._replace(seat=seat) for seat, view in zip(SEATS, views, strict=True)], masks)


@cache
def glimpse_for(game: Game) -> Glimpse:
    return Glimpse(game)
