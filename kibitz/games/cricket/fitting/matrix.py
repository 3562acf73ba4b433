"""What meets what: tactics against tactics on a typical ball, captains against captains over matches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kibitz.games.cricket.fitting.simulate import deliveries
from kibitz.games.cricket.model import tactics
from kibitz.games.cricket.model.calibration import calibration
from kibitz.games.cricket.model.delivery import phase_of
from kibitz.games.cricket.model.tactics import FIELDS, INTENTS, PLANS
from kibitz.games.cricket.options import CricketOptions

Floats = NDArray[np.float64]
WORTH = np.array([0, 1, 2, 3, 4, 6, 0.2, 1.16, 2.3, 1.4])
WICKET_COST = (5.5, 6.0, 3.5)  # runs a wicket costs in each phase
NAMES = ("balanced", "aggressive", "defensive", "shrewd", "random")


def ball_matrix(phase: int, spin: bool = False, era: str = "2023+") -> tuple[Floats, Floats]:
    """Runs and wickets a ball, each [intent, plan, field], around the default captains' mean of the phase."""
    fitted = calibration()
    shares = np.mean([fitted["eras"][era]["share"][o] for o in range(20) if phase_of(o) == phase], axis=0)
    effect = tactics.effects()[int(spin), int(phase == 0)].astype(np.float64)
    plans, fields = tactics.default_plans()[int(spin), phase], tactics.default_fields()[phase]
    usual = np.einsum("p,f,pfk->k", plans, fields, np.exp(effect[tactics.ACCUMULATE]))
    weight = shares * np.exp(effect) / usual
    p = weight / weight.sum(-1, keepdims=True)
    return p @ WORTH, p[..., 6]


def value_matrix(phase: int, spin: bool = False) -> Floats:
    """Runs a ball less the cost of wickets [intent, plan, field]."""
    runs, wickets = ball_matrix(phase, spin)
    return runs - WICKET_COST[phase] * wickets


def captains_matrix(matches: int = 4096, overs: int = 20, seed: int = 0, names: tuple[str, ...] = NAMES) -> Floats:
    """Share of matches the row's captain wins against the column's; standard error about 0.5 / sqrt(matches)."""
    settings = CricketOptions(max_overs=overs, pool=64, seed=seed).settings()
    table = np.full((len(names), len(names)), 0.5)
    for i, mine in enumerate(names):
        for j in range(i + 1, len(names)):
            _, final = deliveries(settings, matches, seed, (mine, names[j]))
            won = np.asarray(final.winner)
            table[i, j] = float(np.mean(won == 0) + 0.5 * np.mean(won == 2))
            table[j, i] = 1 - table[i, j]
    return table


def printed() -> str:
    """The tactics for each phase: the best answer to every choice of the other side."""
    lines = []
    for phase, name in enumerate(tactics.PHASES):
        value = value_matrix(phase)
        lines.append(f"{name}: value of a ball, runs less wickets (pace)")
        lines.append(" " * 24 + "".join(f"{intent:>12}" for intent in INTENTS))
        for p, plan in enumerate(PLANS):
            for f, field in enumerate(FIELDS):
                if phase == 0 and not tactics.open_in_powerplay()[f]:
                    continue
                row = value[:, p, f]
                cells = "".join(f"{x:11.3f}{'*' if x == row.max() else ' '}" for x in row)
                lines.append(f"{plan:>12} {field:>10} {cells}")
    return "\n".join(lines)
