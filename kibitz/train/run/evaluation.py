"""What a run measures between updates: greedy play on new contexts, with and without its hints."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import Array

from kibitz.core.bots import NO_HINTS
from kibitz.core.statistics import mean_ci95
from kibitz.train.phase import TrainingPhase

WITHOUT_HINTS = "without_hints_"  # prefix of the measures of the same episodes played without hints


def measures(phase: TrainingPhase, weights: Array, alone: bool) -> dict[str, list[float]]:
    """Measures by name, one number for each seed; NaN where a measure is undefined.

    With `alone` every measure comes a second time, played without hints: what the learner can do itself, apart
    from following its adviser.
    """
    found = _measures(phase, weights, heard=True)
    if not alone:
        return found
    own = found if phase.hints_from == NO_HINTS else _measures(phase, weights, heard=False)
    return found | {WITHOUT_HINTS + name: values for name, values in own.items()}


def _measures(phase: TrainingPhase, weights: Array, heard: bool) -> dict[str, list[float]]:
    returns, scores = phase.judge(weights, heard)
    paid = np.asarray(returns, float)[:, :, 0]  # f64[seeds, episodes]
    found: dict[str, Any] = {"return_mean": paid.mean(1)}
    if "ceiling" in scores:
        ceiling = np.asarray(scores["ceiling"], float)[:, :, 0].mean(1)
        found["share_of_ceiling"] = paid.mean(1) / np.where(ceiling == 0, np.nan, ceiling)
    for name, value in scores.items():
        if name not in ("ceiling", "payoff"):
            found[name] = np.array([mean_ci95(row)[0] for row in np.asarray(value, float)[:, :, 0]])
    return {name: [float(x) for x in values] for name, values in found.items()}
