"""Small non-negative integers in few 32-bit words.

A batch of games is carried from step to step in this form. XLA computes each array that leaves a
loop in a kernel of its own and computes again whatever several kernels share, so twenty small
fields cost several times as much as three words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import jaxpr_as_fun

from kibitz.core.xla import setup as _setup  # noqa: F401  (configures JAX)


class Slot(NamedTuple):
    """Where one field is stored."""

    word: int
    shift: int
    bits: int
    dtype: Any


class Layout:
    """How a tree of scalars is stored in words.

    `widths` has the tree's shape with a number of bits at each leaf. A leaf of width 0 is not
    packed: it travels beside the words unchanged.
    """

    def __init__(self, widths: Any, example: Any) -> None:
        self.tree: Any
        leaves, self.tree = jax.tree.flatten(example)
        bits = self.tree.flatten_up_to(widths)
        self.slots: list[Slot | None] = []
        filled: list[int] = []
        for leaf, width in zip(leaves, bits, strict=True):
            if width == 0:
                self.slots.append(None)
                continue
            word = next((i for i, used in enumerate(filled) if used + width <= 32), len(filled))
            if word == len(filled):
                filled.append(0)
            self.slots.append(Slot(word, filled[word], width, jnp.result_type(leaf)))
            filled[word] += width
        self.words = len(filled)

    def pack(self, tree: Any) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """The words, and the unpacked leaves beside them."""
        words = [jnp.uint32(0)] * self.words
        beside = []
        for slot, leaf in zip(self.slots, self.tree.flatten_up_to(tree), strict=True):
            if slot is None:
                beside.append(leaf)
            else:
                words[slot.word] = words[slot.word] | (jnp.asarray(leaf).astype(jnp.uint32) << slot.shift)
        return tuple(words), tuple(beside)

    def unpack(self, packed: tuple[tuple[Array, ...], tuple[Array, ...]]) -> Any:
        words, beside = packed
        rest = iter(beside)
        leaves = []
        for slot in self.slots:
            if slot is None:
                leaves.append(next(rest))
                continue
            mask = jnp.uint32((1 << slot.bits) - 1)
            leaves.append(((words[slot.word] >> slot.shift) & mask).astype(slot.dtype))
        return jax.tree.unflatten(self.tree, leaves)


def fusion_barrier(times: Any, make: Callable[[], Any]) -> Any:
    """`make()`, computed completely before anything uses it; `times` is 1.

    On a CPU, XLA recomputes in each kernel whatever several kernels share, and the players' choices are
    shared by every word of the state: 980 nanoseconds per ball of cricket. A loop that runs once, with a
    trip count unknown at compile time, separates the kernels: 340 nanoseconds. On other devices a loop
    costs more than it saves.
    """
    if jax.default_backend() != "cpu":
        return make()
    traced, shapes = jax.make_jaxpr(make, return_shape=True)()  # once: for its shapes, and as the loop's body
    body, tree = jaxpr_as_fun(traced), jax.tree.structure(shapes)
    empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return jax.lax.fori_loop(0, times, lambda i, words: jax.tree.unflatten(tree, body()), empty)
