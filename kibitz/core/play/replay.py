"""Repeats recorded acts, without players and without events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import Array

from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.play.episode import table_for

Act = tuple[int, ...]
Acts = Sequence[Act | None]  # of both seats in one step


def replay(
    game: Game,
    settings: Any,
    state: Any,
    luck: Array,
    steps: Sequence[Acts],
    seen: Callable[[int, Any, Acts], None] = lambda *step: None,
    ended: Callable[[Any], None] = lambda state: None,
) -> tuple[float, float]:
    """What the acts earn. BadInput if one is illegal, or if the game does not end with the last of them.

    `state` None means a fresh deal of this luck. Each step calls `seen` with its number, the state before it and both
    seats' acts; `ended` gets the final state.
    """
    table = table_for(game)
    state = table.new(settings, luck) if state is None else state
    returns = np.zeros(2)
    for number, acts in enumerate(steps):
        for seat, to_act in enumerate(np.asarray(table.to_act(state)).tolist()):
            act = acts[seat] or ()
            _, masks = table.observe(settings, state, seat)
            within = all(0 <= value < len(mask) for value, mask in zip(act, masks, strict=False))
            if bool(to_act) != (acts[seat] is not None) or (to_act and not (within and table.is_legal(masks, act))):
                raise BadInput(f"Step {number} is not possible in this game.")
        seen(number, state, acts)
        given = tuple(act or acts[1 - seat] for seat, act in enumerate(acts))
        state, rewards, _ = table.step(settings, state, given, luck, number)
        returns += np.asarray(rewards, float)
    if np.asarray(table.to_act(state)).any():
        raise BadInput("The game is not over after the last step.")
    ended(state)
    return float(returns[0]), float(returns[1])
