"""How XLA on a CPU is to write a program: for one game as one kernel, a large one by its older emitter.

XLA cuts a program into kernels and hands those that could run side by side to a pool of threads. For one game each
takes less than a microsecond: waking a thread costs more than the whole step, and the more the busier the machine is.
Told that the program is a small call, XLA on a CPU writes it as one function, and compiles it in half the time.

A program for many games has hundreds of fused kernels. XLA's newer emitter takes nearly twice as long to compile them
as its older one, and training and vector environments do not run faster for it. (The bare rules in a loop do, four
times: `kibitz bench env` shows them, and they stay with the newer one.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
from jax.experimental.xla_metadata import set_xla_metadata

from kibitz.core.xla import setup as _setup  # noqa: F401  (says how JAX is wanted)

XLA_OPTIONS = {"xla_cpu_use_fusion_emitters": False}
log = logging.getLogger("kibitz.core")


def jit_single(function: Callable[..., Any], static_argnums: int | tuple[int, ...] = ()) -> Callable[..., Any]:
    """`jax.jit(function)`, in one piece on a CPU. For small programs: nothing in it runs in parallel."""
    plain = jax.jit(function, static_argnums=static_argnums)

    def tagged(*arguments: Any) -> Any:
        # a compiler that does not know these words ignores them
        return set_xla_metadata(plain(*arguments), inlineable="false", xla_cpu_small_call="true")

    compiled = jax.jit(tagged, static_argnums=static_argnums) if jax.default_backend() == "cpu" else plain

    def call(*arguments: Any) -> Any:
        nonlocal compiled
        try:
            return compiled(*arguments)
        except jax.errors.JaxRuntimeError as error:
            # sorting and a few other operations cannot be written into a function
            if compiled is plain:
                raise
            log.info("a program is compiled in several kernels, the slower way: %s", str(error).partition("\n")[0])
            compiled = plain
            return plain(*arguments)

    return call


def jit_batch(function: Callable[..., Any], **more: Any) -> Callable[..., Any]:
    """`jax.jit(function, **more)` for a program of many games, which is not a part of another program."""
    return jax.jit(function, compiler_options=batch_compiler_options(), **more)


@cache
def batch_compiler_options() -> dict[str, bool] | None:
    """The wish, where there is a CPU and a compiler that knows it."""
    if jax.default_backend() != "cpu":
        return None
    try:
        jax.jit(lambda x: x, compiler_options=XLA_OPTIONS).lower(0.0).compile()
    except jax.errors.JaxRuntimeError as error:
        log.info("large programs compile the slower way: %s", str(error).partition("\n")[0])
        return None
    return XLA_OPTIONS
