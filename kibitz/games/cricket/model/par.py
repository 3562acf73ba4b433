"""What an ordinary innings of a given length does from ball to ball: the yardstick of captains and rules."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kibitz.games.cricket.model.calibration import ERAS


class Course(NamedTuple):
    """How an innings of this length runs; by legal balls bowled, 0..120."""

    over: Array  # i32[121], the over of a twenty-over innings it resembles
    rest: Array  # f32[era * 121], runs an ordinary side still makes
    wickets: Array  # f32[121], wickets an ordinary side has lost


def powerplay_balls(overs: int) -> int:
    """Three tenths of the innings to the nearest ball, as in the playing conditions of July 2025."""
    return (18 * overs + 5) // 10


def resembles(overs: int) -> NDArray[np.int32]:
    """i32[121], the over of twenty that each ball of an innings resembles.

    Phase by phase; a shorter innings skips the quiet overs at the start of each. An assumption: there
    are no short matches in the data.
    """
    powerplay, balls, short = powerplay_balls(overs), 6 * overs, 1 - overs / 20
    at = np.arange(121)
    early, late = at / max(powerplay, 1), (at - powerplay) / max(balls - powerplay, 1)
    early, late = 0.6 * short + (1 - 0.6 * short) * early, 0.55 * short + (1 - 0.55 * short) * late
    ball = np.where(at < powerplay, 36 * early, 36 + 84 * late) + 1e-6
    return np.asarray(np.clip(ball // 6, 0, 19), np.int32)


def course(overs: int, fitted: dict[str, Any]) -> Course:
    """What an ordinary innings of this length does from ball to ball."""
    over = resembles(overs)
    balls = 6 * overs
    rests = []
    for era in ERAS:
        per_ball = np.asarray(fitted["eras"][era]["runs"])[over[:balls]]
        # a short innings is played faster (captains.URGENCY) by batters new to the crease: as simulated
        short = 1 - overs / 20
        per_ball = per_ball * (1 + 0.26 * short - 0.28 * short**2)
        left = np.concatenate([np.cumsum(per_ball[::-1])[::-1], np.zeros(121 - balls)])
        rests.append(left)
    falls = np.asarray(fitted["wickets"])[over[:balls]]
    lost = np.concatenate([[0], np.cumsum(falls)])
    lost = np.concatenate([lost, np.full(121 - len(lost), lost[-1])])
    return Course(
        over=jnp.asarray(over),
        rest=jnp.asarray(np.concatenate(rests), jnp.float32),
        wickets=jnp.asarray(lost, jnp.float32),
    )
