"""Luck, packed states and flat trees."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import Array

from kibitz.core.chance import block, episode_luck, happens, pick, seat_luck, seed_key, uniforms
from kibitz.core.xla.flat_tree import FlatTree
from kibitz.core.xla.packing import Layout


class Small(NamedTuple):
    flag: Array
    pair: tuple[Array, Array]
    wide: Array
    beside: Array


def _small(flag: bool, a: int, b: int, wide: int) -> Small:
    return Small(jnp.bool_(flag), (jnp.int32(a), jnp.int32(b)), jnp.int32(wide), jnp.arange(3, dtype=jnp.float32))


WIDTHS = Small(1, (3, 5), 30, 0)  # type: ignore[arg-type]


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.booleans(), st.integers(0, 7), st.integers(0, 31), st.integers(0, 2**30 - 1))
def test_packing_loses_nothing(flag: bool, a: int, b: int, wide: int) -> None:
    layout = Layout(WIDTHS, _small(False, 0, 0, 0))
    assert layout.words == 2
    back = layout.unpack(layout.pack(_small(flag, a, b, wide)))
    assert (bool(back.flag), int(back.pair[0]), int(back.pair[1]), int(back.wide)) == (flag, a, b, wide)
    assert back.flag.dtype == bool
    assert np.array_equal(back.beside, [0, 1, 2])


def test_a_flat_tree_carries_every_bit_both_ways() -> None:
    tree = {"f": jnp.float32(-0.1), "u": jnp.uint32(2**32 - 1), "b": jnp.array([True, False]), "i": jnp.int32(-7)}
    flat_tree = FlatTree(tree)
    vector = jax.jit(flat_tree.pack)(tree)
    np.testing.assert_array_equal(flat_tree.write(tree), vector)
    for back in (jax.jit(flat_tree.unpack)(vector), flat_tree.read(np.asarray(vector))):
        assert float(back["f"]) == pytest.approx(-0.1)
        assert int(back["u"]) == 2**32 - 1
        assert [bool(x) for x in back["b"]] == [True, False]
        assert int(back["i"]) == -7


def test_a_flat_tree_refuses_types_that_it_would_truncate() -> None:
    with pytest.raises(TypeError, match="32-bit"):
        FlatTree({"x": np.zeros(1, np.int8)}).pack({"x": np.zeros(1, np.int8)})
    with pytest.raises(TypeError, match="32-bit"):
        FlatTree({"x": np.zeros(1, np.int8)}).write({"x": np.zeros(1, np.int8)})


def test_what_is_left_of_a_uniform_is_a_uniform_again() -> None:
    u = jax.random.uniform(jax.random.key(0), (50_000,))
    first, rest = pick(u, 5)
    second, rest = pick(rest, 7)
    assert int(first.max()) == 4
    assert int(second.max()) == 6
    both = np.bincount(np.asarray(first) * 7 + np.asarray(second), minlength=35) / 50_000
    assert np.abs(both - 1 / 35).max() < 0.006
    assert abs(float(rest.mean()) - 0.5) < 0.01
    yes, rest = happens(u, 0.3)
    assert abs(float(yes.mean()) - 0.3) < 0.01
    assert abs(float(rest[yes].mean()) - 0.5) < 0.02


def test_no_index_is_out_of_range_at_either_end() -> None:
    for u in (0.0, 1 - 2**-24, 1.0):
        assert 0 <= int(pick(u, 3)[0]) <= 2


def test_every_bit_of_a_seed_enters_the_luck() -> None:
    lucks = {tuple(np.asarray(episode_luck(seed_key(seed), 0)).tolist()) for seed in [0, *(1 << b for b in range(63))]}
    assert len({first for first, _ in lucks}) == len({second for _, second in lucks}) == 64


def test_seeds_episodes_turns_and_seats_each_have_different_luck() -> None:
    lucks = [episode_luck(seed_key(seed), number) for seed in (0, 1, 2**32, 2**40) for number in (0, 1)]
    lucks += [seat_luck(lucks[0], 0), seat_luck(lucks[0], 1)]
    drawn = {tuple(np.asarray(uniforms(luck, turn, 2))) for luck in lucks for turn in (0, 1, 2)}
    assert len(drawn) == 3 * len(lucks)
    assert np.array_equal(uniforms(lucks[0], 1, 3), uniforms(episode_luck(seed_key(0), 0), 1, 3))


def test_a_block_of_chance_is_uniform_and_its_rows_games_and_keys_are_unrelated() -> None:
    keys = jax.random.split(jax.random.key(3), 200)
    blocks = np.asarray(jax.jit(jax.vmap(lambda key: block(key, (5, 512))))(keys), np.float64)
    assert blocks.min() >= 0.0 and blocks.max() < 1.0
    counts = np.histogram(blocks, 64, (0, 1))[0]
    expected = blocks.size / 64
    assert ((counts - expected) ** 2 / expected).sum() < 63 + 5 * (2 * 63) ** 0.5
    bits = np.floor(blocks * 2**23).astype(np.int64)
    assert all(abs(((bits >> k) & 1).mean() - 0.5) < 5 * 0.5 / blocks.size**0.5 for k in range(23))
    z = (blocks - 0.5) * 12**0.5
    pairs = (z[:-1] * z[1:], z[:, :-1] * z[:, 1:], z[:, :, :-1] * z[:, :, 1:], z[:, :, :-64] * z[:, :, 64:])
    for product in pairs:  # keys, rows, neighbouring games, games apart
        assert abs(product.mean()) < 5 / product.size**0.5
