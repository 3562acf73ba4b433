"""What the three algorithms share: the learner's state, the optimiser, and what is told about a rollout."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from kibitz.core import act as acts
from kibitz.core.chance import block
from kibitz.train.config import TrainOptions
from kibitz.train.rollout import Games, Practice, pack_masks


class Learner(NamedTuple):
    """Everything that changes during training; saved whole, it resumes bit for bit."""

    weights: Array  # f32[parameters]
    moments: Any  # the optimiser's
    games: Games
    key: Array  # u32[2]
    updates: Array  # i32[], so far
    pool: Array  # f32[selves, parameters], earlier selves to play against; no rows without self-play


def optimiser(config: TrainOptions) -> optax.GradientTransformation:
    rate: Any = config.lr
    if config.lr_final is not None:
        rate = optax.linear_schedule(config.lr, config.lr_final, config.updates * config.gradient_steps)
    return optax.chain(optax.clip_by_global_norm(config.grad_norm), optax.adam(rate, eps=1e-5))


def deal(practice: Practice, settings: Any, games: int, key: Array) -> Games:
    return practice.begin(settings, jax.random.uniform(key, (practice.begin_uniforms, games)))


def play_one(
    policy: Any, practice: Practice, settings: Any, games: Games, key: Array
) -> tuple[Games, dict[str, Array]]:
    """One step of every game: what was seen, done and paid."""
    heads = len(practice.game.heads)
    u = block(key, (heads + practice.step_uniforms, games.steps.shape[0]))
    features, masks = practice.observe(settings, games)
    logits, value = policy(features)
    act = acts.sample(logits, masks, u[:heads])
    after, stepped = practice.step(settings, games, act, u[heads:])
    return after, {
        "features": features.T,
        "masks": pack_masks(masks),
        "act": jnp.stack(act),
        "log_prob": acts.log_prob(logits, masks, act, practice.game.matters),
        "value": value,
        **stepped._asdict(),
    }


def roll_out(
    policy: Any, practice: Practice, settings: Any, games: Games, key: Array, steps: int
) -> tuple[Games, dict[str, Array]]:
    """Plays `steps` steps of every game; what was seen and done has time first."""

    def one(games: Games, key: Array) -> tuple[Games, dict[str, Array]]:
        return play_one(policy, practice, settings, games, key)

    return lax.scan(one, games, jax.random.split(key, steps))


EPISODE_MEANS = ("return", "length")  # over episodes; every other metric is a mean over updates


def episode_sums(seen: dict[str, Array], axis: str | None) -> dict[str, Array]:
    """Over the episodes that ended in this rollout, on all devices; `episodes` says how many."""
    ended = seen["over"].astype(jnp.float32)
    sums = {
        "return": jnp.sum(seen["returned"] * ended),
        "length": jnp.sum(seen["steps"] * ended),
        "episodes": jnp.sum(ended),
    }
    return sums if axis is None else lax.psum(sums, axis)


def told_of(sums: dict[str, Any], updates: Any) -> dict[str, Any]:
    """Metrics of several updates from their sums. Without an end of an episode there is no return: NaN."""
    episodes = sums["episodes"]
    means = {name: sums[name] / episodes for name in EPISODE_MEANS}
    return {name: value / updates for name, value in sums.items()} | means | {"episodes": episodes}


def samples_last(x: Array) -> Array:
    """[time, k, games] -> [k, samples]."""
    return jnp.moveaxis(x, 1, 0).reshape(x.shape[1], -1)


def averaged(gradient: Any, axis: str | None) -> Any:
    """Over the devices that share the games, if there are several."""
    return gradient if axis is None else lax.pmean(gradient, axis)


def device_key(key: Array, axis: str | None) -> Array:
    return key if axis is None else jax.random.fold_in(key, lax.axis_index(axis))
