"""A trained policy in the other seat of a Gymnasium environment, alone and in a mix."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from kibitz.core.errors import BadInput
from kibitz.core.play.resolve import bot_for
from kibitz.games import deal_or_no_deal
from kibitz.games.deal_or_no_deal.envs.gym_env import NegotiationVectorEnv
from kibitz.players import player_named
from kibitz.train.config import HintOptions, Job
from kibitz.train.opponents import adviser_for, opponent_for
from kibitz.train.phase import build
from kibitz.train.run import checkpoint
from tests.games.deal_or_no_deal.envs import ID, N, make
from tests.games.deal_or_no_deal.test_env_vector import random_actions
from tests.twins import play_beside


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of an untrained policy: the initial network is a policy too."""
    folder: Path = tmp_path_factory.mktemp("runs") / "fresh"
    job = Job.read({"env": {"id": ID.partition(":")[2]}, "train": {"hidden": [8]}})
    phase = build(job, tuple(jax.local_devices()[:1]))
    checkpoint.write(folder / "checkpoints", phase.begin(), 0, phase.game, job.model_dump(mode="json"))
    return f"policy:{folder}"


def test_a_policy_plays_the_same_as_opponent_and_in_evaluation(policy: str) -> None:
    env = make(opponent=policy)
    assert env.opponent.name == policy
    assert env.opponent is bot_for(deal_or_no_deal.game(), policy)
    check_env(env, skip_render_check=True)


def test_the_expert_sits_in_an_environment_as_in_training() -> None:
    game = deal_or_no_deal.game()
    assert make(opponent="expert").opponent is game.bot("bayes")
    job = Job.read({"env": {"id": ID.partition(":")[2]}, "opponent": "expert"})
    assert opponent_for(job, game) is game.bot("bayes")
    assert gym.make("kibitz:Cricket-v0", opponent={"expert": 1.0}).unwrapped.opponent.name  # type: ignore[attr-defined]
    assert player_named(game, "expert").name == "expert"


def test_hints_expert_says_who_advises(policy: str) -> None:
    game, run = deal_or_no_deal.game(), policy.removeprefix("policy:")
    advisers = {
        "auto": ({}, "bayes"),
        "reference": ({}, "bayes"),
        "greedy": ({}, "partner:heuristic"),
        "checkpoint": ({"checkpoint": run}, policy),
    }
    for expert, (more, name) in advisers.items():
        hints = HintOptions.read({"mode": "expert", "expert": expert, **more})
        bot, advice = adviser_for(hints, game)
        assert bot is not None and bot.name == name and name.removeprefix("policy:") in advice
    bot, _ = adviser_for(HintOptions.read({"mode": "expert", "checkpoint": run}), game)
    assert bot is not None and bot.name == policy, "auto prefers the checkpoint"
    bare = replace(game, bots={"random": game.bots["random"], "bayes": game.bots["bayes"]}, greedy="")
    with pytest.raises(BadInput, match="no greedy player"):
        adviser_for(HintOptions.read({"mode": "expert", "expert": "greedy"}), bare)


@pytest.mark.conformance
def test_single_and_vector_environments_agree_about_a_mix_with_a_policy(policy: str) -> None:
    options: dict[str, Any] = {"opponent": {policy: 2.0, "heuristic": 1.0, "random": 1.0}}

    def choose(rng: np.random.Generator, now: dict[str, Any]) -> dict[str, Any]:
        return random_actions(rng, now["action_mask"], now["oA_max"])

    ours = NegotiationVectorEnv(N, **options)
    assert play_beside(ours, lambda: make(**options), choose, ("action_mask", "oA_max"), 120) > 30


def test_a_policy_trained_with_other_options_is_refused(policy: str) -> None:
    with pytest.raises(BadInput, match="use the options it was trained with"):
        make(opponent=policy, max_count=7)
    with pytest.raises(BadInput, match="does not fit cricket"):
        gym.make("kibitz:Cricket-v0", opponent=policy)


@pytest.mark.conformance
def test_captains_can_be_mixed() -> None:
    env = gym.make("kibitz:Cricket-v0", opponent={"balanced": 1.0, "aggressive": 1.0}, max_overs=1)
    _, info = env.reset(seed=3)
    over = False
    while not over:
        _, _, over, _, info = env.step(env.action_space.sample())
    assert info["innings"] == 2
