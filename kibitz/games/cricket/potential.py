"""Win probability inside the compiled program: a potential for shaped rewards.

The chase table at the middle level and the projection of a first innings, as arrays. It need not be
exact: a potential changes what is learnt fast, not what is best.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from kibitz.games.cricket import winprob
from kibitz.games.cricket.calibration import calibration
from kibitz.games.cricket.state import TIE, State


class Potential(NamedTuple):
    """No rows in `chase`: rewards are not shaped."""

    weight: Array  # f32[], share of the reward that is paid as win probability moves
    chase: Array  # f32[121 * 11 * (MOST + 1)]
    first: Array  # f32[5], see fit_winprob: scale, worn, par, width at the start, width at the end


def none() -> Potential:
    return Potential(jnp.float32(0), jnp.zeros(0), jnp.zeros(5))


def build(weight: float, overs: int, era: int) -> Potential:
    if weight == 0:
        return none()
    first = calibration()["first"]
    widths = [first["width_start"], first["width_end"]]
    table = winprob.chase_table(era)[len(winprob.LEVELS) // 2]
    par = winprob.par_score(overs, era)
    shape = np.array([first["scale"], first["worn"], par, *(w * np.sqrt(20 / overs) for w in widths)])
    return Potential(jnp.float32(weight), jnp.asarray(table.reshape(-1)), jnp.asarray(shape, jnp.float32))


def chance(settings: Any, state: State) -> Array:
    """f32[], of seat 0; the result itself once the match is over, a half in super overs."""
    potential: Potential = settings.potential
    at = jnp.minimum(state.legal, 6 * settings.overs)
    left = 6 * settings.overs - at
    needed = jnp.clip(state.first + 1 - state.score, 0, winprob.MOST)
    wickets = jnp.clip(10 - state.wickets, 0, 10)
    chasing = potential.chase[(left * 11 + wickets) * (winprob.MOST + 1) + needed]
    scale, worn, par, start, end = (potential.first[i] for i in range(5))
    rest = settings.course.rest[settings.era * 121 + at]
    total = state.score + rest * jnp.exp(scale - worn * (state.wickets - settings.course.wickets[at]))
    width = start + (end - start) * at / jnp.maximum(6 * settings.overs, 1)
    setting = 1 / (1 + jnp.exp(-jnp.log(jnp.maximum(total, 1.0) / par) / width))
    batting = jnp.where(state.second, chasing, setting)
    batting = jnp.where(state.supers > 0, 0.5, batting)
    mine = jnp.where(state.batting == 0, batting, 1 - batting)
    result = jnp.where(state.winner == TIE, 0.5, (state.winner == 0).astype(jnp.float32))
    return jnp.where(state.over, result, mine)
