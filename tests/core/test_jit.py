"""`jit_single` and `jit_batch` compute what `jax.jit` does; a single program stays in the calling thread."""

from __future__ import annotations

import time
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from kibitz.core.xla import jit
from kibitz.core.xla.jit import jit_batch, jit_single

X = jnp.linspace(-1.0, 1.0, 500)


def many_sums(x: Array) -> Array:
    """Kernels that could run side by side."""
    return jnp.stack([jnp.sum(jnp.sin(x * k)) for k in range(1, 30)])


def test_a_single_program_computes_the_function() -> None:
    np.testing.assert_allclose(jit_single(many_sums)(X), many_sums(X), rtol=1e-4, atol=1e-4)


def test_a_single_program_wakes_no_other_thread() -> None:
    program = jit_single(many_sums)
    program(X).block_until_ready()

    def ratio() -> float:
        """The processor time of all threads, in that of this one; six with `jax.jit`."""
        process, thread = time.process_time(), time.thread_time()
        for _ in range(200):
            program(X).block_until_ready()
        return (time.process_time() - process) / (time.thread_time() - thread)

    assert min(ratio() for _ in range(3)) < 1.3  # threads that other tests have left behind may work meanwhile


@pytest.mark.parametrize("values", [[3.0, 1.0, 2.0], [5.0, 4.0, 3.0, 2.0]])
def test_a_program_that_cannot_be_one_kernel_compiles_as_usual(values: list[float]) -> None:
    program = jit_single(lambda x: jnp.sort(x))
    for _ in range(2):
        assert program(jnp.array(values)).tolist() == sorted(values)


def test_trees_unchanged_arguments_and_static_arguments_work() -> None:
    def two(tree: dict[str, Any], seat: int) -> Any:
        return tree, tree["a"] + 1 if seat == 0 else tree["b"]

    program = jit_single(two, static_argnums=1)
    tree = {"a": jnp.int32(4), "b": jnp.int32(7)}
    assert [int(program(tree, seat)[1]) for seat in (0, 1)] == [5, 7]
    assert int(program(tree, 0)[0]["b"]) == 7


def test_a_batch_program_computes_the_function_and_takes_the_options_of_jit() -> None:
    np.testing.assert_allclose(jit_batch(many_sums)(X), many_sums(X), rtol=1e-4, atol=1e-4)
    given = jnp.ones(4)
    assert jit_batch(lambda x, k: x * k, donate_argnums=0, static_argnums=1)(given, 3).tolist() == [3.0] * 4
    assert given.is_deleted()


def test_a_compiler_without_the_option_compiles_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "XLA_OPTIONS", {"xla_cpu_no_such_thing": False})
    jit.batch_compiler_options.cache_clear()
    try:
        assert jit.batch_compiler_options() is None
        assert jit_batch(lambda x: x + 1)(X[0]) == 0.0
    finally:
        jit.batch_compiler_options.cache_clear()
