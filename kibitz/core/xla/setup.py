"""Configures JAX. Only modules that use JAX import this one: the others (events, errors, options) load a second sooner,
and so does the live server."""

from __future__ import annotations

import os

import jax

from kibitz.core.system.paths import cache_folder


def _set_up_jax() -> None:
    """Caches compiled programs between runs and runs CPU calls in the calling thread.

    Handing a small program to another thread costs 100 microseconds, three times the program. On a GPU, JAX would
    reserve three quarters of the memory, which takes two seconds and leaves little for a language model beside it. What
    the user has set stays in force.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # read when JAX first uses a device
    if jax.config.values["jax_compilation_cache_dir"] is None:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    if "JAX_CPU_ENABLE_ASYNC_DISPATCH" not in os.environ:
        jax.config.update("jax_cpu_enable_async_dispatch", False)


_set_up_jax()
