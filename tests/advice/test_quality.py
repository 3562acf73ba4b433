"""`kibitz hints evaluate`: the scores mean what they say."""

from __future__ import annotations

import json

import numpy as np
import pytest

from kibitz.advice.hint_scores import evaluate_hints
from kibitz.advice.quality import draw_positions, position
from kibitz.core.errors import BadInput
from kibitz.games import get_game
from tests.advice.conftest import KEY, Prompts

GAME = get_game("deal_or_no_deal")
STATES = 64  # the same everywhere, so that they share compiled programs


@pytest.mark.conformance
def test_the_reference_as_a_source_is_perfect_and_random_is_not() -> None:
    best = evaluate_hints(GAME, GAME.options(), "expert", STATES)
    assert (best["agreement"], best["hint_regret_mean"], best["distance"], best["brier"]) == (1.0, 0.0, 0.0, 0.0)
    poor = evaluate_hints(GAME, GAME.options(), "random", STATES)
    assert poor["legal_share"] == 1.0
    assert poor["agreement"] < 0.3
    assert best["agreement_or_same_return"] == 1.0
    assert poor["agreement"] < poor["agreement_or_same_return"] < 0.5
    assert poor["hint_regret_mean"] > 3
    assert poor["brier"] == pytest.approx(1 - poor["agreement"])
    assert poor == evaluate_hints(GAME, GAME.options(), "random", STATES)


@pytest.mark.conformance
def test_a_position_comes_with_the_dialogue_that_led_to_it() -> None:
    settings, drawn = draw_positions(GAME, GAME.options(), STATES, "heuristic", 1)
    lengths = set()
    for i in range(STATES):
        asked = position(GAME, settings, drawn, i)
        theirs = [entry["act"] for entry in asked.history if entry["seat"] == 1]
        lengths.add(len(asked.history))
        assert (int(asked.view.other_act) < 5) == bool(theirs)
        if theirs and theirs[-1][0] in (0, 1):
            left = np.array(asked.view.counts) - np.array(theirs[-1][1:])
            assert left.tolist() == np.array(asked.view.offer_for_me).tolist()
    assert len(lengths) > 3


@pytest.mark.conformance
def test_the_score_of_a_model_includes_failures_and_cost(prompts: Prompts) -> None:
    found = evaluate_hints(GAME, GAME.options(), "llm:fake-good", STATES)
    assert 0 < found["legal_share"] < 1  # it always keeps 1, 0 and 2, which not every pool allows
    assert found["failures"] == {"illegal": found["failed"]}
    assert found["legal_share"] == pytest.approx(1 - found["failed"] / STATES)
    assert found["confidence_mean"] == pytest.approx(0.7)
    assert found["calls"] == len(prompts()) == len(set(prompts()))
    assert found["money"] == pytest.approx(found["calls"] * 340e-6, rel=0.01)
    assert found["latency_median_s"] > 0
    assert KEY not in json.dumps(found)


@pytest.mark.conformance
@pytest.mark.usefixtures("presets")
def test_an_unreachable_model_gives_a_result_not_an_error() -> None:
    found = evaluate_hints(GAME, GAME.options(), "llm:refused", STATES)
    assert (found["legal_share"], found["failed"], found["agreement"], found["hint_regret_mean"]) == (
        0.0,
        STATES,
        None,
        None,
    )
    json.dumps(found, allow_nan=False)


def test_unknown_sources_and_opponents_are_refused() -> None:
    with pytest.raises(BadInput, match="no hint source 'nobody'"):
        evaluate_hints(GAME, GAME.options(), "nobody", 5)
    with pytest.raises(BadInput, match="'human' cannot be compiled"):
        evaluate_hints(GAME, GAME.options(), "random", 5, "human")
    with pytest.raises(BadInput, match="at least 1"):
        evaluate_hints(GAME, GAME.options(), "random", 0)
