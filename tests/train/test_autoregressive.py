"""Heads that see the values chosen before them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from kibitz.core import act as acts
from kibitz.core.errors import BadInput
from kibitz.evaluate.match import play_bots
from kibitz.train.network import Policy, Shape, flatten, new_policy, weight_count
from kibitz.train.opponents import bot_of_run
from tests.train import toy
from tests.train.conftest import merged, tiny_job
from tests.train.test_learning import toy_changes

TOY = toy.build(False)
SIZES = (2, 3, 2)
MATTERS = np.array([[True, True, True], [True, False, False]])
FEATURES = 4
EVERY_ACT = np.array(list(itertools.product(*map(range, SIZES)))).T  # i64[heads, acts]
DRAWS = 20_000


def policy_of(
    features: int, hidden: tuple[int, ...], sizes: tuple[int, ...], autoregressive: bool = True, matters: Any = None
) -> Policy:
    game: Any = SimpleNamespace(sizes=sizes, matters=np.ones((sizes[0], len(sizes))) if matters is None else matters)
    return new_policy(game, features, Shape(hidden, autoregressive), jax.random.key(0))


def far_from_uniform() -> Policy:
    flat = flatten(policy_of(FEATURES, (6,), SIZES))
    policy: Policy = flat.rebuild(flat.vector + jax.random.normal(jax.random.key(1), flat.vector.shape))
    return policy


def the_same(count: int) -> tuple[Any, Any]:
    """One position, many times: features, and masks that close the second head's last value."""
    x = jax.random.normal(jax.random.key(2), (FEATURES, 1))
    masks = tuple(jnp.ones((size, count), bool).at[-1].set(size != 3) for size in SIZES)
    return jnp.broadcast_to(x, (FEATURES, count)), masks


def test_acts_are_drawn_with_the_probabilities_that_the_loss_computes() -> None:
    policy, (x, masks) = far_from_uniform(), the_same(DRAWS)
    every, few = tuple(jnp.asarray(EVERY_ACT)), the_same(EVERY_ACT.shape[1])

    @jax.jit
    def both() -> Any:
        drawn, logits, _ = policy.decide(x, masks, jax.random.uniform(jax.random.key(3), (3, DRAWS)))
        spread = acts.entropy(policy(x, drawn)[0], masks, MATTERS, drawn)
        given = acts.log_prob(policy(x, drawn)[0], masks, drawn, MATTERS)
        alone = acts.log_prob(policy(few[0], every)[0], few[1], every, MATTERS)
        return jnp.stack(drawn), acts.log_prob(logits, masks, drawn, MATTERS), given, spread, alone

    drawn, log_prob, given, spread, alone = map(np.asarray, both())
    np.testing.assert_allclose(log_prob, given, rtol=1e-4, atol=1e-5)
    total = by_hand = 0.0
    for act, logp in zip(EVERY_ACT.T, alone, strict=True):
        played = MATTERS[act[0]]
        if act[1] == 2 or (act[~played] != 0).any():  # closed, or an act that is in the sum already
            continue
        share = (drawn[played] == act[played, None]).all(axis=0).mean()
        assert share == pytest.approx(np.exp(logp), abs=0.015)
        total, by_hand = total + np.exp(logp), by_hand - np.exp(logp) * logp
    assert total == pytest.approx(1, abs=1e-5)
    assert spread.mean() == pytest.approx(by_hand, abs=0.02)


@pytest.mark.parametrize(("autoregressive", "reached"), [(False, 1.0), (True, 2.0)])
def test_only_autoregressive_heads_leave_an_act_that_any_single_change_makes_worse(
    autoregressive: bool, reached: float
) -> None:
    """(0, 0) pays 1, (1, 2) pays 2, anything else nothing; both learners start with a habit of (0, 0)."""
    pairs = np.array(list(itertools.product(range(2), range(3)))).T
    pays = jnp.array([1.0, 0, 0, 0, 0, 2.0])
    x, masks = jnp.ones((1, 6)), (jnp.ones((2, 6), bool), jnp.ones((3, 6), bool))
    policy = policy_of(1, (32,), (2, 3), autoregressive)
    weight, bias = policy.out
    flat = flatten(replace(policy, out=(weight, bias.at[jnp.array([0, 2])].add(0.9))))

    def mean_pay(vector: Any) -> Any:
        act = tuple(jnp.asarray(pairs))
        logits, _ = flat.rebuild(vector)(x, act)
        return jnp.sum(pays * jnp.exp(acts.log_prob(logits, masks, act, np.ones((2, 2), bool))))

    @jax.jit
    def climb(vector: Any) -> Any:
        vector = lax.fori_loop(0, 500, lambda _, v: v + 0.3 * jax.grad(mean_pay)(v), vector)
        return mean_pay(vector)

    assert float(climb(flat.vector)) == pytest.approx(reached, abs=0.05)


def test_a_head_sees_nothing_of_earlier_values_that_do_not_matter() -> None:
    """Or a supervised learner, whose expert fills them in another way, would play what it never learnt."""
    policy = policy_of(FEATURES, (6,), SIZES, matters=np.array([[1, 1, 1], [1, 0, 1]]))
    x = jax.random.normal(jax.random.key(2), (FEATURES,))
    last = {(first, value): policy(x, (first, value, 0))[0][2] for first in (0, 1) for value in (0, 1)}
    np.testing.assert_array_equal(last[1, 0], last[1, 1])
    assert (last[0, 0] != last[0, 1]).all()


def test_a_game_with_one_head_has_the_same_network_either_way() -> None:
    one, other = (flatten(policy_of(3, (4,), (5,), flag)).vector for flag in (False, True))
    np.testing.assert_array_equal(one, other)


def test_the_counted_weights_are_those_of_the_network() -> None:
    vector = flatten(policy_of(7, (5, 3), SIZES)).vector
    assert vector.shape == (weight_count(7, Shape((5, 3), True), SIZES),)


SLOW = pytest.mark.conformance  # programs of their own


@pytest.mark.parametrize("algo", ["ppo", pytest.param("reinforce", marks=SLOW), pytest.param("supervised", marks=SLOW)])
def test_every_algorithm_solves_the_two_arms_and_its_policy_plays_as_well(train: Callable[..., Any], algo: str) -> None:
    folder, summary = train(algo, **merged(toy_changes(algo), {"train": {"autoregressive": True}}))
    assert summary["share_of_ceiling"][0] > 0.97
    bot = bot_of_run(str(folder))
    played = play_bots(TOY, toy.ToyOptions().settings(), (bot, TOY.bot("heuristic")), 64, 0, lambda count: None)
    assert played.returns[:, 0].mean() / played.scores["ceiling"][:, 0].mean() > 0.95


def test_autoregressive_heads_need_a_hidden_layer() -> None:
    with pytest.raises(BadInput, match="autoregressive needs a hidden layer"):
        tiny_job(train={"hidden": [], "autoregressive": True})
