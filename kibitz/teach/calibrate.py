"""`kibitz teach calibrate`: how a taught model's likelihoods become the probability that its act is the reference's.

Two numbers, a slope and an intercept on the log-odds, are fitted by logistic regression. They belong into a preset's
`games`. The positions come from seeds that no evaluation draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kibitz.advice.ask import PositionAsker
from kibitz.advice.quality import agrees, draw_positions, position
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.llm.answers.confidence import calibrated, log_odds
from kibitz.llm.presets import get_preset

FIRST_SEED = 1 << 40  # evaluations count their seeds from 0
BATCH = 8  # questions between two reports of progress
PRIOR = 1.0  # weight of slope 1 and intercept 0: keeps both finite where the model is always right
STEPS = 50  # of Newton's method, which needs about ten


def calibrate(
    game: Game,
    options: Any,
    model: str,
    states: int,
    opponent: str,
    seed: int = 0,
    progress: Callable[[int], None] = lambda count: None,
) -> dict[str, Any]:
    """The fitted numbers, and the Brier score on the same positions before and after."""
    settings = options.settings()
    preset = get_preset(model, game=game.name, settings=settings)
    if not preset.taught:
        raise BadInput(
            f"llm:{preset.name} is not a taught model of {game.name}, so its confidence cannot be calibrated."
        )
    settings, drawn = draw_positions(game, options, states, opponent, FIRST_SEED + seed)
    best = np.stack([np.asarray(head) for head in drawn.best], axis=1)
    acts, shares, kept = [], [], []
    with PositionAsker(game, preset.model_copy(update={"games": {}})) as asker:
        for first in range(0, states, BATCH):
            rows = range(first, min(first + BATCH, states))
            for row, advice in zip(rows, asker.ask(position(game, settings, drawn, i) for i in rows), strict=True):
                if advice.act is not None and advice.reply.likelihood:
                    acts.append(advice.act)
                    shares.append(math.prod(advice.reply.likelihood.values()))
                    kept.append(row)
            progress(len(rows))
    if not kept:
        raise BadInput(f"{model} answered none of {states} questions with log-probabilities; there is nothing to fit.")
    same = agrees(game, np.array(acts), best[kept])
    share = np.array(shares)
    slope, intercept = fit(share, same)
    after = np.array([calibrated(one, (slope, intercept)) for one in shares])
    return {
        "game": game.name,
        "model": preset.name,
        "states": len(kept),
        "calibration": [slope, intercept],
        "agreement": float(same.mean()),
        "confidence_before": float(share.mean()),
        "confidence_after": float(after.mean()),
        "brier_before": float(((share - same) ** 2).mean()),
        "brier_after": float(((after - same) ** 2).mean()),
    }


def fit(share: NDArray[Any], right: NDArray[np.bool_]) -> tuple[float, float]:
    """Logistic regression by Newton's method, drawn slightly towards the identity."""
    inputs = np.stack([[log_odds(float(one)) for one in share], np.ones(len(share))], axis=1)
    start = np.array([1.0, 0.0])
    numbers = start.copy()
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(-np.clip(inputs @ numbers, -30, 30)))
        slope = inputs.T @ (chance - right) + PRIOR * (numbers - start)
        curve = (inputs * (chance * (1 - chance))[:, None]).T @ inputs + PRIOR * np.eye(2)
        numbers = numbers - np.linalg.solve(curve, slope)
    return round(float(numbers[0]), 4), round(float(numbers[1]), 4)
