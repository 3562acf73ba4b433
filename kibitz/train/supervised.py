"""Supervised learning of a teacher's acts, in the positions that the learner itself reaches."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from kibitz.core import act as acts
from kibitz.core.act import Act
from kibitz.core.chance import block
from kibitz.train.config import TrainOptions
from kibitz.train.network import Flat
from kibitz.train.rollout import Games, Learner, Practice, device_key, episode_sums, mean_over_devices, optimiser


def update(
    learner: Learner, settings: Any, flat: Flat, practice: Practice, config: TrainOptions, axis: str | None = None
) -> tuple[Learner, dict[str, Array]]:
    """A rollout with a gradient step at every step; half of the games follow the teacher, half the learner.

    The teacher is the practice's adviser. Its advice is the label and hidden from the learner.
    So positions that only the learner's mistakes lead to are labelled too.
    """
    key, roll_key = jax.random.split(jax.random.wrap_key_data(learner.key))
    game, count = practice.game, learner.games.steps.shape[0]
    heads = len(game.heads)
    follows = jnp.arange(count) % 2 == 0
    nothing = practice.adapter.no_hint(learner.games.steps)

    def one(carry: tuple[Games, Array, Any], key: Array) -> tuple[tuple[Games, Array, Any], dict[str, Array]]:
        games, vector, moments = carry
        u = block(key, (heads + practice.step_uniforms, count))
        label, solo = games.hint.act, practice.unpack(games)
        features, masks = practice.observe(settings, solo, nothing)

        def loss(vector: Array) -> tuple[Array, Act]:
            policy = flat.rebuild(vector)
            logits, _ = policy(features, label)
            return -jnp.mean(acts.log_prob(logits, masks, label, game.matters)), policy.decide(features, masks)[0]

        (cost, own), gradient = jax.value_and_grad(loss, has_aux=True)(vector)
        change, moments = optimiser(config).update(mean_over_devices(gradient, axis), moments, vector)
        act = tuple(jnp.where(follows, taught, mine) for taught, mine in zip(label, own, strict=True))
        games, stepped = practice.step(settings, games, solo, act, u[heads:])
        same = jnp.stack([a == b for a, b in zip(label, own, strict=True)])[0]
        seen = {**stepped._asdict(), "loss": cost, "same_act": jnp.mean(same.astype(jnp.float32))}
        return (games, vector + change, moments), seen

    keys = jax.random.split(device_key(roll_key, axis), config.rollout)
    start = (learner.games, learner.weights, learner.moments)
    (games, weights, moments), seen = lax.scan(one, start, keys)
    metrics = episode_sums(seen, axis) | {name: jnp.mean(seen[name]) for name in ("loss", "same_act")}
    after = learner._replace(weights=weights, moments=moments, games=games, key=jax.random.key_data(key))
    return after._replace(updates=learner.updates + 1), mean_over_devices(metrics, axis)
