"""A tree of small arrays as one vector, so that a call carries one argument instead of thirty.

Calling a compiled function costs about a microsecond for each array that goes in or comes out;
for one step of one game that is more than the step itself.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kibitz.core.xla import setup as _setup  # noqa: F401  (configures JAX)


class FlatTree:
    """Built from an example; converts trees of the same shapes to i32[size] and back, bit for bit."""

    def __init__(self, example: Any) -> None:
        leaves, self.tree = jax.tree.flatten(jax.eval_shape(lambda: example))
        self.shapes = [leaf.shape for leaf in leaves]
        self.dtypes = [np.dtype(leaf.dtype) for leaf in leaves]
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes], dtype=int)
        self.size = int(ends[-1]) if len(ends) else 0
        self.slices = [slice(int(end) - int(np.prod(s)), int(end)) for end, s in zip(ends, self.shapes, strict=True)]

    def pack(self, tree: Any) -> Array:
        flat = [_bits(jnp.asarray(leaf, dtype)) for leaf, dtype in zip(jax.tree.leaves(tree), self.dtypes, strict=True)]
        return jnp.concatenate(flat) if flat else jnp.zeros(0, jnp.int32)

    def unpack(self, vector: Array) -> Any:
        """Inside a compiled function."""
        parts = zip(self.slices, self.shapes, self.dtypes, strict=True)
        return jax.tree.unflatten(self.tree, [_value(vector[s], shape, dtype) for s, shape, dtype in parts])

    def write(self, tree: Any) -> NDArray[np.int32]:
        """The same as `pack`, on the host, without compiling a kernel per leaf."""
        whole = np.zeros(self.size, np.int32)
        for leaf, s, dtype in zip(jax.tree.leaves(tree), self.slices, self.dtypes, strict=True):
            flat = np.asarray(leaf, np.int32 if dtype.kind == "b" else _allowed(dtype)).reshape(-1)
            whole[s] = flat.view(np.int32)
        return whole

    def read(self, vector: NDArray[np.int32]) -> Any:
        """On the host: NumPy views into the vector where the type allows it."""
        leaves = []
        for s, shape, dtype in zip(self.slices, self.shapes, self.dtypes, strict=True):
            part = vector[s].astype(bool) if dtype.kind == "b" else vector[s].view(dtype)
            leaves.append(part.reshape(shape))
        return jax.tree.unflatten(self.tree, leaves)


def _bits(leaf: Array) -> Array:
    if leaf.dtype == jnp.bool_:
        leaf = leaf.astype(jnp.int32)
    _allowed(leaf.dtype)
    return jax.lax.bitcast_convert_type(leaf, jnp.int32).reshape(-1)


def _allowed(dtype: Any) -> Any:
    if dtype.itemsize != 4:
        raise TypeError(f"A flat tree holds 32-bit numbers and booleans only, not {dtype}.")
    return dtype


def _value(part: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    part = part.reshape(shape)
    return part != 0 if dtype.kind == "b" else jax.lax.bitcast_convert_type(part, dtype)
