"""An innings solved backwards: the chance to win in every position, from the rates of default captains.

Both innings are the same walk. A position is balls left, wickets left and runs still wanted; a chase
wants its target, a first innings is counted down from `MOST`. They differ in what a finished innings is
worth and in what the rates of a ball depend on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kibitz.games.cricket.model.delivery import phase_of
from kibitz.games.cricket.model.par import course

Floats = NDArray[np.float64]
MOST = 300  # runs; what is wanted or made beyond them changes nothing any more
LEVELS = np.array([-0.18, -0.09, 0.0, 0.09, 0.18])  # of the match, in log runs
STEADY = 200.0  # runs after which what a side has made says half of how it will go on


def group(overs: int) -> str:
    """Which of the two sets of fitted numbers: full matches are in the data, shorter ones are not."""
    return "twenty" if overs == 20 else "shorter"


class Yardstick:
    """What an ordinary innings of so many overs has done by each legal ball."""

    def __init__(self, overs: int, era: int, fitted: dict[str, Any]) -> None:
        path = course(overs, fitted)
        self.overs, self.era = overs, era
        self.over = np.asarray(path.over)
        self.rest = np.asarray(path.rest, np.float64).reshape(3, 121)[era]
        self.wickets = np.asarray(path.wickets, np.float64)

    def chase(self, legal: Any, lost: Any, needed: Any, level: Any) -> Floats:
        """f64[.., features] of a ball in a chase, as broadcast."""
        behind = np.clip(np.log(np.maximum(needed, 1) / np.maximum(self.rest[legal], 1.0)), -1.2, 1.2)
        return self._columns(legal, lost, np.minimum(behind, 0), np.maximum(behind - 0.3, 0), level)

    def first(self, legal: Any, lost: Any, score: Any) -> Floats:
        """f64[.., features] of a ball in a first innings; what was made so far tells of pitch and sides."""
        usual = self.rest[0] - self.rest[legal]
        return self._columns(legal, lost, (score - usual) / (usual + STEADY))

    def _columns(self, legal: Any, lost: Any, *more: Any) -> Floats:
        over, short = self.over[legal], 1 - self.overs / 20
        phase = phase_of(over)
        columns = [over == i for i in range(20)] + [self.era == 1, self.era == 2]
        columns += [(phase == i) * short**power for power in (1, 2) for i in range(3)]
        columns += [np.clip(lost - self.wickets[legal], -3, 4), *(lost >= n for n in (6, 7, 8, 9)), *more]
        return np.stack([np.asarray(c, np.float64) for c in np.broadcast_arrays(*columns)], axis=-1)


def solve_chase(fitted: dict[str, Any], overs: int, era: int) -> NDArray[np.float32]:
    """f32[balls left, level, wickets left 0..10, runs needed 0..MOST], chance of the batting side."""
    yard, beta = Yardstick(overs, era, fitted), np.asarray(fitted["chase"]["rates"][group(overs)])
    worth = np.zeros(MOST + 1)
    worth[:2] = 1, 0.5  # the target passed; level scores, so a super over

    def logits(legal: int, lost: Any, wanted: Any, level: Any) -> Floats:
        return np.asarray(yard.chase(legal, lost, wanted, level) @ beta)

    return _solve(logits, LEVELS, worth, 6 * overs)


def solve_first(fitted: dict[str, Any], overs: int, era: int, worth: Floats) -> NDArray[np.float32]:
    """f32[balls left, wickets left 0..10, runs below MOST]; `worth` is of a finished innings, by total."""
    yard, beta = Yardstick(overs, era, fitted), np.asarray(fitted["first"]["rates"][group(overs)])

    def logits(legal: int, lost: Any, wanted: Any, level: Any) -> Floats:
        return np.asarray(yard.first(legal, lost, MOST - wanted) @ beta)

    return _solve(logits, np.zeros(1), worth[::-1], 6 * overs)[:, 0]


def _solve(logits: Callable[..., Floats], levels: Floats, worth: Floats, balls: int) -> NDArray[np.float32]:
    wanted, lost = np.arange(MOST + 1), 10 - np.arange(11)
    table = np.zeros((balls + 1, len(levels), 11, MOST + 1), np.float32)
    now = np.broadcast_to(worth, table.shape[1:])
    for left in range(balls + 1):
        if left:
            # features are about wickets, runs or level, never about two of them: weights are products
            legal = balls - left
            across = logits(legal, lost[0], wanted, 0.0)
            down = logits(legal, lost, wanted[0], 0.0) - across[0]
            level = np.atleast_2d(logits(legal, lost[0], wanted[0], levels) - across[0])
            a, b, c = (np.exp(part).T for part in (level, down, across))
            p = (a[:, :, None] * b[:, None])[..., None] * c[:, None, None]
            now = _back(p / p.sum(0), now)
        table[left] = now
        table[left, :, 0] = worth  # all out
        table[left, ..., 0] = worth[0]
        now = table[left].astype(np.float64)
    return table


def _back(p: Floats, after: Floats) -> Floats:
    """One ball back: `p` is [outcome, level, wickets, wanted], `after` the values with a ball less."""

    def less(values: Floats, runs: int) -> Floats:
        return np.concatenate([values[..., :1]] * runs + [values[..., : values.shape[-1] - runs]], axis=-1)

    fallen = np.concatenate([after[:, :1], after[:, :-1]], axis=1)
    legal = sum(p[k] * less(after, runs) for k, runs in ((0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 6)))
    legal = legal + p[6] * fallen + p[9] * (0.85 * less(after, 1) + 0.15 * less(after, 4))
    # wides and no-balls leave the ball to be bowled again; three rounds are exact to a thousandth
    now = legal / (1 - p[7] - p[8])
    for _ in range(3):
        again = p[7] * (0.96 * less(now, 1) + 0.04 * less(now, 5))
        again = again + p[8] * (0.45 * less(now, 1) + 0.35 * less(now, 2) + 0.13 * less(now, 5) + 0.07 * less(now, 7))
        now = legal + again
    return np.asarray(np.clip(now, 0, 1))
