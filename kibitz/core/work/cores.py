"""How many cores a process may use.

Playing gives the same bytes on any number of cores. Training does not: XLA adds up a batch in as many parts as it has
threads. So a worker that plays gets a share of the cores, and one that trains gets all, as a process without workers.
"""

from __future__ import annotations

import os


def machine_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_cores() -> int:
    """All cores, a worker's share, or what the user has set."""
    limit = _limit()
    return int(limit) if limit.isdecimal() and int(limit) > 0 else machine_cores()


def use_cores(count: int) -> None:
    """Limits this process, before its first computation, unless a limit is set already."""
    if not _limit():
        os.environ["PJRT_NPROC"] = str(count)


def _limit() -> str:
    """The variables in the order in which XLA's CPU client reads its number of threads."""
    return os.environ.get("PJRT_NPROC") or os.environ.get("NPROC") or ""
