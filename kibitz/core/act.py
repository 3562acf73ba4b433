"""Acts: a tuple of categorical choices, one for each head, some of which may not matter.

A head's values lie along the first axis, so the same functions serve one act (f32[size]) and a batch
with games last (f32[size, games]): sums over a handful of values then run as vector loops over games.
Masks are open where a value is allowed. A head that does not matter once the first head is known
(the counts of an AGREE) adds nothing to log-probability or entropy, so no gradient flows through it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kibitz.core.xla import setup as _setup  # noqa: F401  (configures JAX)

Act: TypeAlias = tuple[Any, ...]  # i32[...] for each head; plain numbers on the host
Masks: TypeAlias = tuple[Any, ...]  # bool[size, ...] for each head; NumPy arrays on the host
Logits: TypeAlias = tuple[Array, ...]  # f32[size, ...] for each head
Matters: TypeAlias = NDArray[np.bool_]  # bool[size of the first head, heads]

CLOSED = -1e9  # a logit no sampler picks and whose exponential is exactly zero


class Head(NamedTuple):
    """One part of an act."""

    name: str
    size: int


def masked(logits: Logits, masks: Masks) -> Logits:
    """Log-probabilities with closed values at `CLOSED` or below."""
    shut = (jnp.where(mask, x, CLOSED) for x, mask in zip(logits, masks, strict=True))
    return tuple(jax.nn.log_softmax(x, axis=0) for x in shut)


def sample(logits: Logits, masks: Masks, u: Array) -> Act:
    """One value for each head by cumulative sums; `u` is f32[heads, ...]."""
    parts = zip(logits, masks, strict=True)
    return tuple(sample_head(x, mask, u[head]) for head, (x, mask) in enumerate(parts))


def sample_head(logits: Array, mask: Any, u: Array) -> Array:
    """One value of one head; `u` is f32[...]."""
    (logp,) = masked((logits,), (mask,))
    ends = jnp.cumsum(jnp.where(mask, jnp.exp(logp), 0.0), axis=0)
    index = jnp.sum((ends <= u * ends[-1]).astype(jnp.int32), axis=0)
    return jnp.minimum(index, _last_open(mask))


def best(logits: Logits, masks: Masks) -> Act:
    """The most likely open value of each head."""
    return tuple(best_of_head(x, mask) for x, mask in zip(logits, masks, strict=True))


def best_of_head(logits: Array, mask: Any) -> Array:
    """The most likely open value of one head."""
    return jnp.argmax(jnp.where(mask, logits, -jnp.inf), axis=0).astype(jnp.int32)


def log_prob(logits: Logits, masks: Masks, act: Act, matters: Matters) -> Array:
    """The log-probability of the whole act, over the heads that matter for it."""
    total = jnp.zeros(jnp.shape(act[0]))
    for head, (logp, choice) in enumerate(zip(masked(logits, masks), act, strict=True)):
        chosen = jnp.sum(jnp.where(values(logp) == choice, logp, 0.0), axis=0)
        # `where` and not a product: the gradient of a head that does not matter is exactly zero
        total = total + jnp.where(matter(matters, act[0], head), chosen, 0.0)
    return total


def entropy(logits: Logits, masks: Masks, matters: Matters, act: Act | None = None) -> Array:
    """The entropy of the act as played: each head weighted by how likely it is to matter.

    Where the logits of a head depend on the earlier values of an act, pass that act: a head then counts if it matters
    for it, and the mean over sampled acts is the entropy.
    """
    logps = masked(logits, masks)
    first = jnp.where(masks[0], jnp.exp(logps[0]), 0.0)
    total = jnp.zeros(first.shape[1:])
    for head, (logp, mask) in enumerate(zip(logps, masks, strict=True)):
        own = -jnp.sum(jnp.where(mask, jnp.exp(logp) * logp, 0.0), axis=0)
        if act is not None:
            total = total + jnp.where(matter(matters, act[0], head), own, 0.0)
            continue
        weight = jnp.asarray(matters[:, head], jnp.float32).reshape(-1, *[1] * (first.ndim - 1))
        total = total + own * jnp.sum(first * weight, axis=0)
    return total


def is_legal(masks: Masks, act: Act, matters: Matters) -> Array:
    """Every head that matters has an open value."""
    legal: Array = jnp.bool_(True)
    for head, (mask, choice) in enumerate(zip(masks, act, strict=True)):
        opened = jnp.any((values(mask) == choice) & mask, axis=0)
        legal = legal & (opened | ~matter(matters, act[0], head))
    return legal


def matter(matters: Matters, first: Any, head: int) -> Array:
    """Whether a head counts, given the value of the first one; the first always does."""
    if matters[:, head].all():
        return jnp.ones(jnp.shape(first), bool)
    counts = [jnp.asarray(first) == value for value in np.flatnonzero(matters[:, head])]
    return jnp.any(jnp.stack([*counts, jnp.zeros(jnp.shape(first), bool)]), axis=0)


def values(x: Any) -> Array:
    return jnp.arange(x.shape[0], dtype=jnp.int32).reshape(-1, *[1] * (x.ndim - 1))


def _last_open(mask: Any) -> Array:
    return jnp.max(jnp.where(mask, values(mask), 0), axis=0)
