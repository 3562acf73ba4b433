"""Helpers that drive `CricketEnvironment` through tool calls."""

from __future__ import annotations

import random
from typing import Any

from kibitz.core.play.player import Choice, Turn
from kibitz.games.cricket.envs.tool_env import CricketAction, CricketEnvironment, CricketObservation


def begin(env: CricketEnvironment | None = None, **options: Any) -> tuple[CricketEnvironment, CricketObservation]:
    env = env or CricketEnvironment()
    return env, env.reset(options={"seed": 5, "max_overs": 2, "opponent_mode": "balanced"} | options)


def tool(obs: CricketObservation, name: str) -> dict[str, Any]:
    return next(entry for entry in obs.tools if entry["name"] == name)


def names(obs: CricketObservation) -> list[str]:
    return [entry["name"] for entry in obs.tools]


def call(env: CricketEnvironment, name: str, **arguments: Any) -> CricketObservation:
    return env.step(CricketAction(tool=name, arguments=arguments))


def ball(env: CricketEnvironment, obs: CricketObservation) -> CricketObservation:
    """Plays a ball: the last tool of each side."""
    return call(env, names(obs)[-1])


def open_values(entry: dict[str, Any]) -> list[str]:
    """The open values of the tool's argument; none if it takes none."""
    return [value for place in entry["arguments"]["properties"].values() for value in place["enum"]]


def any_legal(rng: random.Random, obs: CricketObservation) -> CricketAction:
    entry = rng.choice(obs.tools)
    arguments = {name: rng.choice(place["enum"]) for name, place in entry["arguments"]["properties"].items()}
    return CricketAction(tool=entry["name"], arguments=arguments)


def play_out(env: CricketEnvironment, obs: CricketObservation, seed: int = 0) -> list[CricketObservation]:
    """Makes random legal calls until the match is over."""
    rng, seen = random.Random(seed), [obs]
    while not seen[-1].done:
        seen.append(env.step(any_legal(rng, seen[-1])))
        assert seen[-1].error is None or "without a ball" in seen[-1].error
    return seen


class Scripted:
    """Plays a fixed list of acts."""

    name = "scripted"

    def __init__(self, acts: list[tuple[int, ...]]) -> None:
        self._acts = acts

    def begin(self, settings: Any, seat: int, luck: Any) -> None:
        """Keeps no memory."""

    def choose(self, turn: Turn) -> Choice:
        return Choice(self._acts[turn.number], self.name)
