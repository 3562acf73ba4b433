"""Win probability inside the compiled program: the potential of shaped rewards.

A potential changes how fast a policy learns, not which policy is best, so one table per innings is
enough; the chase assumes a par target. `chances.potential` builds the tables.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from kibitz.games.cricket.laws.state import TIE, State
from kibitz.games.cricket.model.par import MAX_RUNS


class Potential(NamedTuple):
    """An empty `chances` means that rewards are not shaped."""

    weight: Array  # f32[], share of the reward that is paid as win probability changes
    chances: Array  # f32[innings * balls left * 11 * (MAX_RUNS + 1)], of the batting side; see `chances.solve`


def chance(settings: Any, state: State) -> Array:
    """f32[], win probability of seat 0: the result once the match is over, a half in super overs."""
    balls = 6 * settings.overs
    left = jnp.clip(balls - state.legal, 0, balls)
    wickets = jnp.clip(10 - state.wickets, 0, 10)
    needed = jnp.clip(jnp.where(state.second, state.first + 1, MAX_RUNS) - state.score, 0, MAX_RUNS)
    row = (state.second * (balls + 1) + left) * 11 + wickets
    batting = jnp.where(state.supers > 0, 0.5, settings.potential.chances[row * (MAX_RUNS + 1) + needed])
    mine = jnp.where(state.batting == 0, batting, 1 - batting)
    result = jnp.where(state.winner == TIE, 0.5, (state.winner == 0).astype(jnp.float32))
    return jnp.where(state.over, result, mine)
