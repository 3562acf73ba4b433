"""The policy network inside a kernel: what the kernels of `gradient` and `choice` share.

Matrix products take 16-bit floats, which have the mantissa of TF32, and accumulate in 32 bits. Activations are lists of
tiles of at most `KernelPlan.tile` columns, because a Triton tensor cannot be sliced; its sizes are powers of two.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kibitz.train.gpu.plan import KernelPlan

MAX_HALF = 65504.0  # the largest 16-bit float
MAX_LOGIT = 80.0  # its exponential fits into 32 bits
SAME_HEAD, UP_TO, LIKELY, GAIN, ALL = range(5)  # see head_matrices

Pair = tuple[int, int, int]  # a matrix of the plan, a tile of its inputs, a tile of its outputs
Tiles = list[Array]


class KernelNetwork:
    """The weights, as the kernels read them from the network's vector."""

    def __init__(self, vector: Any, plan: KernelPlan, interpret: bool) -> None:
        self.vector, self.plan, self.interpret, self.approx = vector, plan, interpret, Approximate(interpret)
        self.pairs: list[Pair] = [
            (at, i, j)
            for at, matrix in enumerate(plan.matrices)
            for i in range(len(matrix.in_tiles))
            for j in range(len(matrix.out_tiles))
        ]
        self.outs = [(at, j) for at in range(plan.layers) for j in range(len(plan.matrices[at].out_tiles))]
        self._kept: dict[Pair, Array] = {}
        if plan.in_registers:  # then the weights fit into shared memory, too
            self._kept = {pair: self._weight(pair) for pair in self.pairs}
        self.biases = {out: self._read(self.bias_place(*out)) for out in self.outs}

    def place(self, at: int, i: int, j: int, flip: bool = False) -> tuple[Array, Array]:
        """Where the weights of a tile are in the vector, as [outputs, inputs], and which of them exist."""
        matrix = self.plan.matrices[at]
        (first_in, n_in), (first_out, n_out) = matrix.in_tiles[i], matrix.out_tiles[j]
        shape, out_axis = ((n_in, n_out), 1) if flip else ((n_out, n_in), 0)
        o = first_out + jax.lax.broadcasted_iota(jnp.int32, shape, out_axis)
        k = first_in + jax.lax.broadcasted_iota(jnp.int32, shape, 1 - out_axis)
        return self._slot(matrix.offset + o * matrix.ins + k, (o < matrix.outs) & (k < matrix.ins))

    def bias_place(self, at: int, j: int) -> tuple[Array, Array]:
        matrix = self.plan.matrices[at]
        first, n = matrix.out_tiles[j]
        o = first + jnp.arange(n, dtype=jnp.int32)
        return self._slot(matrix.offset + matrix.ins * matrix.outs + o, o < matrix.outs)

    def weight(self, at: int, i: int, j: int) -> Array:
        """f16[outputs, inputs] of a tile."""
        pair = (at, i, j)
        return self._kept[pair] if pair in self._kept else self._weight(pair)

    def body(self, x: Tiles) -> tuple[list[Tiles], Tiles]:
        """Activations of the features and the hidden layers; and the last layer before its tanh, in 32 bits."""
        levels, last = [x], x
        for at in range(self.plan.layers - 1):
            last = self._layer(at, levels[-1])
            levels.append(self._tanh(last))
        return levels, last

    def outputs(self, x: Tiles) -> Array:
        """f32[block, outputs] from the last hidden layer."""
        return self._layer(self.plan.layers - 1, x)[0]

    def linked(self, head: int, last: Tiles, earlier: Array) -> Tiles:
        """The last hidden layer as this head sees it; `earlier` is f16[block, KernelPlan.earlier]."""
        at = self.plan.layers - 1 + head
        added = (dot(earlier, self.weight(at, 0, j), trans_b=True) for j in range(len(last)))
        return self._tanh([part + more for part, more in zip(last, added, strict=True)])

    def _layer(self, at: int, x: Tiles) -> Tiles:
        return [
            total(dot(x[i], self.weight(at, i, j), trans_b=True) for i in range(len(x))) + self.biases[at, j][None]
            for j in range(len(self.plan.matrices[at].out_tiles))
        ]

    def _tanh(self, x: Tiles) -> Tiles:
        return [self.approx.tanh(part).astype(jnp.float16) for part in x]

    def _slot(self, index: Array, exists: Array) -> tuple[Array, Array]:
        """Interpreted stores write what was there under a closed mask, so padding needs a slot of its own."""
        return (jnp.where(exists, index, self.plan.parameters) if self.interpret else index), exists

    def _read(self, where: tuple[Array, Array]) -> Array:
        from jax.experimental.pallas import triton

        return triton.load(self.vector.at[where[0]], mask=where[1], other=0.0)

    def _weight(self, pair: Pair) -> Array:
        return half(self._read(self.place(*pair)))


def bend(x: Array) -> Array:
    """The derivative of tanh where its value is `x`."""
    value = x.astype(jnp.float32)
    return 1 - value * value


class Heads(NamedTuple):
    """The outputs of a block of samples as probabilities of the heads' values; every array is [block, outputs].

    Products with constant matrices sum over the columns of a head. Reductions would cross the warps that share a
    sample, and each of them would make all warps wait for each other.
    """

    prob: Array  # f32, zero where a value is closed
    log_prob: Array  # f32, zero where a value is closed
    sums: list[Array]  # see head_matrices

    @classmethod
    def of(cls, y: Array, legal: Array, sums: list[Array], approx: Approximate) -> Heads:
        """A column of `y` belongs to a head, to the value, or to padding. Logits beyond 80 count as 80: so their
        exponentials need no common factor, which would be the largest logit of the head."""
        y = jnp.clip(y, -MAX_LOGIT, MAX_LOGIT)
        weight = jnp.where(legal, approx.exp(y), 0.0)
        whole = jnp.maximum(exact_product(weight, sums[SAME_HEAD], jnp.bfloat16), 1e-37)
        return cls(weight * approx.inverse(whole), jnp.where(legal, y - approx.log(whole), 0.0), sums)

    def per_head(self, x: Array, kind: int = SAME_HEAD) -> Array:
        return dot(x.astype(jnp.float16), self.sums[kind])


def head_columns(column: Array, plan: KernelPlan) -> list[Array]:
    """For each head, which columns are its own."""
    ends = np.cumsum(plan.sizes)
    pairs = zip(plan.sizes, ends.tolist(), strict=True)
    return [(column >= end - size) & (column < end) for size, end in pairs]


def flags_of(words: list[Array], column: Array) -> Array:
    """bool[block, columns] from words of 32 bits, i32[block] each."""
    of_column = words[0][:, None]
    for place, word in enumerate(words[1:], 1):
        of_column = jnp.where(column // 32 == place, word[:, None], of_column)
    found: Array = (of_column >> (column % 32)) & 1 == 1
    return found


def head_matrices(plan: KernelPlan) -> Array:
    """f16[5, outputs, outputs]: what to multiply rows of outputs with.

    The sum over a column's own head; the same up to the column itself; how likely its head is to matter; the sum over
    the heads that matter for a value of the first head; the sum over all heads.
    """
    width = plan.columns(plan.layers)
    head_of = np.full(width, -1)
    head_of[: sum(plan.sizes)] = np.repeat(np.arange(len(plan.sizes)), plan.sizes)
    matrices = np.zeros((5, width, width), np.float16)
    matrices[SAME_HEAD] = (head_of[:, None] == head_of) & (head_of >= 0)
    matrices[UP_TO] = np.triu(matrices[SAME_HEAD])
    matrices[ALL, : sum(plan.sizes)] = 1
    first = plan.sizes[0]
    for column in np.flatnonzero(head_of >= 0):
        matrices[LIKELY, :first, column] = [row[head_of[column]] for row in plan.matters]
        matrices[GAIN, column, :first] = [row[head_of[column]] for row in plan.matters]
    return jnp.asarray(matrices)


class Approximate(NamedTuple):
    """Functions of 32-bit floats that take one special instruction each, exact to about six digits.

    The library's own are exact to the last digit and cost up to twenty instructions.
    """

    interpret: bool

    def inverse(self, x: Array) -> Array:
        return 1 / x if self.interpret else self._asm("rcp", x)

    def exp(self, x: Array) -> Array:
        x = x * math.log2(math.e)
        return jnp.exp2(x) if self.interpret else self._asm("ex2", x)

    def log(self, x: Array) -> Array:
        return (jnp.log2(x) if self.interpret else self._asm("lg2", x)) * math.log(2)

    def tanh(self, x: Array) -> Array:
        return 1 - 2 * self.inverse(1 + self.exp(2 * x))

    def _asm(self, name: str, x: Array) -> Array:
        from jax.experimental.pallas import triton

        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        asm = f"{name}.approx.ftz.f32 $0, $1;"
        return triton.elementwise_inline_asm(asm, args=[x], constraints="=f,f", pack=1, result_shape_dtypes=[shape])[0]


def dot(a: Array, b: Array, trans_a: bool = False, trans_b: bool = False) -> Array:
    contract = ((0 if trans_a else 1,), (1 if trans_b else 0,))
    return jax.lax.dot_general(a, b, (contract, ((), ())), preferred_element_type=jnp.float32)


def exact_product(x: Array, matrix: Array, kind: Any = jnp.float16) -> Array:
    """With a matrix of zeros and ones, as good as in 32 bits: what 16 bits lose is a second product.

    bfloat16 has the range of 32-bit floats and keeps 16 bits of their 24 this way.
    """
    kept = x.astype(kind)
    lost = (x - kept.astype(jnp.float32)).astype(kind)
    return dot(kept, matrix.astype(kind)) + dot(lost, matrix.astype(kind))


def half(x: Array) -> Array:
    """Saturates: an overflow would become NaN."""
    return jnp.clip(x, -MAX_HALF, MAX_HALF).astype(jnp.float16)


def total(terms: Iterable[Array]) -> Array:
    """Without a zero to begin with, which would cost an addition."""
    return reduce(operator.add, terms)


def interpreted(interpret: bool | None) -> bool:
    """A CPU runs a kernel as ordinary JAX operations."""
    return jax.default_backend() == "cpu" if interpret is None else interpret
