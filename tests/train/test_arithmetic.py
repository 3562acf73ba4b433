"""The estimates and losses against plain loops and plain NumPy."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kibitz.core.act import entropy
from kibitz.core.xla.jit import jit_batch
from kibitz.games import get_game
from kibitz.train import ppo, reinforce
from kibitz.train.network import Flat, Shape, flatten, new_policy
from kibitz.train.phase import build
from kibitz.train.rollout import Practice, pack_masks, roll_out, unpack_masks
from tests.train import toy
from tests.train.conftest import tiny_job

GAME = toy.build(False)
FEATURES = 3 + 5
SAMPLES = 24
ONE_DEVICE = tuple(jax.local_devices()[:1])


def lived(time: int, games: int) -> dict[str, Any]:
    """Made-up rewards and values; ends inside, at the border and nowhere."""
    rng = np.random.default_rng(3)
    over = np.zeros((time, games), bool)
    over[2, 0] = over[5, 0] = over[time - 1, 1] = over[0, 2] = True  # the last game never ends
    return {
        "reward": rng.normal(size=(time, games)).astype(np.float32),
        "value": rng.normal(size=(time, games)).astype(np.float32),
        "over": over,
        "last": rng.normal(size=games).astype(np.float32),
    }


@pytest.mark.parametrize(("gamma", "lam"), [(0.9, 0.8), (1.0, 1.0), (0.99, 0.0)])
def test_advantages_equal_those_of_a_plain_loop(gamma: float, lam: float) -> None:
    x = lived(7, 4)
    expected = np.zeros((7, 4))
    for game in range(4):
        for start in range(7):
            weight = 1.0
            for t in range(start, 7):
                following = x["last"][game] if t == 6 else x["value"][t + 1, game]
                expected[start, game] += weight * (
                    x["reward"][t, game] + (0.0 if x["over"][t, game] else gamma * following) - x["value"][t, game]
                )
                if x["over"][t, game]:
                    break
                weight *= gamma * lam
    got = ppo.advantages(*(jnp.asarray(x[k]) for k in ("reward", "value", "over", "last")), gamma, lam)
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)


def test_the_end_of_a_rollout_does_not_end_an_episode() -> None:
    x = lived(7, 4)
    args = [jnp.asarray(x[k]) for k in ("reward", "value", "over")]
    one, other = (ppo.advantages(*args, jnp.asarray(x["last"]) + more, 0.9, 0.8) for more in (0.0, 1.0))
    moved = np.asarray(other - one)
    assert moved[-1].tolist() == pytest.approx([0.9, 0.0, 0.9, 0.9]), "only a game that ended there ignores it"
    assert (moved[:6, 0] == 0).all(), "nothing flows back over an end"


def test_returns_to_go_equal_those_of_a_plain_loop() -> None:
    x = lived(7, 4)
    expected = np.zeros((7, 4))
    for game in range(4):
        for start in range(7):
            for t in range(start, 7):
                expected[start, game] += 0.9 ** (t - start) * x["reward"][t, game]
                if x["over"][t, game]:
                    break
    got = reinforce.returns_to_go(jnp.asarray(x["reward"]), jnp.asarray(x["over"]), 0.9)
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)


def test_packed_masks_unpack_to_the_same() -> None:
    masks = tuple(jnp.asarray(np.random.default_rng(n).random((n, 5)) < 0.5) for n in (5, 31, 7))
    for old, new in zip(masks, unpack_masks(pack_masks(masks), (5, 31, 7)), strict=True):
        np.testing.assert_array_equal(old, new)


PRACTICE = Practice(GAME, GAME.bot("heuristic"))


@cache
def flat() -> Flat:
    return flatten(new_policy(GAME, FEATURES, Shape((8,)), jax.random.key(2)))


class Data(NamedTuple):
    """Arguments of the compiled losses, so that all samples share them."""

    features: Any
    masks: Any
    act: Any
    numbers: Any


def ppo_loss(vector: Any, ent: Any, data: Data, config: Any) -> Any:
    old, value, advantage, target = data.numbers
    batch = ppo.Batch(data.features.T, pack_masks(data.masks), data.act, old - 1, value, advantage, target)
    return ppo.loss(vector, flat(), batch, PRACTICE, config, ent)


def reinforce_loss(vector: Any, ent: Any, data: Data, config: Any) -> Any:
    _, value, _, target = data.numbers.reshape(4, 4, 6)
    seen = {
        "features": data.features.reshape(4, 6, -1),
        "masks": jnp.moveaxis(pack_masks(data.masks).reshape(-1, 4, 6), 0, 1),
        "act": jnp.moveaxis(data.act.reshape(-1, 4, 6), 0, 1),
        "value": value,
    }
    played = jnp.arange(24).reshape(4, 6) % 5 != 0
    return reinforce.loss(vector, flat(), seen, played, target, PRACTICE, config, ent)


@cache
def compiled(name: str) -> Callable[..., Any]:
    """vector, weight of the entropy, data -> loss and gradient."""
    loss, config = {"ppo": ppo_loss, "reinforce": reinforce_loss}[name], build(tiny_job(), ONE_DEVICE).config
    return jax.jit(jax.value_and_grad(lambda vector, ent, data: loss(vector, ent, data, config)[0]))


class Sample:
    """A hand-made batch of the toy: features, masks and acts, nothing played."""

    def __init__(self, cap: int = 2, arm: int | None = None) -> None:
        rng = np.random.default_rng(5)
        vector = np.asarray(flat().vector)
        self.vector = vector + 0.3 * np.random.default_rng(4).normal(size=vector.shape).astype(np.float32)
        self.features = rng.normal(size=(SAMPLES, FEATURES)).astype(np.float32)
        self.masks = (np.ones((2, SAMPLES), bool), np.arange(3)[:, None] <= np.full(SAMPLES, cap))
        arms = rng.integers(0, 2, SAMPLES) if arm is None else np.full(SAMPLES, arm)
        self.act = np.stack([arms, rng.integers(0, cap + 1, SAMPLES)]).astype(np.int32)
        self.numbers = rng.normal(size=(4, SAMPLES)).astype(np.float32)

    def loss(self, name: str, ent: float) -> tuple[Any, Any]:
        """The loss and its gradient."""
        data = Data(self.features, self.masks, self.act, self.numbers)
        found, gradient = compiled(name)(self.vector, np.float32(ent), data)
        return float(found), np.asarray(gradient)

    def rows(self, name: str, ent: float) -> Any:
        """The gradient of the last layer, a row for each logit: two arms, three stakes, the value."""
        weight, bias = flat().rebuild(self.loss(name, ent)[1]).out
        return np.concatenate([weight, bias[:, None]], axis=1)

    def plain(self) -> tuple[Any, Any, Any]:
        """Log-probability of the acts, entropy and value, in NumPy."""
        policy = flat().rebuild(self.vector)
        x = np.asarray(self.features, float).T
        (weight, bias), (out, out_bias) = policy.body[0], policy.out
        y = np.asarray(out, float) @ np.tanh(np.asarray(weight, float) @ x + np.asarray(bias, float)[:, None])
        y += np.asarray(out_bias, float)[:, None]
        arm, stake = np.exp(y[:2]), np.exp(y[2:5]) * np.asarray(self.masks[1])
        arm, stake = arm / arm.sum(0), stake / stake.sum(0)
        acts, at = np.asarray(self.act), np.arange(SAMPLES)
        log_prob = np.log(arm[acts[0], at]) + np.where(acts[0] == 1, np.log(stake[acts[1], at]), 0)
        spread = [-np.sum(np.where(p > 0, p * np.log(np.maximum(p, 1e-300)), 0), axis=0) for p in (arm, stake)]
        return log_prob, spread[0] + arm[1] * spread[1], y[5]


LOSSES = pytest.mark.parametrize("name", ["ppo", "reinforce"])


@LOSSES
@pytest.mark.parametrize("ent", [0.0, 0.5])
def test_closed_values_have_no_gradient_through_the_whole_loss(name: str, ent: float) -> None:
    sample = Sample(cap=1)
    rows = sample.rows(name, ent)
    assert (rows[4] == 0).all(), "stake 2 is closed in every sample"
    assert (np.abs(rows[[0, 1, 2, 3, 5]]).sum(1) > 1e-4).all(), "everything else learns"


@LOSSES
def test_a_head_with_one_open_value_has_no_gradient(name: str) -> None:
    sample = Sample(cap=0)
    rows = sample.rows(name, 0.5)
    assert (rows[2:5] == 0).all()
    assert (np.abs(rows[:2]).sum(1) > 1e-4).all()


@LOSSES
def test_a_head_that_does_not_matter_has_no_gradient(name: str) -> None:
    sample = Sample(arm=0)
    rows = sample.rows(name, 0.0)
    assert (rows[2:5] == 0).all(), "nothing was staked"
    assert (np.abs(Sample(arm=1).rows(name, 0.0)[2:5]).sum(1) > 1e-4).all()


@LOSSES
def test_an_entropy_bonus_makes_acts_more_random(name: str) -> None:
    """One step down the bonus' part of the loss raises entropy."""
    sample = Sample()
    pull = sample.loss(name, 1.0)[1] - sample.loss(name, 0.0)[1]

    @jax.jit
    def spread(vector: Any) -> Any:
        logits, _ = flat().rebuild(vector)(sample.features.T)
        return jnp.mean(entropy(logits, sample.masks, GAME.matters))

    assert spread(sample.vector - 0.1 * pull) > spread(sample.vector) + 1e-4


def test_ppo_loss_equals_plain_numpy() -> None:
    sample = Sample()
    log_prob, spread, value = sample.plain()
    old, _, advantage, target = (np.asarray(x, float) for x in sample.numbers)
    ratio = np.exp(log_prob - (old - 1))
    scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    surrogate = np.minimum(ratio * scaled, np.clip(ratio, 0.8, 1.2) * scaled)
    expected = -surrogate.mean() + 0.5 * 0.5 * ((value - target) ** 2).mean() - 0.3 * spread.mean()
    assert sample.loss("ppo", 0.3)[0] == pytest.approx(expected, rel=1e-4)


def test_reinforce_loss_equals_plain_numpy_with_the_old_baseline() -> None:
    """The baseline is the value estimated when the act was chosen, not the network's current one."""
    sample = Sample()
    log_prob, spread, value = sample.plain()
    _, before, _, target = (np.asarray(x, float) for x in sample.numbers)
    counts = np.arange(24) % 5 != 0
    each = -(target - before) * log_prob + 0.5 * 0.5 * (value - target) ** 2 - 0.3 * spread
    assert sample.loss("reinforce", 0.3)[0] == pytest.approx(each[counts].mean(), rel=1e-4)


def test_the_baseline_of_reinforce_does_not_see_the_returns_it_is_compared_with() -> None:
    """The same games with and without rewards have the same baselines."""
    phase = build(tiny_job(algo="reinforce"), ONE_DEVICE)
    policy = phase.compiled.flat.rebuild(flatten(phase.compiled.policy(0)).vector)
    practice = phase.compiled.practice(jnp.zeros((0, 1)))

    @jax.jit
    def played(pays: Any) -> Any:
        games = practice.begin(phase.settings, jax.random.uniform(jax.random.key(0), (practice.begin_uniforms, 8)))
        return roll_out(policy, practice, phase.settings._replace(pays=pays), games, jax.random.key(1), 4)[1]

    seen = {pays: jax.device_get(played(np.float32(pays))) for pays in (0, 1)}
    assert seen[1]["reward"].sum() > 0 == seen[0]["reward"].sum()
    np.testing.assert_array_equal(seen[0]["value"], seen[1]["value"])


@pytest.mark.parametrize("count", [24, 64, pytest.param(1024, marks=pytest.mark.conformance)])
def test_shuffles_are_as_random_as_sorted_keys(count: int) -> None:
    """Neighbours and far pairs share a quarter of the batch as often, and vary as much, as by true chance."""
    keys = jax.random.split(jax.random.key(0), 4000)
    orders = np.asarray(jax.jit(jax.vmap(lambda key: ppo.scattered(key, count)))(keys))
    true = np.asarray(jax.jit(jax.vmap(lambda key: jax.random.permutation(key, count)))(keys))
    assert (np.sort(orders, axis=1) == np.arange(count)).all()

    def together(orders: Any, gap: int) -> Any:
        quarter = np.argsort(orders, axis=1) * 4 // count
        return (quarter == np.roll(quarter, -gap, axis=1)).mean(axis=1)

    chance = (count / 4 - 1) / (count - 1)
    for gap in (1, 2, 4, count // 4, count // 2):
        ours, theirs = together(orders, gap), together(true, gap)
        assert abs(ours.mean() - chance) < 5 * theirs.std() / len(keys) ** 0.5
        assert abs(ours.std() / theirs.std() - 1) < 0.15


def test_shuffling_keeps_every_sample_whole() -> None:
    n = 24
    column = np.arange(n, dtype=np.float32)
    whole = np.arange(n, dtype=np.int32)
    features = np.repeat(column[:, None], 3, axis=1)
    batch: Any = ppo.Batch(features, whole[None].astype(np.uint32), np.stack([whole] * 2), *[column] * 4)  # type: ignore[arg-type]
    parts = jax.device_get(jax.jit(ppo.shuffled, static_argnums=2)(batch, jax.random.key(0), 4))
    assert parts.features.shape == (4, 3, 6)
    assert parts.act.shape == (4, 2, 6)
    order = np.asarray(parts.log_prob)
    assert sorted(order.ravel().tolist()) == list(range(n))
    assert order.ravel().tolist() != list(range(n))
    for x in (parts.features[:, 1], parts.masks[:, 0], parts.act[:, 0], parts.act[:, 1], parts.value, parts.target):
        np.testing.assert_array_equal(np.asarray(x, float), order)


def test_an_opening_act_that_ends_the_game_counts_its_reward_but_no_step() -> None:
    """Against a random partner some games are over before the learner's first turn."""
    game = get_game("deal_or_no_deal")
    practice, settings, count = Practice(game, game.bot("random")), game.default_options.settings(), 512
    rng = np.random.default_rng(5)

    def opened(u: Any) -> Any:
        games = practice.begin(settings, u)
        paid = jax.vmap(
            lambda one: practice.play.opening(settings, practice.play.first_state(settings, one), one).rewards[0],
            in_axes=-1,
        )(u)
        state = jax.vmap(practice.play.layout.unpack)(games.solo).state
        return games, paid, ~jax.vmap(game.rules.to_act)(state).any(1)

    games, paid, ended = jax.device_get(jit_batch(opened)(rng.random((practice.begin_uniforms, count), np.float32)))
    assert 5 < ended.sum() < count / 2
    assert paid[ended].max() > 0
    act = tuple(np.zeros(count, np.int32) for _ in game.heads)
    u = rng.random((practice.step_uniforms, count), np.float32)
    solo = jax.vmap(practice.play.layout.unpack)(games.solo)
    stepped = jax.device_get(jit_batch(practice.step)(settings, games, solo, act, u)[1])
    assert stepped.over[ended].all()
    np.testing.assert_array_equal(stepped.returned[ended], paid[ended])
    assert (stepped.steps[ended] == 0).all()
    assert (stepped.steps[~ended] == 1).all()
