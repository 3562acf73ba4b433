"""Chance as an argument: a few uniforms in, choices out.

Drawing random bits costs more than the rules of a small game, so a game asks for few uniforms and
peels several choices off each: what is left of a uniform after one choice is a uniform again, with
fewer bits. A float32 uniform holds 23 bits; a choice among n costs log2(n) of them.
"""

from __future__ import annotations

from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import Array

Scalar: TypeAlias = Array | float | int


def pick(u: Scalar, n: Scalar) -> tuple[Array, Array]:
    """An index 0..n-1, and what is left of `u` as a fresh uniform."""
    scaled = jnp.asarray(u, jnp.float32) * jnp.asarray(n, jnp.float32)
    index = jnp.minimum(jnp.floor(scaled), jnp.asarray(n, jnp.float32) - 1)
    return index.astype(jnp.int32), scaled - index


def happens(u: Scalar, probability: Scalar) -> tuple[Array, Array]:
    """Whether it happens, and what is left of `u` as a fresh uniform."""
    u, p = jnp.asarray(u, jnp.float32), jnp.asarray(probability, jnp.float32)
    yes = u < p
    rest = jnp.where(yes, u / jnp.maximum(p, 1e-30), (u - p) / jnp.maximum(1 - p, 1e-30))
    return yes, jnp.clip(rest, 0.0, 1 - 2**-24)


def seed_key(seed: int) -> Array:
    """The key of a seed: u32[2]. Seeds up to 64 bits keep all of their bits."""
    return jnp.asarray([(seed >> 32) & 0xFFFFFFFF, seed & 0xFFFFFFFF], jnp.uint32)


def episode_luck(key: Array, episode: Scalar) -> Array:
    """u32[2], the chance of one episode of a seed."""
    return jax.random.key_data(jax.random.fold_in(jax.random.wrap_key_data(key), episode))


def seat_luck(luck: Array, seat: int) -> Array:
    """u32[2], what a player of this seat may draw from, apart from the game's own chance."""
    return episode_luck(luck, 2**31 - 1 - seat)


def uniforms(luck: Array, turn: Scalar, n: int) -> Array:
    """f32[n], the chance of one turn: a pure function of seed, episode and turn.

    Single and batched environments both call it, so they meet the same luck whatever order they
    are stepped in.
    """
    return jax.random.uniform(jax.random.fold_in(jax.random.wrap_key_data(luck), turn), (n,), jnp.float32)
