"""Bradley-Terry ratings on Elo's scale, with bootstrap intervals over pairs of games."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kibitz.core.errors import BadInput
from kibitz.core.statistics import NO_INTERVAL, Interval, bootstrap_error, t_quantile

Floats = NDArray[np.float64]
ELO_PER_LOGIT = 400 / math.log(10)  # 400 points are odds of ten to one
MEAN_RATING = 1500.0
RESAMPLES = 200  # enough for a standard error
TOLERANCE = 1e-5  # of the sum of differences between two rounds of fitting, in logits
DRAWN_GAMES = 1.0  # added to every pairing: without it, a player that won every game would be rated infinite


class Rating(NamedTuple):
    value: float
    ci95: Interval


def check_installed() -> None:
    """Raises BadInput before anything is played; importing the library takes a second."""
    if find_spec("choix") is None:
        raise BadInput("Ratings need the package choix; install it with pip install 'kibitz[studies]'.")


def rate(points: Mapping[tuple[int, int], Floats], players: int, seed: int = 0) -> list[Rating]:
    """Ratings from every pairing's pairs of games; points are what the first player won of each pair, 0..1.

    The bootstrap draws pairs from those played and from one won and one lost: ten wins of ten leave some doubt.
    Ratings have no intervals while two groups of players have not met, as in an unfinished tournament.
    """
    import choix

    rng = np.random.default_rng(seed)
    met = {pairing: np.asarray(pairs, float) for pairing, pairs in points.items() if len(pairs)}

    def fit(means: Mapping[tuple[int, int], float], start: Floats | None) -> Floats:
        wins = np.full((players, players), DRAWN_GAMES / 2) * (1 - np.eye(players))
        for (one, other), mean in means.items():
            games = 2.0 * len(met[one, other])
            wins[one, other] += games * mean
            wins[other, one] += games * (1 - mean)
        strengths: Floats = choix.ilsr_pairwise_dense(wins, initial_params=start, max_iter=1000, tol=TOLERANCE)
        return np.asarray(strengths - strengths.mean())

    fitted = fit({pairing: float(pairs.mean()) for pairing, pairs in met.items()}, None)
    values = MEAN_RATING + ELO_PER_LOGIT * fitted
    counts = [len(pairs) for pairs in met.values()]
    if min(counts) < 2 or not _connected(met, players):
        return [Rating(float(value), NO_INTERVAL) for value in values]
    pools = {pairing: np.append(pairs, [0.0, 1.0]) for pairing, pairs in met.items()}
    resampled = np.array(
        [
            fit({pairing: float(rng.choice(pool, len(pool) - 2).mean()) for pairing, pool in pools.items()}, fitted)
            for _ in range(RESAMPLES)
        ]
    )
    quantile = ELO_PER_LOGIT * t_quantile(sum(counts) - len(counts))
    halves = [quantile * bootstrap_error(column, sum(counts), len(counts)) for column in resampled.T]
    return [Rating(float(v), (float(v - half), float(v + half))) for v, half in zip(values, halves, strict=True)]


def _connected(pairings: Collection[tuple[int, int]], players: int) -> bool:
    """Whether games lead from every player to every other."""
    group, waiting = {0}, [0]
    while waiting:
        one = waiting.pop()
        found = {a + b - one for a, b in pairings if one in (a, b)} - group
        group |= found
        waiting += found
    return len(group) == players
