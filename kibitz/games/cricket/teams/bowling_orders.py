"""Bowling orders, prepared before a match: which player bowls which over."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kibitz.games.cricket.model.par import equivalent_overs
from kibitz.games.cricket.teams.ratings import VARIANTS
from kibitz.games.cricket.teams.roster import Eleven

SPIN_SHARE = (
    0.137, 0.110, 0.129, 0.171, 0.229, 0.266, 0.597, 0.577, 0.626, 0.602,
    0.582, 0.557, 0.501, 0.496, 0.432, 0.389, 0.270, 0.182, 0.116, 0.107,
)  # fmt: skip
"""The share of spin by over of a twenty-over innings (bowler_usage.json)."""
BOWLERS_USED = {5: 0.21, 6: 0.65, 7: 0.14}  # share of twenty-over innings by number of bowlers (bowler_usage.json)


def bowling_orders(elevens: list[Eleven], overs: int, seed: int) -> NDArray[np.int32]:
    """i32[eleven, VARIANTS, 20]: the bowler of each over.

    Overs per bowler and spin by over follow the real game; simulated annealing places them so that no
    bowler has two overs in a row. Entries beyond `overs` repeat the last bowler.
    """
    rng = np.random.default_rng([seed, 0x0BD])
    over = equivalent_overs(overs)[np.arange(20) * 6]
    share = np.array(SPIN_SHARE)[over]
    rows = np.concatenate([_quota(side, overs, rng) for side in elevens for _ in range(VARIANTS)])
    rows = rows.reshape(-1, overs)
    spin = np.array([[p.bowls.startswith("spin") for p in side.players] for side in elevens])
    spin = np.repeat(spin, VARIANTS, axis=0)
    lines = np.arange(len(rows))
    spin_worth = np.log(share / (1 - share))[:overs]  # log-odds of a spinner in this over

    def repeated(table: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray((table[:, 1:] == table[:, :-1]).sum(1))

    repeats = repeated(rows)
    for heat in np.linspace(1.5, 0.3, 60 * overs):
        i, j = rng.integers(overs, size=(2, len(rows)))
        trial = rows.copy()
        trial[lines, i], trial[lines, j] = rows[lines, j], rows[lines, i]
        gain = (spin[lines, rows[lines, i]] * 1.0 - spin[lines, rows[lines, j]]) * (spin_worth[j] - spin_worth[i])
        trial_repeats = repeated(trial)
        gain = gain - 6.0 * (trial_repeats - repeats)
        accept = np.log(rng.random(len(rows))) < gain / heat
        rows[accept], repeats[accept] = trial[accept], trial_repeats[accept]
    padded = np.concatenate([rows, np.repeat(rows[:, -1:], 20 - overs, axis=1)], axis=1)
    return padded.reshape(len(elevens), VARIANTS, 20).astype(np.int32)


def _quota(side: Eleven, overs: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """One bowler per over, not yet in order, within the limit for each bowler."""
    merit = np.array([p.economy + 0.5 * p.threat + 0.3 * p.control + rng.normal(0, 6) for p in side.players])
    merit[side.keeper] = -1e9
    best = np.argsort(-merit)
    limit, spare = divmod(overs, 5)
    used = int(rng.choice(list(BOWLERS_USED), p=list(BOWLERS_USED.values())))
    # the best bowlers take all they may, but leave an over for each of the others in use
    max_overs = [limit + 1] * spare + [limit] * (11 - spare)
    counts, left = [0] * 11, overs
    for i in range(used if limit else 10):
        keep = max(0, used - i - 1) if limit > 1 else 0
        counts[i] = max(0, min(max_overs[i], left - keep))
        left -= counts[i]
    for i in range(10):
        add = min(max_overs[i] - counts[i], left)
        counts[i], left = counts[i] + add, left - add
    return np.repeat(best[:10], counts[:10])
