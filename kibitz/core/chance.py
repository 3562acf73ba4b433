"""Chance as an argument: a few uniforms in, choices out.

Drawing random bits costs more than the rules of a small game, so a game asks for few uniforms and
peels several choices off each: what is left of a uniform after one choice is a uniform again, with
fewer bits. A float32 uniform holds 23 bits; a choice among n costs log2(n) of them.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import Array

from kibitz.core.xla import setup as _setup  # noqa: F401  (configures JAX)

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
    """u32[2], the source of this seat's own chance, separate from the game's."""
    return episode_luck(luck, 2**31 - 1 - seat)


def uniforms(luck: Array, turn: Scalar, n: int) -> Array:
    """f32[n], the chance of one turn: a pure function of seed, episode and turn.

    Single and batched environments both call it, so both see the same luck in whatever order
    callers step them.
    """
    return jax.random.uniform(jax.random.fold_in(jax.random.wrap_key_data(luck), turn), (n,), jnp.float32)


def block(key: Array, shape: tuple[int, ...]) -> Array:
    """f32[shape] for one step of a whole batch; `key` is a JAX key, used for this block alone.

    A counter and the key's two words go through integer hashes (multiply, fold high bits into low).
    The cipher behind `jax.random.uniform` costs more on a CPU than the rules of a small game do;
    this does not. Where an episode must be the same alone and in a batch, `uniforms` is right.
    """
    # run the cipher once, on the key alone, instead of once per number
    first, second = jax.random.key_data(jax.random.fold_in(key, 0)).astype(jnp.uint32)
    count = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    bits = _hash(_hash(count + first) ^ second)
    # 23 random bits behind the one of 1.0: a float in [1, 2)
    return jax.lax.bitcast_convert_type((bits >> 9) | jnp.uint32(0x3F800000), jnp.float32) - 1.0


def _hash(x: Array) -> Array:
    """One u32 to another, every bit of it depending on every bit (constants: C. Wellons, lowbias32)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)
