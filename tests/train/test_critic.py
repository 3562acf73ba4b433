"""A value estimate that sees both seats while it learns, and acts that never do."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kibitz.core.errors import BadInput
from kibitz.evaluate.match import play_bots
from kibitz.train.config import Job
from kibitz.train.network import Policy, Shape, flatten, new_policy, weight_count
from kibitz.train.opponents import bot_of_run
from kibitz.train.phase import build
from tests.train import toy
from tests.train.conftest import tiny_job
from tests.train.test_learning import toy_changes

OWN, OTHERS, GAMES = 5, 3, 7
SHAPE = Shape((6, 4), autoregressive=True, critic_features=OTHERS)


def policy() -> Policy:
    game: Any = SimpleNamespace(sizes=(2, 3), matters=np.ones((2, 2)))
    return new_policy(game, OWN, SHAPE, jax.random.key(0))


def test_acts_depend_on_the_own_features_alone_and_values_on_both() -> None:
    features = jax.random.normal(jax.random.key(1), (OWN + OTHERS, GAMES))
    changed = features.at[OWN:].add(1.0)
    act = (jnp.zeros(GAMES, jnp.int32),) * 2
    (logits, value), (same, other_value), (alone, _) = (policy()(x, act) for x in (features, changed, features[:OWN]))
    for head in range(2):
        np.testing.assert_array_equal(logits[head], same[head])
        np.testing.assert_array_equal(logits[head], alone[head])
    assert (jnp.abs(value - other_value) > 1e-3).all()


def test_the_size_of_the_network_is_known_before_it_is_built() -> None:
    assert flatten(policy()).vector.shape == (weight_count(OWN, SHAPE, (2, 3)),)


def test_a_learner_whose_critic_saw_both_seats_plays_from_its_own(train: Callable[..., Any]) -> None:
    changes = toy_changes("ppo")
    folder, summary = train("both", **{**changes, "train": {**changes["train"], "critic": "both"}})
    assert summary["share_of_ceiling"][0] > 0.97
    game = toy.build(False)
    bots = bot_of_run(str(folder), game), game.bot("heuristic")
    played = play_bots(game, game.default_options.settings(), bots, 64, 3, lambda count: None)
    assert played.returns[:, 0].mean() > 0.97 * played.scores["ceiling"][:, 0].mean()


def test_only_ppo_has_a_critic() -> None:
    job = tiny_job(algo="reinforce", train={"critic": "both"})
    with pytest.raises(BadInput, match="critic is both but algo is reinforce; remove"):
        build(job, tuple(jax.devices()[:1]))


@pytest.mark.conformance
@pytest.mark.optimised
def test_a_critic_that_sees_the_partners_values_explains_more() -> None:
    explained = {}
    for critic in ("own", "both"):
        train = {
            "num_envs": 64,
            "rollout": 32,
            "minibatch": 512,
            "lr": 3e-3,
            "critic": critic,
            "ent": 0.03,
            "gamma": 1.0,
        }
        phase = build(Job.read({"env": {"id": "DealOrNoDialog-v0"}, "train": train}), tuple(jax.devices()[:1]))
        learner, _ = phase.advance(phase.begin(), phase.settings, 60)
        _, metrics = phase.advance(learner, phase.settings, 20)
        explained[critic] = float(metrics["explained_variance"][0])
    assert explained["both"] > explained["own"] + 0.02
