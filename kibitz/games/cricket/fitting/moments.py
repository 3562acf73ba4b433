"""Every ball of simulated matches with its position and outcome, to fit and judge win probability."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kibitz.games.cricket.chances import winprob
from kibitz.games.cricket.fitting.simulate import POOL, deliveries, innings
from kibitz.games.cricket.model.calibration import ERAS
from kibitz.games.cricket.model.delivery import LEVELS
from kibitz.games.cricket.model.par import MAX_RUNS
from kibitz.games.cricket.options import CricketOptions

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Moments(NamedTuple):
    """The position before each ball, without super overs. All arrays but `totals` have the same length."""

    match: Ints
    second: NDArray[np.bool_]
    legal: Ints
    lost: Ints  # wickets
    score: Ints
    first: Ints  # the first-innings total, in a first innings too
    outcome: Ints
    won: Ints  # 1 if the batting side won the match
    level: Floats  # of the match, in log runs
    totals: Ints  # [matches], of first innings

    def of(self, second: bool) -> Moments:
        return self.some(self.second == second)

    def some(self, picked: Any) -> Moments:
        kept: dict[str, Any] = {name: getattr(self, name)[picked] for name in self._fields[:-1]}
        return self._replace(**kept)


def moments(
    overs: int, era: int, matches: int, seed: int, fitted: dict[str, Any] | None = None, sides: int = 3
) -> Moments:
    """Moments of matches between default captains; `sides` is the seed of the elevens."""
    options = CricketOptions.read({"max_overs": overs, "era": ERAS[era], "pool": POOL, "seed": sides})
    settings = options.settings(fitted)
    balls, final = deliveries(settings, matches, seed)
    rows = innings(balls, final, int(settings.powerplay), overs)
    totals, won = rows["total"][0::2], np.stack([rows["won"][0::2], rows["won"][1::2]])
    there = (balls.live == 1) & (balls.supers == 0)
    i, j = np.nonzero(there)
    second = balls.second[i, j] == 1
    made = np.cumsum(np.where(there & (balls.second == 0), balls.runs, 0), axis=1) - balls.runs
    score = np.where(second, totals[i] + 1 - balls.needed[i, j], made[i, j])
    normal = np.array([NormalDist().inv_cdf((n + 0.5) / LEVELS) for n in range(LEVELS)])
    level = normal[np.asarray(final.levels[0])] * float(settings.model.level_sd[era, 0])
    legal, lost, outcome = (column[i, j].astype(np.int64) for column in (balls.legal, balls.wickets, balls.outcome))
    return Moments(i, second, legal, lost, score, totals[i], outcome, won[second * 1, i], level[i], totals)


def chances(played: Moments, overs: int, era: int, model: int = 0) -> Floats:
    """The win probability before each ball."""
    setting = winprob.first_innings(played.score, played.legal, played.lost, overs, era, model)
    needed = played.first + 1 - played.score
    chasing = winprob.chase(6 * overs - played.legal, needed, 10 - played.lost, played.first, era, overs, model)
    return np.where(played.second, chasing, setting)


def jumps(played: Moments, overs: int, era: int, model: int = 0) -> Floats:
    """f64[matches], the change of the first side's chance from before its last ball to after the break."""
    ball = played.of(second=False)
    last = ball.some(np.append(np.diff(ball.match) > 0, True))
    worth = winprob.total_worth(overs, era, model)
    return worth[np.minimum(played.totals, MAX_RUNS)] - chances(last, overs, era, model)
