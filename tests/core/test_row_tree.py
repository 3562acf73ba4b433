"""A tree for each game in one array: what is packed is read back, bit for bit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kibitz.core.xla.row_tree import Rows, RowTree

GAMES = 5


def trees() -> dict[str, np.ndarray]:
    """Games first. More flags than a word holds, and values that use every bit of a number."""
    rng = np.random.default_rng(0)
    return {
        "flag": rng.random(GAMES) < 0.5,
        "mask": rng.random((GAMES, 45)) < 0.5,
        "number": rng.integers(-(2**31), 2**31, GAMES).astype(np.int32),
        "grid": rng.integers(0, 9, (GAMES, 2, 3)).astype(np.int32),
        "real": rng.standard_normal((GAMES, 4)).astype(np.float32),
    }


def test_every_leaf_is_read_back_with_games_first() -> None:
    given = trees()
    layout = RowTree(jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), given))
    rows = Rows(layout, jax.vmap(layout.pack, out_axes=-1)(jax.tree.map(jnp.asarray, given)))
    for name, value in given.items():
        found = rows.read(layout.places[name])
        assert found.dtype == value.dtype and found.flags.c_contiguous and found.flags.owndata
        np.testing.assert_array_equal(found, value, err_msg=name)
    np.testing.assert_array_equal(rows.numbers(layout.places["real"]), given["real"].T)


def test_a_row_tree_refuses_numbers_of_other_sizes() -> None:
    with pytest.raises(TypeError, match="int8"):
        RowTree({"small": jax.ShapeDtypeStruct((), np.int8)})
