"""A fitted calibration is better than none, and comes from positions that no evaluation draws."""

from __future__ import annotations

import numpy as np
import pytest

from kibitz.advice.quality import agrees
from kibitz.core.errors import BadInput
from kibitz.games import get_game
from kibitz.llm.answers.confidence import calibrated
from kibitz.teach.calibrate import FIRST_SEED, calibrate, fit


def test_the_fit_recovers_the_map_that_made_the_data() -> None:
    chance = np.random.default_rng(0)
    share = chance.uniform(0.05, 0.95, 20_000)
    true = np.array([calibrated(float(one), (1.5, 0.7)) for one in share])
    slope, intercept = fit(share, chance.uniform(size=share.size) < true)
    assert (slope, intercept) == (pytest.approx(1.5, abs=0.1), pytest.approx(0.7, abs=0.1))


def test_the_fit_stays_finite_where_the_model_is_always_right() -> None:
    slope, intercept = fit(np.array([0.3, 0.6, 1.0]), np.ones(3, bool))
    assert 0 < slope < 10
    assert 0 < intercept < 10


def test_an_act_agrees_on_the_heads_that_matter() -> None:
    game = get_game("deal_or_no_deal")
    acts, best = (
        np.array([[2, 1, 1, 1], [1, 1, 1, 1], [1, 0, 0, 1]]),
        np.array([[2, 0, 0, 0], [1, 1, 1, 0], [1, 0, 0, 1]]),
    )
    assert agrees(game, acts, best).tolist() == [True, False, True]


def test_a_model_that_was_not_taught_cannot_be_calibrated() -> None:
    game = get_game("deal_or_no_deal")
    with pytest.raises(BadInput, match="llm:embedded is not a taught model of deal_or_no_deal"):
        calibrate(game, game.default_options, "embedded", 10, "heuristic")
    assert FIRST_SEED > 2**32
