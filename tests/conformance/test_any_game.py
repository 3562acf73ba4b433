"""The generic environments of every built-in game under Gymnasium's and PettingZoo's own suites."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test

from kibitz.core.envs.both_seats import AGENTS
from kibitz.core.envs.gym_env import GameEnv
from kibitz.core.envs.gym_vector import GameVectorEnv
from kibitz.core.envs.pettingzoo_env import aec_env, parallel_env
from tests.train import toy
from tests.twins import play_beside

pytestmark = pytest.mark.conformance

N = 4
GAMES: dict[str, tuple[Any, dict[str, Any]]] = {
    "two_arms": (toy.game(), {"rounds": 5}),
    "deal_or_no_deal": ("deal_or_no_deal", {"max_turns": 6}),
    "cricket": ("cricket", {"max_overs": 1}),
}


IDS = {"deal_or_no_deal": "kibitz:Kibitz/DealOrNoDeal-v0", "cricket": "kibitz:Kibitz/Cricket-v0"}


@pytest.mark.parametrize("name", IDS)
def test_gymnasium_accepts_the_environment_that_every_registered_game_has(name: str) -> None:
    env = gymnasium.make(IDS[name], **GAMES[name][1]).unwrapped
    assert type(env) is GameEnv
    check_env(env)
    many = gymnasium.make_vec(IDS[name], N, vectorization_mode="vector_entry_point", **GAMES[name][1])
    assert type(many) is GameVectorEnv
    assert many.single_observation_space == env.observation_space


@pytest.mark.parametrize("name", GAMES)
def test_the_generic_single_and_vector_environments_agree_step_by_step(name: str) -> None:
    game, options = GAMES[name]
    options = {**options, "illegal": "penalty"}
    ours = GameVectorEnv(N, game, **options)

    def choose(rng: np.random.Generator, now: dict[str, Any]) -> Any:
        return rng.integers(0, ours.game.sizes, (N, len(ours.game.sizes)))

    assert play_beside(ours, lambda: GameEnv(game, **options), choose, ("action_mask",), 60) > 8


# Observations are the Dict that PettingZoo's documentation asks of masked environments; its suite warns about it,
# about MultiDiscrete actions, and about the toy game's last observation, which is zero.
@pytest.mark.filterwarnings("ignore:Observation numpy array is all zeros:UserWarning")
@pytest.mark.filterwarnings("ignore:Action space for each agent probably should be:UserWarning")
@pytest.mark.filterwarnings("ignore:Observation is not a NumPy array:UserWarning")
@pytest.mark.filterwarnings("ignore:Observation space for each agent probably should be:UserWarning")
@pytest.mark.parametrize("name", GAMES)
def test_pettingzoo_accepts_both_generic_environments(name: str) -> None:
    game, options = GAMES[name]
    api_test(aec_env(game, **options), num_cycles=50)
    parallel_api_test(parallel_env(game, **options), num_cycles=50)
    seed_test(lambda: aec_env(game, **options), num_cycles=50)
    parallel_seed_test(lambda: parallel_env(game, **options), num_cycles=50)  # samples without masks


@pytest.mark.parametrize("name", GAMES)
def test_the_aec_and_the_parallel_environment_play_the_same_episodes(name: str) -> None:
    game, options = GAMES[name]
    for seed in range(3):
        both, alone = parallel_env(game, **options), aec_env(game, **options)
        observations, infos = both.reset(seed=seed)
        alone.reset(seed=seed)
        rng = np.random.default_rng(seed)
        while both.agents:
            movers = [agent for agent in AGENTS if infos[agent]["to_move"]]
            actions = {agent: legal_action(both, agent, observations[agent], rng) for agent in AGENTS}
            for agent in movers:
                assert alone.agent_selection == agent
                np.testing.assert_array_equal(alone.observe(agent)["observation"], observations[agent]["observation"])
                alone.step(actions[agent])
            observations, rewards, ends, _, infos = both.step(actions)
            assert alone.rewards == rewards
            assert alone.terminations == ends
        assert alone.infos.keys() == infos.keys()


def legal_action(env: Any, agent: str, observation: dict[str, Any], rng: np.random.Generator) -> Any:
    space = env.action_space(agent)
    space.seed(int(rng.integers(2**31)))
    return space.sample(observation["action_mask"])
