"""Trees of small arrays, one tree for each game, as one array with games last: one transfer for a whole batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kibitz.core.xla import setup as _setup  # noqa: F401  (configures JAX)

WORD = 32  # bits


class Place(NamedTuple):
    """Where a leaf is stored: rows of the array, or columns of its bits."""

    start: int
    stop: int
    shape: tuple[int, ...]  # of one game
    dtype: Any


class RowTree:
    """Built from one game's tree of shapes; 32-bit numbers take a row each, booleans share rows as bits."""

    def __init__(self, shapes: Any) -> None:
        leaves, self.tree = jax.tree.flatten(shapes)
        places, rows, bits = [], 0, 0
        for leaf in leaves:
            dtype, size = np.dtype(leaf.dtype), int(np.prod(leaf.shape))
            if dtype.kind != "b" and dtype.itemsize != 4:
                raise TypeError(f"A row tree holds 32-bit numbers and booleans only, not {dtype}.")
            start = bits if dtype.kind == "b" else rows
            places.append(Place(start, start + size, tuple(leaf.shape), dtype))
            bits, rows = (bits + size, rows) if dtype.kind == "b" else (bits, rows + size)
        self.numbers = rows  # the bits follow them
        self.places: Any = jax.tree.unflatten(self.tree, places)

    def pack(self, tree: Any) -> Array:
        """i32[rows] of one game, inside a compiled function; map it with `out_axes=-1`."""
        numbers, flags = [], []
        for leaf in jax.tree.leaves(tree):
            flat = jnp.reshape(leaf, -1)
            if flat.dtype == jnp.bool_:
                flags.append(flat)
            else:
                numbers.append(jax.lax.bitcast_convert_type(flat, jnp.int32))
        return jnp.concatenate([*numbers, _words([bit for part in flags for bit in part])])


def _words(bits: list[Array]) -> Array:
    """i32[words]: the first bit is the lowest of the first word."""
    words = [jnp.uint32(0)] * -(-len(bits) // WORD)
    # one by one: a CPU takes ten times as long to sum a short axis of a batch
    for i, bit in enumerate(bits):
        words[i // WORD] = words[i // WORD] | (bit.astype(jnp.uint32) << (i % WORD))
    return jax.lax.bitcast_convert_type(jnp.stack(words), jnp.int32) if words else jnp.zeros(0, jnp.int32)


class Rows:
    """The array of a batch on the host. A leaf is unpacked when it is read."""

    def __init__(self, layout: RowTree, array: Any) -> None:
        self.layout, self.places = layout, layout.places
        self._array: NDArray[np.int32] = np.asarray(array)  # i32[rows, games]
        self._bits: NDArray[np.bool_] | None = None

    def numbers(self, place: Place) -> NDArray[Any]:
        """A leaf as it is stored, games last; not a copy."""
        part: NDArray[Any] = self._array[place.start : place.stop].view(place.dtype)
        return part.reshape(*place.shape, -1) if place.shape else part.reshape(-1)

    def read(self, place: Place, dtype: Any = None) -> NDArray[Any]:
        """A copy, games first."""
        part = self._flags(place) if place.dtype.kind == "b" else self.numbers(place)
        if part.ndim > 1 and place.dtype.kind != "b":
            part = part.T if part.ndim == 2 else np.moveaxis(part, -1, 0)
        return part.astype(dtype or place.dtype, order="C")

    def _flags(self, place: Place) -> NDArray[np.bool_]:
        if self._bits is None:
            words = np.ascontiguousarray(self._array[self.layout.numbers :].T).astype("<i4", copy=False)
            self._bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").view(bool)
        part = self._bits[:, place.start : place.stop]
        return part[:, 0] if not place.shape else part.reshape(-1, *place.shape)
