"""How many cores a process may use.

Playing gives the same bytes on any number of cores. Training does not: XLA adds up a batch in as many parts as it has
threads. So a worker that plays gets a share of the cores, and one that trains gets all, as a process without workers.
"""

from __future__ import annotations

import os

XLA_THREADS = ("PJRT_NPROC", "NPROC")  # XLA's CPU client has as many threads as the first of these that is set says


def machine_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_cores() -> int:
    """All cores, a worker's share, or what the user has set."""
    for name in XLA_THREADS:
        value = os.environ.get(name, "")
        if value.isdecimal() and int(value) > 0:
            return int(value)
    return machine_cores()


def use_cores(count: int) -> None:
    """Limits this process, before its first computation, unless the user has set a limit."""
    if not any(os.environ.get(name) for name in XLA_THREADS):
        os.environ[XLA_THREADS[0]] = str(count)
