"""Helpers for the tests of `DealOrNoDialog-v0`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import kibitz
from kibitz.games.deal_or_no_deal.envs.gym_env import NegotiationEnv
from tests.games.deal_or_no_deal.oracle import PROPOSE

ID = "kibitz:DealOrNoDialog-v0"
N = 4  # environments in every vector: each number is compiled separately
MODES = ["NextStep", "SameStep", "Disabled"]
HEAVY = pytest.mark.conformance  # for options that need programs of their own, seconds to compile each
# the pool of test_rules: worth 20 points to the partner, 19 to the agent
CONTEXT = {"counts": [4, 1, 2], "my_utilities": [3, 5, 1], "partner_utilities": [1, 4, 6]}


def make(**options: Any) -> NegotiationEnv:
    env = gym.make(ID, **options).unwrapped
    assert isinstance(env, NegotiationEnv)
    return env


def act(act_type: int, *keep: int) -> dict[str, Any]:
    return {"act_type": act_type, "oA": np.array(keep or (0, 0, 0))}


def at_table(env: NegotiationEnv, agent_starts: bool = True) -> tuple[dict[str, Any], dict[str, Any]]:
    return env.reset(seed=0, options={"context": CONTEXT, "agent_starts": agent_starts})


def error_of(call: Callable[[], object]) -> str:
    """The sentence of a kibitz.BadInput, which is a ValueError."""
    with pytest.raises(kibitz.BadInput) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    sentence = str(caught.value)
    assert "\n" not in sentence and sentence[-1] in ".?" and len(sentence) > 20
    return sentence


def claim_all(infos: dict[str, Any]) -> dict[str, Any]:
    """A claim to the whole pool, which no partner accepts, in every environment."""
    return {"act_type": np.full(N, PROPOSE), "oA": infos["oA_max"].copy()}
