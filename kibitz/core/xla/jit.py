"""`jax.jit` with settings for the CPU: one kernel for a single game, the older fusion emitter for batches.

XLA splits a program into kernels and runs independent ones on a thread pool. For a single game each kernel takes less
than a microsecond, so waking a thread costs more than the whole step. Marked as a small call, the program becomes one
function and compiles in half the time.

A program for many games has hundreds of fused kernels. XLA's newer emitter takes nearly twice as long to compile them,
and training and vector environments run no faster for it. Bare rules in a loop do run four times faster with the newer
emitter (`kibitz bench env`) and keep it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
from jax.experimental.xla_metadata import set_xla_metadata

from kibitz.core.xla import setup as _setup  # noqa: F401  (configures JAX)

XLA_OPTIONS = {"xla_cpu_use_fusion_emitters": False}
log = logging.getLogger("kibitz.core")


def jit_single(function: Callable[..., Any], static_argnums: int | tuple[int, ...] = ()) -> Callable[..., Any]:
    """`jax.jit(function)` as one kernel on a CPU, for small programs: nothing in it runs in parallel."""
    plain = jax.jit(function, static_argnums=static_argnums)

    def tagged(*arguments: Any) -> Any:
        # compilers that do not know these attributes ignore them
        return set_xla_metadata(plain(*arguments), inlineable="false", xla_cpu_small_call="true")

    compiled = jax.jit(tagged, static_argnums=static_argnums) if jax.default_backend() == "cpu" else plain

    def call(*arguments: Any) -> Any:
        nonlocal compiled
        try:
            return compiled(*arguments)
        except jax.errors.JaxRuntimeError as error:
            # sorting and a few other operations cannot be part of a small call
            if compiled is plain:
                raise
            log.info("compiling a small program as several kernels, which is slower: %s", str(error).partition("\n")[0])
            compiled = plain
            return plain(*arguments)

    return call


def jit_batch(function: Callable[..., Any], **more: Any) -> Callable[..., Any]:
    """`jax.jit(function, **more)` for a program of many games that no other program contains."""
    return jax.jit(function, compiler_options=batch_compiler_options(), **more)


@cache
def batch_compiler_options() -> dict[str, bool] | None:
    """The options, where the device is a CPU and the compiler knows them."""
    if jax.default_backend() != "cpu":
        return None
    try:
        jax.jit(lambda x: x, compiler_options=XLA_OPTIONS).lower(0.0).compile()
    except jax.errors.JaxRuntimeError as error:
        log.info(
            "this compiler lacks the older fusion emitter, so large programs compile slowly: %s",
            str(error).partition("\n")[0],
        )
        return None
    return XLA_OPTIONS
