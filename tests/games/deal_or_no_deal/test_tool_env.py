"""The negotiation for agents that call tools."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from kibitz.core.bots import seated
from kibitz.core.envs.tool_env import models, tools
from kibitz.core.errors import BadInput, NotFound
from kibitz.core.play.episode import play_episode
from kibitz.core.play.player import BotPlayer
from kibitz.core.play.resolve import PlayerKind
from kibitz.core.registry import PLAYERS, registered
from kibitz.games import get_environment, get_game
from kibitz.games.deal_or_no_deal.envs.tool_env import (
    NegotiationAction,
    NegotiationEnvironment,
    NegotiationObservation,
    NegotiationState,
)
from kibitz.games.deal_or_no_deal.options import NegotiationOptions

GAME = "deal_or_no_deal"
TOO_MUCH = NegotiationAction(act_type=0, oA=[9, 9, 9])


def test_the_registry_returns_the_environment_and_annotations_name_its_models() -> None:
    assert get_environment(GAME) is NegotiationEnvironment
    assert models(NegotiationEnvironment) == (NegotiationAction, NegotiationObservation, NegotiationState)
    assert [tool.name for tool in tools(NegotiationEnvironment)] == ["propose", "insist", "agree", "disagree", "end"]
    with pytest.raises(BadInput, match="chess"):
        get_environment("chess")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("opponent", ["heuristic", "partner:conceder"])
def test_the_environment_plays_the_episodes_of_play_episode(seed: int, opponent: str) -> None:
    game = get_game(GAME)
    settings = seated(NegotiationOptions().settings(), {1: game.bot(opponent)})
    players = [BotPlayer(game, game.bot("heuristic")), BotPlayer(game, game.bot(opponent))]
    played = play_episode(game, settings, players, seed=seed)
    environment = NegotiationEnvironment()
    observation = environment.reset({"seed": seed, "opponent": opponent})
    total = observation.reward
    for event in played.events:
        if event.type == "decision" and event.payload["seat"] == 0:
            act_type, *kept = event.payload["act"]
            observation = environment.step(NegotiationAction(act_type=act_type, oA=kept))
            total += observation.reward
    assert observation.done and observation.result is not None
    assert total == played.returns[0]
    assert observation.result.payoffs == list(np.asarray(played.scores["payoff"]))


def test_an_illegal_act_changes_nothing_and_the_heuristic_replaces_the_third_in_a_row() -> None:
    environment = NegotiationEnvironment()
    first = environment.reset({"seed": 1, "agent_starts": True})
    agree = environment.step(NegotiationAction(act_type=2))
    assert agree.error is not None and "AGREE" in agree.error
    assert agree.model_copy(update={"error": None, "metadata": first.metadata}) == first
    assert environment.step(TOO_MUCH).history == []
    third = environment.step(TOO_MUCH)
    assert third.played_for_you is not None and third.history[0] == f"You: {third.played_for_you}"
    state = environment.state
    assert (state.illegal_acts, state.played_for_you, state.step_count) == (3, 1, 1)


def test_a_legal_act_resets_the_count_of_illegal_ones() -> None:
    environment = NegotiationEnvironment()
    shown = environment.reset({"seed": 1, "agent_starts": True, "opponent": "partner:stubborn"})
    for _ in range(2):
        assert environment.step(TOO_MUCH).played_for_you is None
        assert environment.step(TOO_MUCH).played_for_you is None
        environment.step(NegotiationAction(act_type=0, oA=shown.counts))
    assert environment.state.played_for_you == 0


def test_an_agent_that_only_plays_illegal_acts_reaches_the_end() -> None:
    environment = NegotiationEnvironment()
    done, steps = environment.reset({"seed": 2}).done, 0
    while not done:
        done, steps = environment.step(TOO_MUCH).done, steps + 1
    assert steps <= 3 * 10


def test_the_partners_utilities_and_the_seed_stay_hidden_until_the_end() -> None:
    context = {"counts": [1, 2, 3], "my_utilities": [4, 3, 0], "partner_utilities": [1, 3, 1]}
    other = context | {"partner_utilities": [9, 0, 1]}
    seen = []
    for given in (context, other):
        environment = NegotiationEnvironment()
        seen.append(environment.reset({"seed": 3, "context": given, "agent_starts": True}))
        assert environment.state.seed is None
    assert seen[0] == seen[1]
    open_table = NegotiationEnvironment().reset({"context": other, "reveal_partner_utilities": True})
    assert open_table.partner_utilities == [9, 0, 1]
    environment.step(NegotiationAction(act_type=3))
    assert environment.state.seed == 3


def test_every_observation_is_valid_json() -> None:
    environment = NegotiationEnvironment()
    for seed in range(10):
        shown = environment.reset({"seed": seed, "opponent": "random"})
        while not shown.done:
            kept = [count - (i == 0) for i, count in enumerate(shown.counts)]
            shown = environment.step(NegotiationAction(act_type=1, oA=kept))
        assert shown.legal_acts == []
        json.dumps(shown.model_dump(mode="json"), allow_nan=False)


@pytest.mark.parametrize(
    "options",
    [
        {"colour": 1},
        {"dataset_path": "/etc/passwd"},
        {"use_dataset": True},
        {"opponent": "policy:runs/x"},
        {"max_turns": 0},
        {"seed": True},
        {"context": {"counts": [1, 1, 1]}},
        {"partner": {"unknown": 1.0}},
    ],
)
def test_invalid_options_are_refused_and_the_running_episode_continues(options: dict[str, Any]) -> None:
    environment = NegotiationEnvironment()
    before = environment.reset({"seed": 1})
    with pytest.raises(BadInput, match=r"\.$"):
        environment.reset(options)
    after = environment.step(TOO_MUCH).model_copy(update={"error": None, "metadata": before.metadata})
    assert after == before


def test_a_step_without_a_running_episode_raises() -> None:
    environment = NegotiationEnvironment()
    with pytest.raises(BadInput, match="reset"):
        environment.step(TOO_MUCH)
    environment.reset({"seed": 1})
    environment.step(NegotiationAction(act_type=3))
    with pytest.raises(BadInput, match="over"):
        environment.step(TOO_MUCH)
    for wrong in ({"act_type": 5}, {"act_type": True}, {"act_type": 0, "oA": [1]}, {"act_type": 0, "x": 1}):
        with pytest.raises(ValidationError):
            NegotiationAction.model_validate(wrong)


def test_any_kind_of_player_may_be_the_opponent_and_the_heuristic_replaces_one_that_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Mute:
        name = "mute:test"

        def begin(self, settings: Any, seat: int, luck: Any) -> None:
            pass

        def choose(self, turn: Any) -> Any:
            raise ConnectionError("no answer")

    class Entry:
        def load(self) -> PlayerKind:
            return PlayerKind(make=lambda game, name, resolver: Mute(), placeholder="NAME")

    monkeypatch.setitem(registered(PLAYERS), "mute", Entry())  # type: ignore[arg-type]
    env = NegotiationEnvironment()
    mute = env.reset({"seed": 3, "agent_starts": False, "opponent": "mute:test"})
    assert env.state.opponent == "mute:test"
    assert mute.history == env.reset({"seed": 3, "agent_starts": False}).history
    with pytest.raises(BadInput, match="human"):
        env.reset({"opponent": "human"})
    with pytest.raises(NotFound, match="no preset"):
        env.reset({"opponent": "llm:unknown"})
