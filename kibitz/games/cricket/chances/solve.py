"""Solves an innings backwards: the chance of winning in every position, from the rates of default captains.

Both innings use the same recursion. A position is balls left, wickets left and runs needed; a first
innings counts its runs down from `MAX_RUNS`. The two differ in the value of a finished innings and in
the features that the rates of a ball depend on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kibitz.games.cricket.model.delivery import phase_of
from kibitz.games.cricket.model.par import MAX_RUNS, par

Floats = NDArray[np.float64]
LEVELS = np.array([-0.18, -0.09, 0.0, 0.09, 0.18])  # grid of match levels, in log runs
STEADY = 200.0  # par runs after which a side's own scoring counts for half of the forecast


def group(overs: int) -> str:
    """The set of fitted numbers to use: the data has full matches and no shorter ones."""
    return "twenty" if overs == 20 else "shorter"


class Features:
    """The features of a ball that its rates depend on, relative to par for this length and era."""

    def __init__(self, overs: int, era: int, fitted: dict[str, Any]) -> None:
        path = par(overs, fitted)
        self.overs, self.era = overs, era
        self.over = np.asarray(path.over)
        self.runs_left = np.asarray(path.runs_left, np.float64).reshape(3, 121)[era]
        self.wickets = np.asarray(path.wickets, np.float64)

    def chase(self, legal: Any, lost: Any, needed: Any, level: Any) -> Floats:
        """f64[.., features] of a ball in a chase; the arguments broadcast."""
        ratio = np.maximum(needed, 1) / np.maximum(self.runs_left[legal], 1.0)
        log_rate_needed = np.clip(np.log(ratio), -1.2, 1.2)
        hinges = np.minimum(log_rate_needed, 0), np.maximum(log_rate_needed - 0.3, 0)
        return self._columns(legal, lost, *hinges, level)

    def first(self, legal: Any, lost: Any, score: Any) -> Floats:
        """f64[.., features] of a ball in a first innings; the score so far reveals pitch and sides."""
        par_made = self.runs_left[0] - self.runs_left[legal]
        return self._columns(legal, lost, (score - par_made) / (par_made + STEADY))

    def _columns(self, legal: Any, lost: Any, *more: Any) -> Floats:
        over, short = self.over[legal], 1 - self.overs / 20
        phase = phase_of(over)
        columns = [over == i for i in range(20)] + [self.era == 1, self.era == 2]
        columns += [(phase == i) * short**power for power in (1, 2) for i in range(3)]
        columns += [np.clip(lost - self.wickets[legal], -3, 4), *(lost >= n for n in (6, 7, 8, 9)), *more]
        return np.stack([np.asarray(c, np.float64) for c in np.broadcast_arrays(*columns)], axis=-1)


def solve_chase(fitted: dict[str, Any], overs: int, era: int) -> NDArray[np.float32]:
    """f32[balls left, level, wickets left 0..10, runs needed 0..MAX_RUNS], chance of the batting side."""
    features, beta = Features(overs, era, fitted), np.asarray(fitted["chase"]["rates"][group(overs)])
    worth = np.zeros(MAX_RUNS + 1)
    worth[:2] = 1, 0.5  # target passed; scores level, which means a super over

    def logits(legal: int, lost: Any, needed: Any, level: Any) -> Floats:
        return np.asarray(features.chase(legal, lost, needed, level) @ beta)

    return _solve(logits, LEVELS, worth, 6 * overs)


def solve_first(fitted: dict[str, Any], overs: int, era: int, worth: Floats) -> NDArray[np.float32]:
    """f32[balls left, wickets left 0..10, runs below MAX_RUNS]; `worth` is the value of each total."""
    features, beta = Features(overs, era, fitted), np.asarray(fitted["first"]["rates"][group(overs)])

    def logits(legal: int, lost: Any, needed: Any, level: Any) -> Floats:
        return np.asarray(features.first(legal, lost, MAX_RUNS - needed) @ beta)

    return _solve(logits, np.zeros(1), worth[::-1], 6 * overs)[:, 0]


def _solve(logits: Callable[..., Floats], levels: Floats, worth: Floats, balls: int) -> NDArray[np.float32]:
    needed, lost = np.arange(MAX_RUNS + 1), 10 - np.arange(11)
    table = np.zeros((balls + 1, len(levels), 11, MAX_RUNS + 1), np.float32)
    now = np.broadcast_to(worth, table.shape[1:])
    for left in range(balls + 1):
        if left:
            # each feature depends on wickets, runs or level, never on two of them, so the weights are products
            legal = balls - left
            across = logits(legal, lost[0], needed, 0.0)
            down = logits(legal, lost, needed[0], 0.0) - across[0]
            level = np.atleast_2d(logits(legal, lost[0], needed[0], levels) - across[0])
            a, b, c = (np.exp(part).T for part in (level, down, across))
            p = (a[:, :, None] * b[:, None])[..., None] * c[:, None, None]
            now = _back(p / p.sum(0), now)
        table[left] = now
        table[left, :, 0] = worth  # all out
        table[left, ..., 0] = worth[0]
        now = table[left].astype(np.float64)
    return table


def _back(p: Floats, after: Floats) -> Floats:
    """The values one ball earlier: `p` is [outcome, level, wickets, needed], `after` the values with a ball fewer."""

    def less(values: Floats, runs: int) -> Floats:
        return np.concatenate([values[..., :1]] * runs + [values[..., : values.shape[-1] - runs]], axis=-1)

    fallen = np.concatenate([after[:, :1], after[:, :-1]], axis=1)
    legal = sum(p[k] * less(after, runs) for k, runs in ((0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 6)))
    legal = legal + p[6] * fallen + p[9] * (0.85 * less(after, 1) + 0.15 * less(after, 4))
    # wides and no-balls are bowled again; three iterations are exact to a thousandth
    now = legal / (1 - p[7] - p[8])
    for _ in range(3):
        again = p[7] * (0.96 * less(now, 1) + 0.04 * less(now, 5))
        again = again + p[8] * (0.45 * less(now, 1) + 0.35 * less(now, 2) + 0.13 * less(now, 5) + 0.07 * less(now, 7))
        now = legal + again
    return np.asarray(np.clip(now, 0, 1))
