"""Random and malformed tool calls: none raises or stalls, and every answer lists the legal calls."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from kibitz.games.cricket.captains.tool_calls import TOOLS
from kibitz.games.cricket.envs.tool_env import CricketAction, CricketEnvironment, CricketObservation
from tests.games.cricket.tool_calls import any_legal

ODD: list[Any] = [
    None, True, 0, -1, 3.5, float("nan"), 10**400, "", " ", "slog", "SLOG ", "yorker", "death", "\x00",
    "é" * 50, "a" * 5000, [], ["slog"], {}, {"intent": "slog"}, ("x",), b"bytes", object(), {1: 2},
    {None: None}, set(), lambda: None,
]  # fmt: skip
NAMES = [*TOOLS, "reset", "PLAY_DELIVERY", "play-delivery", "__class__", "", "tool", "set_batting_plan "]
KEYS = ["intent", "plan", "field", "bowler", "batter", "", "tool", "self", 7, None]


def nonsense(rng: random.Random) -> Any:
    """A valid action, a malformed action, or anything else."""
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice(ODD)
    arguments: Any = {rng.choice(KEYS): rng.choice(ODD) for _ in range(rng.randrange(3))}
    if kind == 1:
        return {"tool": rng.choice(ODD), "arguments": rng.choice(ODD)}
    if kind == 2:
        return {"tool": rng.choice(NAMES), "arguments": rng.choice(ODD), rng.choice(["x", "metadata"]): 1}
    if kind == 3:
        return {"tool": rng.choice(NAMES), "arguments": arguments}
    named = {str(key): value for key, value in arguments.items()}
    return CricketAction(tool=rng.choice(NAMES), arguments=named)


def check(before: CricketObservation, after: CricketObservation, env: CricketEnvironment) -> None:
    """The call worked, or the answer says why not; either way it lists the legal calls."""
    assert after.done == env.state.match_over
    if after.done:
        assert after.tools == []
        return
    assert after.tools[-1]["advances"]
    assert after.tools[0]["name"] == "analyze_situation"
    assert all(tool["arguments"]["type"] == "object" for tool in after.tools)
    assert after.turn - before.turn in (0, 1)
    if after.turn == before.turn:
        assert after.calls_left == before.calls_left - 1
        assert after.scoreboard == before.scoreboard
    else:
        assert after.calls_left == 3
    if after.error is not None:
        assert len(after.error) < 1000
        assert after.turn == before.turn or "standing plan" in after.error
        assert after.turn == before.turn + 1 or after.plans == before.plans


def fuzz(calls: int, seed: int) -> int:
    """Makes mostly malformed calls, in as many matches as it takes; returns the number of refused calls."""
    rng, env = random.Random(seed), CricketEnvironment()
    refused = 0

    def fresh() -> CricketObservation:
        options = {"seed": rng.randrange(2**40), "max_overs": rng.choice([1, 2, 5, 20]), "opponent_mode": "random"}
        return env.reset(options=options | {"random_start": rng.random() < 0.5})

    obs, slowest = fresh(), 0.0
    for _ in range(calls):
        action = any_legal(rng, obs) if rng.random() < 0.3 else nonsense(rng)
        began = time.perf_counter()
        after = env.step(action)
        slowest = max(slowest, time.perf_counter() - began)
        check(obs, after, env)
        refused += after.error is not None
        obs = fresh() if after.done else after
    assert slowest < 60  # a compilation at worst
    return refused


@pytest.mark.conformance
def test_ten_thousand_random_and_malformed_calls_are_all_answered() -> None:
    assert fuzz(10_000, seed=2) > 4_000
