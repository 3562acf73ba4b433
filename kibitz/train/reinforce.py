"""REINFORCE, top to bottom: whole episodes, returns to go, a baseline from earlier episodes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from kibitz.core import act as acts
from kibitz.train.config import TrainOptions
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


def update(
    learner: Learner, settings: Any, flat: Flat, practice: Practice, config: TrainOptions, axis: str | None = None
) -> tuple[Learner, dict[str, Array]]:
    """One gradient step from whole episodes: every game is played from its deal to its end.

    New games for every update keep every episode whole and favour no short ones. All games end within
    `config.rollout` steps; the loss omits what a game plays after its first end.
    """
    learner, roll_key = begin(learner, settings, practice, axis)
    policy = flat.rebuild(learner.weights)
    games, seen = roll_out(policy, practice, settings, learner.games, device_key(roll_key, axis), config.rollout)
    return learn(learner._replace(games=games), seen, settings, flat, practice, config, axis)


def begin(learner: Learner, settings: Any, practice: Practice, axis: str | None = None) -> tuple[Learner, Array]:
    """The learner with new games, and the key of the rollout."""
    key, deal_key, roll_key = jax.random.split(jax.random.wrap_key_data(learner.key), 3)
    count = learner.games.steps.shape[0]
    u = jax.random.uniform(device_key(deal_key, axis), (practice.begin_uniforms, count))
    games = practice.begin(settings, u)
    return learner._replace(games=games, key=jax.random.key_data(key)), roll_key


def learn(
    learner: Learner,
    seen: dict[str, Array],
    settings: Any,
    flat: Flat,
    practice: Practice,
    config: TrainOptions,
    axis: str | None = None,
) -> tuple[Learner, dict[str, Array]]:
    """The gradient step over a rollout."""
    ended = jnp.cumsum(seen["over"], axis=0) - seen["over"]
    first = ended == 0  # bool[time, games]: in the first episode
    played = first & (seen["steps"] > 0)  # an opening act may end it before the learner's turn
    target = returns_to_go(seen["reward"] / config.unit, seen["over"], config.gamma)
    ent = config.entropy_at(learner.updates)
    gradient, metrics = jax.grad(loss, has_aux=True)(learner.weights, flat, seen, played, target, practice, config, ent)
    change, moments = optimiser(config).update(mean_over_devices(gradient, axis), learner.moments, learner.weights)
    weights = learner.weights + change
    firsts = {**seen, "over": seen["over"] & first}
    metrics |= episode_sums(firsts, axis) | {"ent": ent, "steps_learnt": jnp.sum(played.astype(jnp.float32))}
    after = learner._replace(weights=weights, moments=moments, updates=learner.updates + 1)
    return after, mean_over_devices(metrics, axis)


def returns_to_go(reward: Array, over: Array, gamma: float) -> Array:
    """f32[time, games]: the rewards of an episode from each step on."""

    def back(later: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        reward, over = step
        later = reward + gamma * later * (1.0 - over)
        return later, later

    return lax.scan(back, jnp.zeros_like(reward[0]), (reward, over.astype(jnp.float32)), reverse=True)[1]


def loss(
    vector: Array,
    flat: Flat,
    seen: dict[str, Array],
    played: Array,
    target: Array,
    practice: Practice,
    config: TrainOptions,
    ent: Array,
) -> tuple[Array, dict[str, Array]]:
    """The baseline is the value from before this update, fitted to earlier episodes only."""
    game = practice.game
    features = jnp.moveaxis(seen["features"], -1, 0)  # f32[features, time, games]
    masks = unpack_masks(jnp.moveaxis(seen["masks"], 1, 0).reshape(seen["masks"].shape[1], -1), game.sizes)
    act = tuple(jnp.moveaxis(seen["act"], 1, 0).reshape(len(game.heads), -1))
    logits, value = flat.rebuild(vector)(features.reshape(features.shape[0], -1), act)
    weight = played.reshape(-1) / jnp.maximum(jnp.sum(played), 1)
    advantage = (target - seen["value"]).reshape(-1)
    log_prob = acts.log_prob(logits, masks, act, game.matters)
    policy_loss = -jnp.sum(weight * lax.stop_gradient(advantage) * log_prob)
    entropy = jnp.sum(weight * acts.entropy(logits, masks, game.matters, act if config.autoregressive else None))
    value_loss = 0.5 * jnp.sum(weight * (value - target.reshape(-1)) ** 2)
    total = policy_loss + config.vf * value_loss - ent * entropy
    return total, {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
