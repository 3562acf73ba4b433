"""The generic environments, on the toy game; the conformance suite runs them on both built-in games."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from pydantic import Field

from kibitz.core.bots import seated
from kibitz.core.envs.both_seats import AGENTS, SeatsTable
from kibitz.core.envs.game_tool_env import GameEnvironment, reset_options, tool_environment
from kibitz.core.envs.gym_env import GameEnv
from kibitz.core.envs.gym_spaces import MaskableMultiDiscrete, flat_acts, flat_mask
from kibitz.core.envs.gym_vector import GameVectorEnv
from kibitz.core.envs.tool_env import action_of, models, tools
from kibitz.core.errors import BadInput
from kibitz.core.options import OPERATOR, Options, operator_options
from kibitz.core.play.episode import play_episode
from kibitz.core.play.player import BotPlayer
from kibitz.core.words import GENERIC, act_of_fields
from tests.train import toy
from tests.twins import play_beside

GAME = toy.game()
N = 4
WILD = {"illegal": "penalty", "illegal_penalty": 0.25, "rounds": 3, "opponent": "random"}


def make(**options: Any) -> GameEnv:
    return GameEnv(GAME, **options)


@pytest.mark.parametrize("options", [{}, {"rounds": 2, "opponent": {"oracle": 1, "random": 2}}, WILD])
def test_gymnasium_accepts_a_game_that_is_only_a_record(options: dict[str, Any]) -> None:
    check_env(make(**options), skip_render_check=True)  # it makes environments by their id to check that


def test_spaces_masks_and_measures_come_from_the_record() -> None:
    env = make(rounds=1)
    assert env.action_space == gymnasium.spaces.MultiDiscrete([2, 3])
    assert env.observation_space.shape == (3,)
    assert env.opponent is GAME.bot(GAME.default_players[1])
    observation, info = env.reset(seed=4)
    assert env.observation_space.contains(observation)
    assert info["action_mask"].tolist() == env.action_masks().tolist()
    lucky = int(observation[0])
    _, reward, over, cut, info = env.step([lucky, 0])
    assert over and not cut
    assert info["payoff"] == reward
    assert set(info) == {"action_mask", "illegal", "over", "payoff", "ceiling", "win_size"}


def test_samples_are_legal_through_whole_episodes() -> None:
    env = make()
    env.action_space.seed(1)
    for seed in range(20):
        env.reset(seed=seed)
        over = False
        while not over:
            _, _, over, _, _ = env.step(env.action_space.sample())


def illegal_stake(env: GameEnv) -> None:
    """A position in which stake 2 is illegal but matters."""
    seed = next(seed for seed in range(50) if env.reset(seed=seed)[1]["action_mask"].tolist() == [1, 1, 1, 1, 0])
    env.reset(seed=seed)


def test_an_illegal_act_becomes_legal_raises_or_costs_the_penalty() -> None:
    env = make(opponent="heuristic", illegal="error")
    illegal_stake(env)
    before = env.action_masks()
    with pytest.raises(BadInput, match=r"stake is 2, but only \[0, 1\] are legal now"):
        env.step([1, 2])
    assert (env.action_masks() == before).all()
    penalty = {"illegal": "penalty", "illegal_penalty": 0.25}
    for options, cost in (({}, 0.0), (penalty, 0.25)):
        results = {}
        for action in ([1, 0], [1, 2]):
            env = make(opponent="heuristic", **options)
            illegal_stake(env)
            results[action[1]] = env.step(action)
            assert results[action[1]][4]["illegal"] is (action[1] == 2)
        assert results[2][1] == results[0][1] - cost
        np.testing.assert_array_equal(results[2][0], results[0][0])


def test_gymnasium_adds_no_wrapper_that_would_hide_the_masks() -> None:
    env = gymnasium.make("kibitz:Kibitz/DealOrNoDeal-v0")
    env.reset(seed=0)
    assert env is env.unwrapped
    assert env.action_masks().shape == (20,)  # type: ignore[attr-defined]
    wrapped = gymnasium.wrappers.TimeLimit(gymnasium.wrappers.RecordEpisodeStatistics(env), 5)
    assert (wrapped.get_wrapper_attr("action_masks")() == env.action_masks()).all()  # type: ignore[attr-defined]


def test_the_generic_environment_of_a_game_loses_turns_as_its_rules_say() -> None:
    """The first legal act would be an offer to keep nothing, which every partner accepts."""
    env = gymnasium.make("kibitz:Kibitz/DealOrNoDeal-v0", agent_starts=True)
    env.reset(seed=0)
    _, _, over, _, info = env.step([2, 0, 0, 0])
    assert info["illegal"] is True and not over


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"round": 3}, "option of Kibitz/TwoArms-v0 'round'; did you mean 'rounds'"),
        ({"rounds": 0}, "'rounds' is 0"),
        ({"opponent": "unknown"}, "no player 'unknown'"),
        ({"illegal": "maybe"}, "'illegal' is 'maybe'"),
        ({"render_mode": "human"}, "no render mode 'human'"),
    ],
)
def test_errors_about_options_say_what_is_right(keywords: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        make(**keywords)


def test_errors_about_calls_say_what_is_right() -> None:
    env = make()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step([0, 0])
    with pytest.raises(BadInput, match="no option 'context'"):
        env.reset(options={"context": 1})
    env.reset(seed=0)
    for action in ([0], [0.5, 0], [2, 0], None):
        with pytest.raises(BadInput, match="should be"):
            env.step(action)
    with pytest.raises(BadInput, match="There is no game 'chess'"):
        GameEnv("chess")
    with pytest.raises(BadInput, match="does not render"):
        GameVectorEnv(2, GAME, render_mode="ansi")  # type: ignore[arg-type]


def test_rendering_shows_the_position_and_the_choices() -> None:
    env = make(render_mode="ansi")
    assert env.render() is None
    env.reset(seed=1)
    assert env.render() == "lucky 1, cap 2, left 4.\narm 0 or 1, stake 0 to 2"


@pytest.mark.parametrize("mode", [mode.value for mode in AutoresetMode])
def test_single_and_vector_environments_agree_step_by_step(mode: str) -> None:
    def choose(rng: np.random.Generator, now: dict[str, Any]) -> Any:
        return rng.integers(0, [2, 3], (N, 2))

    ours = GameVectorEnv(N, GAME, autoreset_mode=mode, **WILD)
    assert play_beside(ours, lambda: make(**WILD), choose, ("action_mask",), 40) > 20


def test_flat_acts_hold_every_act_once_and_their_mask_follows_the_heads() -> None:
    acts = flat_acts(GAME)
    assert acts is not None
    assert acts.tolist() == [[0, 0], [1, 0], [1, 1], [1, 2]]
    masks = np.array([True, True, False, True, False])
    assert flat_mask(acts, masks, GAME).tolist() == [True, False, True, False]


def test_a_game_with_one_head_has_one_flat_act_for_each_of_its_values() -> None:
    one = replace(GAME, heads=GAME.heads[:1], learning=replace(GAME.learning, matters=None), words=GENERIC)
    acts = flat_acts(one)
    assert acts is not None
    assert acts.tolist() == [[0], [1]]
    assert flat_mask(acts, np.array([False, True]), one).tolist() == [False, True]


class FileOptions(Options):
    path: str | None = Field(None, json_schema_extra={**OPERATOR, "examples": ["sides.yaml"]})


def test_an_option_for_the_operator_is_refused_whatever_else_its_schema_says() -> None:
    assert operator_options(FileOptions) == ["path"]
    with pytest.raises(BadInput, match="only the operator may set it"):
        reset_options(FileOptions).read({"path": "/etc/passwd"})


class FreeText(NamedTuple):
    limit: int = 80


def test_free_texts_and_ranges_among_the_answer_fields_do_no_harm() -> None:
    one = replace(GAME, heads=GAME.heads[:1], learning=replace(GAME.learning, matters=None), words=GENERIC)
    fields = {"arm": range(2), "reason": FreeText(), "confidence": [0.0, 1.0]}
    one = replace(one, words=replace(one.words, answer_fields=lambda view, masks: fields))
    environment = tool_environment(one)
    assert set(models(environment).action.model_fields) == {"arm"}
    masks = (np.ones(2, bool),)
    assert act_of_fields(one.heads, fields, masks, {"arm": 1, "reason": "why"}) == (1,)


def test_a_masked_multi_discrete_space_takes_concatenated_masks() -> None:
    space = MaskableMultiDiscrete([2, 3], seed=0)
    mask = np.array([0, 1, 1, 0, 1], np.int8)
    drawn = {tuple(space.sample(mask)) for _ in range(40)}
    assert drawn == {(1, 0), (1, 2)}


def test_both_seats_of_a_simultaneous_game_act_at_once() -> None:
    table = SeatsTable(GAME, None, {"rounds": 1})
    assert table.movers == []
    table.reset(3, None)
    assert table.movers == list(AGENTS)
    lucky = int(table.observation("agent_0")["observation"][0])
    acts = {agent: table.act_of(agent, action) for agent, action in zip(AGENTS, (lucky, 1 - lucky), strict=True)}
    table.play(acts)
    assert table.over and table.movers == []
    assert table.rewards() == {"agent_0": 2.0, "agent_1": 0.0}
    infos = table.infos()
    assert [infos[agent]["payoff"] for agent in AGENTS] == [2.0, 0.0]


class Toy:
    """The generic tool environment of the toy game."""

    environment: type[GameEnvironment] = tool_environment(GAME)
    action: Any = models(environment).action


def test_the_tool_environment_has_one_tool_with_an_argument_for_every_field() -> None:
    (tool,) = tools(Toy.environment)
    assert tool.name == "act"
    assert set(tool.input_schema["properties"]) == {"arm", "stake"}
    assert "0 to 2" in tool.input_schema["properties"]["stake"]["description"]
    assert action_of(Toy.environment, "act", {"arm": 1, "stake": 0}) == Toy.action(arm=1, stake=0)


@pytest.mark.parametrize("seed", range(4))
def test_the_tool_environment_plays_the_episodes_of_play_episode(seed: int) -> None:
    settings = seated(toy.ToyOptions().settings(), {1: GAME.bot("random")})
    players = [BotPlayer(GAME, GAME.bot(name)) for name in ("oracle", "random")]
    played = play_episode(GAME, settings, players, seed=seed)
    environment = Toy.environment()
    observation = environment.reset({"seed": seed, "opponent": "random"})
    total = observation.reward
    for event in played.events:
        if event.type == "decision" and event.payload["seat"] == 0:
            arm, stake = event.payload["act"]
            assert not observation.done
            observation = environment.step(Toy.action(arm=arm, stake=stake))
            total += observation.reward
    assert observation.done
    assert total == played.returns[0] == environment.state.total_reward
    assert observation.scores["payoff"] == played.scores["payoff"][0]
    assert environment.state.seed == seed
    json.dumps(observation.model_dump(mode="json"), allow_nan=False)


def test_an_illegal_act_changes_nothing_and_a_bot_replaces_the_third_in_a_row() -> None:
    environment = Toy.environment()
    first = environment.reset({"seed": 3})
    assert first.legal == {"arm": [0, 1], "stake": [0, 1]}
    for _ in range(2):
        refused = environment.step(Toy.action(arm=1, stake=2))
        assert "is illegal now; legal choices: arm 0 or 1, stake 0 or 1" in refused.error
        assert refused.model_copy(update={"error": None, "metadata": first.metadata}) == first
    third = environment.step(Toy.action(arm=1, stake=2))
    assert third.played_for_you == "arm 0, stake 0"
    assert len(third.history) == 2
    state = environment.state
    assert (state.illegal_acts, state.played_for_you, state.step_count, state.seed) == (3, 1, 1, None)


@pytest.mark.parametrize("options", [{"colour": 1}, {"rounds": 0}, {"opponent": "unknown"}, {"seed": -1}])
def test_invalid_options_of_reset_keep_the_running_episode(options: dict[str, Any]) -> None:
    environment = Toy.environment()
    with pytest.raises(BadInput, match="reset first"):
        environment.step(Toy.action(arm=0, stake=0))
    before = environment.reset({"seed": 1})
    with pytest.raises(BadInput, match=r"\.$"):
        environment.reset(options)
    refused = environment.step(Toy.action(arm=9, stake=0))
    assert refused.model_copy(update={"error": None, "metadata": before.metadata}) == before
