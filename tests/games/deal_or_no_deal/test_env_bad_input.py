"""Invalid options, actions, seeds and resets raise one sentence that says what is valid."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from kibitz.core.errors import BadInput
from kibitz.games.deal_or_no_deal.envs.gym_env import NegotiationEnv, NegotiationVectorEnv
from tests.games.deal_or_no_deal.envs import CONTEXT, ID, MODES, N, act, at_table, error_of, make
from tests.games.deal_or_no_deal.oracle import PROPOSE
from tests.twins import assert_same

BAD_OPTIONS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "an unknown option": ({"max_turn": 5}, ["max_turn", "max_turns"]),
    "an option nothing is like": ({"zebra": 5}, ["zebra", "max_turns"]),
    "counts of zero": ({"min_count": 0}, ["min_count", "0", "1"]),
    "no items at all": ({"max_count": 0}, ["max_count", "0", "1"]),
    "more items than heads are made for": ({"max_count": 8}, ["max_count", "8", "7"]),
    "counts the wrong way round": ({"min_count": 3, "max_count": 2}, ["min_count", "3", "max_count", "2"]),
    "no turns": ({"max_turns": 0}, ["max_turns", "0", "1"]),
    "half a turn": ({"max_turns": 2.5}, ["max_turns", "2.5", "integer"]),
    "turns as a word": ({"max_turns": "10"}, ["max_turns", "'10'", "integer"]),
    "a number for a flag": ({"disagree_ends": 1}, ["disagree_ends", "1", "boolean"]),
    "nonsense about who starts": ({"agent_starts": "me"}, ["agent_starts", "'me'", "boolean"]),
    "a kind of partner there is not": ({"partner": "gentle"}, ["gentle", "heuristic", "stubborn"]),
    "a mix with such a kind": ({"partner": {"gentle": 1.0}}, ["gentle", "heuristic", "stubborn"]),
    "a mix of nothing": ({"partner": {}}, ["mix"]),
    "a mix without weight": ({"partner": {"heuristic": 0.0}}, ["weight"]),
    "a mix with a weight below zero": ({"partner": {"heuristic": 1.0, "mirror": -1.0}}, ["weight"]),
    "a mix with a weight that is no number": (
        {"partner": {"heuristic": float("nan")}},
        ["partner.heuristic", "finite"],
    ),
    "a threshold above the whole": ({"partner_threshold": 1.5}, ["partner_threshold", "1.5", "1"]),
    "a range that falls": ({"partner_threshold": (0.7, 0.5)}, ["0.7", "0.5"]),
    "an insist threshold above the other": ({"insist_threshold": 0.9}, ["insist_threshold", "0.9", "0.55"]),
    "a budget of nothing": ({"points_budget": 0}, ["points_budget", "0", "1"]),
    "a data set there is not": ({"dataset": "chess"}, ["dataset", "chess", "self_play", "dialogues"]),
    "a path without use_dataset": ({"dataset_path": "x.txt"}, ["dataset_path", "use_dataset"]),
    "a data file there is not": ({"use_dataset": True, "dataset_path": "/no/where.txt"}, ["/no/where.txt"]),
    "an opponent there is not": ({"opponent": "oracle"}, ["oracle", "heuristic", "bayes", "partner:conceder"]),
    "another way with illegal acts": ({"illegal": "ignore"}, ["illegal", "ignore", "error", "penalty"]),
    "a penalty that is never charged": ({"illegal_penalty": 2.0}, ["illegal_penalty", "lose_turn", "penalty"]),
    "a penalty that is no number": ({"illegal_penalty": "high"}, ["illegal_penalty", "high", "number"]),
    "a penalty that is not finite": ({"illegal_penalty": float("nan")}, ["illegal_penalty", "nan", "number"]),
    "a penalty that is a reward": ({"illegal_penalty": -1.0}, ["illegal_penalty", "-1.0", "0"]),
    "another render mode": ({"render_mode": "human"}, ["human", "ansi"]),
}


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_an_invalid_option_is_named_with_valid_values(name: str) -> None:
    options, words = BAD_OPTIONS[name]
    sentence = error_of(lambda: NegotiationEnv(**options))
    assert all(word in sentence for word in words), sentence
    error_of(lambda: NegotiationVectorEnv(2, **options))


def test_an_invalid_option_is_named_through_gym_make_too() -> None:
    assert "max_turns" in error_of(lambda: gym.make(ID, max_turn=5))


BAD_ACTIONS: dict[str, Any] = {
    "nothing": None,
    "a number": 3,
    "a list": [0, 1, 1, 1],
    "no counts": {"act_type": 0},
    "no act": {"oA": [0, 0, 0]},
    "something more": {"act_type": 0, "oA": [0, 0, 0], "why": "because"},
    "two counts": {"act_type": 0, "oA": [0, 0]},
    "four counts": {"act_type": 0, "oA": [0, 0, 0, 0]},
    "a square of counts": {"act_type": 0, "oA": [[0, 0, 0]]},
    "half an item": {"act_type": 0, "oA": [0.5, 0, 0]},
    "no number of items": {"act_type": 0, "oA": [float("nan"), 0, 0]},
    "infinitely many items": {"act_type": 0, "oA": [float("inf"), 0, 0]},
    "counts as text": {"act_type": 0, "oA": "100"},
    "counts as words": {"act_type": 0, "oA": ["1", "0", "0"]},
    "an act in words": {"act_type": "PROPOSE", "oA": [0, 0, 0]},
    "an act as text": {"act_type": "0", "oA": [0, 0, 0]},
    "half an act": {"act_type": 0.5, "oA": [0, 0, 0]},
    "an act past the last": {"act_type": 5, "oA": [0, 0, 0]},
    "an act before the first": {"act_type": -1, "oA": [0, 0, 0]},
    "an act of nothing": {"act_type": None, "oA": [0, 0, 0]},
    "several acts": {"act_type": np.array([0, 1]), "oA": [0, 0, 0]},
}


@pytest.mark.parametrize("illegal", ["error", "penalty"])
@pytest.mark.parametrize("name", BAD_ACTIONS)
def test_an_action_of_the_wrong_shape_or_type_raises(name: str, illegal: str) -> None:
    env = make(illegal=illegal)
    before = at_table(env)
    sentence = error_of(lambda: env.step(BAD_ACTIONS[name]))
    assert "act_type" in sentence or "oA" in sentence
    assert env.step(act(PROPOSE, 4, 1, 2))[0]["turns_remaining"] == before[0]["turns_remaining"] - 2


BAD_BATCHES: dict[str, Any] = {
    "nothing": None,
    "a list": [0] * N,
    "no counts": {"act_type": np.zeros(N, int)},
    "one act for all": {"act_type": np.zeros(1, int), "oA": np.zeros((N, 3), int)},
    "counts of one for all": {"act_type": np.zeros(N, int), "oA": np.zeros((1, 3), int)},
    "counts in a row": {"act_type": np.zeros(N, int), "oA": np.zeros(3 * N, int)},
    "ragged counts": {"act_type": np.zeros(N, int), "oA": [[0, 0, 0], [0, 0], [0, 0, 0], [0]]},
    "fractions": {"act_type": np.zeros(N, int), "oA": np.full((N, 3), 0.5)},
    "words": {"act_type": np.array(["0"] * N), "oA": np.zeros((N, 3), int)},
    "flags": {"act_type": np.zeros(N, bool), "oA": np.zeros((N, 3), int)},
    "an act past the last": {"act_type": np.array([0, 5, 0, 0]), "oA": np.zeros((N, 3), int)},
    "an act before the first": {"act_type": np.array([-1, 0, 0, 0]), "oA": np.zeros((N, 3), int)},
    "something more": {"act_type": np.zeros(N, int), "oA": np.zeros((N, 3), int), "why": np.zeros(N)},
}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_a_batch_of_the_wrong_shape_or_type_raises(name: str) -> None:
    env = NegotiationVectorEnv(N, illegal="penalty")
    env.reset(seed=0)
    sentence = error_of(lambda: env.step(BAD_BATCHES[name]))
    assert "act_type" in sentence or "oA" in sentence


BAD_RESETS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "an unknown option": ({"contexts": CONTEXT}, ["contexts", "context", "agent_starts"]),
    "who starts without a context": ({"agent_starts": True}, ["agent_starts", "context"]),
    "no mapping": ({"context": [1, 2, 3]}, ["counts", "my_utilities", "partner_utilities"]),
    "a key missing": ({"context": {"counts": [1, 1, 1]}}, ["counts", "my_utilities", "partner_utilities"]),
    "a key too many": ({"context": CONTEXT | {"turns": 3}}, ["counts", "my_utilities", "partner_utilities"]),
    "counts of zero": ({"context": CONTEXT | {"counts": [4, 0, 2]}}, ["counts", "1", "4"]),
    "counts above the heads": ({"context": CONTEXT | {"counts": [5, 1, 2]}}, ["counts", "1", "4"]),
    "two counts": ({"context": CONTEXT | {"counts": [4, 1]}}, ["counts", "three"]),
    "ragged counts": ({"context": CONTEXT | {"counts": [[4], [1, 2], 3]}}, ["counts", "three"]),
    "utilities above ten": ({"context": CONTEXT | {"my_utilities": [11, 0, 0]}}, ["my_utilities", "0", "10"]),
    "utilities below zero": (
        {"context": CONTEXT | {"partner_utilities": [-1, 0, 0]}},
        ["partner_utilities", "0", "10"],
    ),
    "half a point": ({"context": CONTEXT | {"my_utilities": [0.5, 1, 1]}}, ["my_utilities", "whole"]),
    "flags for counts": ({"context": CONTEXT | {"counts": [True, True, True]}}, ["counts", "whole"]),
    "words": ({"context": CONTEXT | {"counts": "abc"}}, ["counts", "whole"]),
    "nonsense about who starts": ({"context": CONTEXT, "agent_starts": "me"}, ["agent_starts", "'me'", "true"]),
    "a number for who starts": ({"context": CONTEXT, "agent_starts": 1}, ["agent_starts", "1", "true"]),
    "no starter": ({"context": CONTEXT, "agent_starts": None}, ["agent_starts", "None", "true"]),
    "several start": ({"context": CONTEXT, "agent_starts": np.array([True, False])}, ["agent_starts", "true"]),
}


@pytest.mark.parametrize("name", BAD_RESETS)
def test_an_invalid_reset_option_is_named_and_the_episode_continues(name: str) -> None:
    options, words = BAD_RESETS[name]
    env = make()
    at_table(env)
    sentence = error_of(lambda: env.reset(seed=77, options=options))
    assert all(word in sentence for word in words), sentence
    assert env.step(act(PROPOSE, 4, 1, 0))[1] == 17.0


BAD_VECTOR_RESETS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "an unknown option": ({"options": {"context": CONTEXT}}, ["context", "reset_mask"]),
    "a mask that is a list": ({"options": {"reset_mask": [True, False]}}, ["reset_mask", "(4,)"]),
    "a mask of numbers": ({"options": {"reset_mask": np.array([1, 0, 1, 0])}}, ["reset_mask", "boolean"]),
    "a mask of another length": ({"options": {"reset_mask": np.array([True])}}, ["reset_mask", "(4,)"]),
    "an empty mask": ({"options": {"reset_mask": np.zeros(N, bool)}}, ["reset_mask", "True"]),
    "too few seeds": ({"seed": [1]}, ["1", "4", "seed"]),
    "a seed below zero among others": ({"seed": [1, 2, -1, 4]}, ["seed", "-1", "0"]),
    "a seed in words": ({"seed": "seven"}, ["seed", "seven"]),
    "half a seed": ({"seed": 0.5}, ["seed", "0.5"]),
}


@pytest.mark.parametrize("name", BAD_VECTOR_RESETS)
def test_an_invalid_reset_of_the_vector_environment_changes_nothing(name: str) -> None:
    arguments, words = BAD_VECTOR_RESETS[name]
    env, other = (NegotiationVectorEnv(N, autoreset_mode="Disabled") for _ in range(2))
    env.reset(seed=1)
    other.reset(seed=1)
    sentence = error_of(lambda: env.reset(**arguments))
    assert all(word in sentence for word in words), sentence
    assert_same(env.reset()[0], other.reset()[0])


@pytest.mark.parametrize("seed", [-1, "seven", 0.5])
def test_an_invalid_seed_is_refused_and_changes_nothing(seed: Any) -> None:
    env, other = make(), make()
    for one in (env, other):
        one.reset(seed=1)
    with pytest.raises((BadInput, gym.error.Error), match=r"(?i)seed"):
        env.reset(seed=seed)
    assert_same(env.reset()[0], other.reset()[0])


def test_the_first_reset_must_include_every_environment() -> None:
    env = NegotiationVectorEnv(N, autoreset_mode="Disabled")
    assert "reset_mask" in error_of(lambda: env.reset(options={"reset_mask": np.arange(N) > 0}))


@pytest.mark.parametrize("number", [0, -1, 1.5, "two", None])
def test_the_number_of_environments_is_a_positive_integer(number: Any) -> None:
    assert "num_envs" in error_of(lambda: NegotiationVectorEnv(number))


@pytest.mark.parametrize("mode", ["next_step", "Sometimes", 3, None])
def test_the_error_about_an_unknown_autoreset_mode_lists_the_modes(mode: Any) -> None:
    sentence = error_of(lambda: NegotiationVectorEnv(2, autoreset_mode=mode))
    assert all(word in sentence for word in ("autoreset", *MODES)), sentence
