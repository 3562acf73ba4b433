"""Par: what an ordinary innings of a given length does from ball to ball. Laws, captains and chances use it."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kibitz.games.cricket.model.calibration import ERAS, calibration

MAX_RUNS = 300  # win probability does not change beyond this many runs, made or needed
Floats = NDArray[np.float64]


class Par(NamedTuple):
    """An ordinary innings of this length, by legal balls bowled, 0 to 120."""

    over: Array  # i32[121], the equivalent over of a twenty-over innings
    runs_left: Array  # f32[era * 121], runs an ordinary side still makes
    wickets: Array  # f32[121], wickets an ordinary side has lost


def powerplay_balls(overs: int) -> int:
    """Three tenths of the innings to the nearest ball, as in the playing conditions of July 2025."""
    return (18 * overs + 5) // 10


def equivalent_overs(overs: int) -> NDArray[np.int32]:
    """i32[121], the over of a twenty-over innings that each ball of this innings resembles.

    Phase by phase; a shorter innings skips the quiet overs at the start of each. This is an assumption:
    the data has no short matches.
    """
    powerplay, balls, short = powerplay_balls(overs), 6 * overs, 1 - overs / 20
    at = np.arange(121)
    early, late = at / max(powerplay, 1), (at - powerplay) / max(balls - powerplay, 1)
    early, late = 0.6 * short + (1 - 0.6 * short) * early, 0.55 * short + (1 - 0.55 * short) * late
    ball = np.where(at < powerplay, 36 * early, 36 + 84 * late) + 1e-6
    return np.asarray(np.clip(ball // 6, 0, 19), np.int32)


def par(overs: int, fitted: dict[str, Any]) -> Par:
    """Par for an innings of this length, from the fitted numbers."""
    over = equivalent_overs(overs)
    balls = 6 * overs
    by_era = []
    for era in ERAS:
        per_ball = np.asarray(fitted["eras"][era]["runs"])[over[:balls]]
        # a short innings is faster (`captains.bots.URGENCY`) but its batters are new to the crease: from simulations
        short = 1 - overs / 20
        per_ball = per_ball * (1 + 0.26 * short - 0.28 * short**2)
        by_era.append(np.concatenate([np.cumsum(per_ball[::-1])[::-1], np.zeros(121 - balls)]))
    falls = np.asarray(fitted["wickets"])[over[:balls]]
    lost = np.concatenate([[0], np.cumsum(falls)])
    lost = np.concatenate([lost, np.full(121 - len(lost), lost[-1])])
    return Par(
        over=jnp.asarray(over),
        runs_left=jnp.asarray(np.concatenate(by_era), jnp.float32),
        wickets=jnp.asarray(lost, jnp.float32),
    )


@cache
def par_path(overs: int, model: int = 0) -> tuple[Floats, Floats]:
    """On the host: runs left f64[era, 121] and wickets lost f64[121], of a fitted model."""
    path = par(overs, calibration(model))
    return np.asarray(path.runs_left, np.float64).reshape(3, 121), np.asarray(path.wickets, np.float64)
