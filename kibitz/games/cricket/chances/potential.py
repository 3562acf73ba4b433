"""Win probability inside the compiled program: a potential for shaped rewards.

The tables of both innings, the chase at the level of a par score: a potential changes what is learnt
fast, not what is best, so it need not know more.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from kibitz.games.cricket.chances import winprob
from kibitz.games.cricket.chances.solve import MOST
from kibitz.games.cricket.laws.state import TIE, State


class Potential(NamedTuple):
    """No rows in `chances`: rewards are not shaped."""

    weight: Array  # f32[], share of the reward that is paid as win probability moves
    chances: Array  # f32[innings * balls left * 11 * (MOST + 1)], of the batting side; runs wanted as in `backwards`


def none() -> Potential:
    return Potential(jnp.float32(0), jnp.zeros(0))


def build(weight: float, overs: int, era: int) -> Potential:
    if weight == 0:
        return none()
    first = winprob.first_table(overs, era)
    balls, wickets, needed = np.indices(first.shape)
    chase = winprob.chase(balls, needed, wickets, winprob.par_score(overs, era), era, overs)
    return Potential(jnp.float32(weight), jnp.asarray(np.stack([first, chase]).reshape(-1), jnp.float32))


def chance(settings: Any, state: State) -> Array:
    """f32[], of seat 0; the result itself once the match is over, a half in super overs."""
    balls = 6 * settings.overs
    left = jnp.clip(balls - state.legal, 0, balls)
    wickets = jnp.clip(10 - state.wickets, 0, 10)
    wanted = jnp.clip(jnp.where(state.second, state.first + 1, MOST) - state.score, 0, MOST)
    row = (state.second * (balls + 1) + left) * 11 + wickets
    batting = jnp.where(state.supers > 0, 0.5, settings.potential.chances[row * (MOST + 1) + wanted])
    mine = jnp.where(state.batting == 0, batting, 1 - batting)
    result = jnp.where(state.winner == TIE, 0.5, (state.winner == 0).astype(jnp.float32))
    return jnp.where(state.over, result, mine)
