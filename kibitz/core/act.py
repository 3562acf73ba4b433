"""Acts: a tuple of categorical choices, one for each head, some of which may not matter.

Everything here is about one act of one game; callers map it over many. Masks are open where a
value is allowed. A head that does not matter once the first head is known (the counts of an AGREE)
adds nothing to log-probability or entropy, so no gradient flows through it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

Act: TypeAlias = tuple[Any, ...]  # i32[] for each head; plain numbers on the host
Masks: TypeAlias = tuple[Any, ...]  # bool[size] for each head; NumPy arrays on the host
Logits: TypeAlias = tuple[Array, ...]  # f32[size] for each head
Matters: TypeAlias = NDArray[np.bool_]  # bool[size of the first head, heads]

CLOSED = -1e9  # a logit no sampler picks and whose exponential is exactly zero


class Head(NamedTuple):
    """One part of an act."""

    name: str
    size: int


def masked(logits: Logits, masks: Masks) -> Logits:
    """Log-probabilities with closed values at `CLOSED`."""
    shut = (jnp.where(mask, x, CLOSED) for x, mask in zip(logits, masks, strict=True))
    return tuple(jax.nn.log_softmax(x) for x in shut)


def sample(logits: Logits, masks: Masks, u: Array) -> Act:
    """One value for each head by cumulative sums; `u` is f32[heads]."""
    act = []
    for head, (logp, mask) in enumerate(zip(masked(logits, masks), masks, strict=True)):
        total = jnp.cumsum(jnp.where(mask, jnp.exp(logp), 0.0))
        index = jnp.sum((total <= u[head] * total[-1]).astype(jnp.int32))
        act.append(jnp.minimum(index, _last_open(mask)))
    return tuple(act)


def best(logits: Logits, masks: Masks) -> Act:
    """The most likely open value of each head."""
    return tuple(
        jnp.argmax(jnp.where(mask, x, -jnp.inf)).astype(jnp.int32) for x, mask in zip(logits, masks, strict=True)
    )


def log_prob(logits: Logits, masks: Masks, act: Act, matters: Matters) -> Array:
    """Of the whole act, over the heads that matter for it."""
    counts = jnp.asarray(matters)[act[0]]
    parts = [logp[choice] for logp, choice in zip(masked(logits, masks), act, strict=True)]
    # `where` and not a product: the gradient of a head that does not matter is exactly zero
    return jnp.sum(jnp.where(counts, jnp.stack(parts), 0.0))


def entropy(logits: Logits, masks: Masks, matters: Matters) -> Array:
    """Of the act as it is played: each head weighted by how likely it is to matter."""
    logps = masked(logits, masks)
    each = jnp.stack([-jnp.sum(jnp.where(m, jnp.exp(x) * x, 0.0)) for x, m in zip(logps, masks, strict=True)])
    weight = jnp.where(masks[0], jnp.exp(logps[0]), 0.0) @ jnp.asarray(matters, jnp.float32)
    return jnp.sum(each * weight)


def is_legal(masks: Masks, act: Act, matters: Matters) -> Array:
    """Every head that matters has an open value."""
    sizes = [mask.shape[-1] for mask in masks]
    inside = [
        (choice >= 0) & (choice < size) & mask[jnp.clip(choice, 0, size - 1)]
        for choice, size, mask in zip(act, sizes, masks, strict=True)
    ]
    first = jnp.clip(act[0], 0, sizes[0] - 1)
    return jnp.all(jnp.stack(inside) | ~jnp.asarray(matters)[first]) & inside[0]


def _last_open(mask: Array) -> Array:
    size = mask.shape[-1]
    return (size - 1 - jnp.argmax(mask[::-1])).astype(jnp.int32)
