"""PPO, top to bottom: rollout, advantages, minibatches; all of it runs in one compiled program."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from kibitz.core import act as acts
from kibitz.train.config import TrainOptions
from kibitz.train.gpu import gradient as fused
from kibitz.train.gpu.choice import actor
from kibitz.train.gpu.plan import make_plan
from kibitz.train.network import Flat
from kibitz.train.rollout import (
    Learner,
    Practice,
    device_key,
    episode_sums,
    mean_over_devices,
    optimiser,
    roll_out,
    unpack_masks,
)

MAX_SHUFFLE_BLOCKS = 65536
# Rounds of a loop that a GPU runs at once, because it copies what a loop carries from one to the next. More rounds take
# longer to compile, except those of the advantages, which become one kernel.
UNROLL_STEPS, UNROLL_MINIBATCHES, UNROLL_ADVANTAGES = 8, 16, 32


class Batch(NamedTuple):
    """What one update learns from; features are rows, so that a shuffle moves whole samples."""

    features: Array  # f32[samples, features]; after the shuffle f32[features, samples]
    masks: Array  # u32[words, samples]
    act: Array  # i32[heads, samples]
    log_prob: Array  # f32[samples], of the act when it was chosen
    value: Array  # f32[samples], estimated then
    advantage: Array  # f32[samples]
    target: Array  # f32[samples], for the value


def update(
    learner: Learner, settings: Any, flat: Flat, practice: Practice, config: TrainOptions, axis: str | None = None
) -> tuple[Learner, dict[str, Array]]:
    """One rollout and its epochs. `axis` names the devices over which the games are split."""
    learner, roll_key = begin(learner, settings, practice, axis)
    policy, key = actor(learner.weights, flat, practice.game, config), device_key(roll_key, axis)
    unroll = UNROLL_STEPS if config.fused else 1
    games, seen = roll_out(policy, practice, settings, learner.games, key, config.rollout, unroll)
    return learn(learner._replace(games=games), seen, settings, flat, practice, config, axis)


def begin(learner: Learner, settings: Any, practice: Practice, axis: str | None = None) -> tuple[Learner, Array]:
    """The learner, whose games continue, and the key of the rollout."""
    return learner, _keys(learner)[1]


def learn(
    learner: Learner,
    seen: dict[str, Array],
    settings: Any,
    flat: Flat,
    practice: Practice,
    config: TrainOptions,
    axis: str | None = None,
) -> tuple[Learner, dict[str, Array]]:
    """The epochs over the rollout that led to `learner.games`."""
    next_key, _, shuffle_key = _keys(learner)
    policy = flat.rebuild(learner.weights)
    features, _ = practice.observe(settings, practice.unpack(learner.games), learner.games.hint)
    _, last_value = policy(features)
    reward = seen["reward"] / config.unit
    unroll = UNROLL_ADVANTAGES if config.fused else 1
    advantage = advantages(reward, seen["value"], seen["over"], last_value, config.gamma, config.gae_lambda, unroll)
    batch = _flattened(seen, advantage)
    ent = config.entropy_at(learner.updates)
    tx = optimiser(config)

    if config.fused:  # the kernel gathers the samples itself
        plan = make_plan(practice.game, features.shape[0], config)
        kernel_batch = fused.gatherable(batch, plan)

    def split(key: Array) -> Any:
        if config.fused:
            order, block = shuffle(key, batch.log_prob.shape[0], config.minibatches)
            return fused.parts(batch, order, block, config.minibatches, ent)
        return shuffled(batch, key, config.minibatches)

    def slope(vector: Array, part: Any) -> tuple[Array, Any]:
        if config.fused:
            return fused.gradient(vector, kernel_batch, part, plan)
        return jax.grad(loss, has_aux=True)(vector, flat, part, practice, config, ent)  # type: ignore[no-any-return]

    def minibatch(carry: tuple[Array, Any], part: Any) -> tuple[tuple[Array, Any], Any]:
        vector, moments = carry
        gradient, metrics = slope(vector, part)
        change, moments = tx.update(mean_over_devices(gradient, axis), moments, vector)
        return (vector + change, moments), metrics

    def epoch(carry: tuple[Array, Any], key: Array) -> tuple[tuple[Array, Any], Any]:
        return lax.scan(minibatch, carry, split(key))

    start = (learner.weights, learner.moments)
    keys = jax.random.split(device_key(shuffle_key, axis), config.epochs)
    if config.fused:  # rows of samples, not samples: those of all epochs fit into memory, and one loop has fewer rounds
        every = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), jax.vmap(split)(keys))
        (weights, moments), per_batch = lax.scan(minibatch, start, every, unroll=UNROLL_MINIBATCHES)
        metrics = fused.named(jnp.mean(per_batch, axis=0), plan)
    else:
        (weights, moments), per_batch = lax.scan(epoch, start, keys)
        metrics = jax.tree.map(lambda x: jnp.mean(x, axis=(0, 1)), per_batch)
    metrics |= episode_sums(seen, axis)
    metrics["explained_variance"] = 1 - jnp.var(batch.target - batch.value) / (jnp.var(batch.target) + 1e-8)
    metrics["ent"] = ent
    after = learner._replace(
        weights=weights, moments=moments, key=jax.random.key_data(next_key), updates=learner.updates + 1
    )
    return after, mean_over_devices(metrics, axis)


def _keys(learner: Learner) -> tuple[Array, Array, Array]:
    """For the next update, this rollout and its shuffles."""
    next_key, roll_key, shuffle_key = jax.random.split(jax.random.wrap_key_data(learner.key), 3)
    return next_key, roll_key, shuffle_key


def advantages(
    reward: Array, value: Array, over: Array, last_value: Array, gamma: float, gae_lambda: float, unroll: int = 1
) -> Array:
    """Generalised advantage estimation over f32[time, games].

    Nothing flows across the end of an episode. The end of the rollout is not the end of an episode:
    the value of the next position stands for the rewards that were not played.
    """

    def back(carry: tuple[Array, Array], step: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], Array]:
        later, next_value = carry
        reward, value, over = step
        alive = 1.0 - over
        delta = reward + gamma * next_value * alive - value
        later = delta + gamma * gae_lambda * alive * later
        return (later, value), later

    start = (jnp.zeros_like(last_value), last_value)
    return lax.scan(back, start, (reward, value, over.astype(jnp.float32)), reverse=True, unroll=unroll)[1]


def loss(
    vector: Array, flat: Flat, batch: Batch, practice: Practice, config: TrainOptions, ent: Array
) -> tuple[Array, dict[str, Array]]:
    """The clipped surrogate; masks and irrelevant heads count as they did in sampling."""
    game = practice.game
    act = tuple(batch.act)
    logits, value = flat.rebuild(vector)(batch.features, act)
    masks = unpack_masks(batch.masks, game.sizes)
    log_prob = acts.log_prob(logits, masks, act, game.matters)
    entropy = jnp.mean(acts.entropy(logits, masks, game.matters, act if config.autoregressive else None))
    change = log_prob - batch.log_prob
    ratio = jnp.exp(change)
    advantage = (batch.advantage - jnp.mean(batch.advantage)) / (jnp.std(batch.advantage) + 1e-8)
    clipped = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
    policy_loss = -jnp.mean(jnp.minimum(ratio * advantage, clipped * advantage))
    value_loss = 0.5 * jnp.mean((value - batch.target) ** 2)
    total = policy_loss + config.vf * value_loss - ent * entropy
    metrics = {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approx_kl": jnp.mean((ratio - 1) - change),
        "clip_share": jnp.mean((jnp.abs(ratio - 1) > config.clip).astype(jnp.float32)),
    }
    return total, metrics


def shuffled(batch: Batch, key: Array, parts: int) -> Batch:
    """The samples in random order, cut into equal parts: a leading axis of `parts`."""
    samples = batch.log_prob.shape[0]
    order, block = shuffle(key, samples, parts)

    def move(x: Array, axis: int) -> Array:
        x = jnp.moveaxis(x, axis, 0)
        blocks = x.reshape(samples // block, block, *x.shape[1:])[order]
        return jnp.moveaxis(blocks.reshape(parts, samples // parts, *x.shape[1:]), 1, axis + 1)

    where = {"masks": 1, "act": 1}
    moved = Batch(**{name: move(x, where.get(name, 0)) for name, x in batch._asdict().items()})
    # transposed once here, not in the products of each minibatch
    return moved._replace(features=jnp.swapaxes(moved.features, 1, 2))


def shuffle(key: Array, samples: int, parts: int) -> tuple[Array, int]:
    """A random order of blocks of consecutive samples, and how many samples a block has.

    Large blocks are cheaper to move; only very large batches have more than one sample in a block.
    """
    block = max(1, samples // MAX_SHUFFLE_BLOCKS)
    while samples % (block * parts):
        block -= 1
    return scattered(key, samples // block), block


def scattered(key: Array, count: int) -> Array:
    """i32[count]: 0..count-1 in random order, without a sort where the count is a power of two.

    Multiplying by an odd number, adding, and folding high bits into low ones each permute the numbers
    of that many bits; six random rounds leave no visible pattern and cost far less than a sort.
    """
    bits = (count - 1).bit_length()
    if count != 1 << bits or bits < 4:
        return jnp.argsort(jax.random.bits(key, (count,)))
    order = jnp.arange(count, dtype=jnp.uint32)
    for factor, shift in jax.random.bits(key, (6, 2)):
        order = ((order + shift) * (factor | 1)) & jnp.uint32(count - 1)
        order = order ^ (order >> ((bits + 1) // 2))
    return order.astype(jnp.int32)


def _flattened(seen: dict[str, Array], advantage: Array) -> Batch:
    """Time and games become samples.

    This includes the steps after an opening act that ended the episode, which only opponents like `random` cause often:
    weights that leave them out did not change what was learnt, and slowed a GPU down.
    """
    return Batch(
        features=seen["features"].reshape(-1, seen["features"].shape[-1]),
        masks=_samples_last(seen["masks"]),
        act=_samples_last(seen["act"]),
        log_prob=seen["log_prob"].reshape(-1),
        value=seen["value"].reshape(-1),
        advantage=advantage.reshape(-1),
        target=(advantage + seen["value"]).reshape(-1),
    )


def _samples_last(x: Array) -> Array:
    """[time, k, games] -> [k, samples]."""
    return jnp.moveaxis(x, 1, 0).reshape(x.shape[1], -1)
