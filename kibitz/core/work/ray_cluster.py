"""Items on a Ray cluster (extra `scale`).

Every item is a Ray task that streams its reports and then its result. Ray places tasks, starts workers and scales the
cluster; it retries nothing, because the pool does, in the same way on every executor.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any
from uuid import uuid4

import ray
from ray.exceptions import (
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayError,
    RaySystemError,
    RayTaskError,
    TaskCancelledError,
    WorkerCrashedError,
)

from kibitz.core.errors import BadInput
from kibitz.core.work.cores import use_cores
from kibitz.core.work.executor import Event, Item, Pool, Work
from kibitz.core.work.processes import Prepared

CONNECT_SECONDS = 5.0
LOOK_SECONDS = 5.0  # between two looks at the size of the cluster
QUEUED_PER_CPU = 2  # so that no processor waits for its next item
ITEM_CORES = 1  # that Ray reserves for an item, and that XLA then uses
LOST = (NodeDiedError, ObjectLostError, OutOfMemoryError, RaySystemError, TaskCancelledError, WorkerCrashedError)


class RayCluster(Pool):
    """The cluster at an address, or a new one on this machine (`local`) that ends with this process."""

    def __init__(self, address: str) -> None:
        if ray.is_initialized():
            raise BadInput("This process is connected to a Ray cluster already; call ray.shutdown() first.")
        _check_reachable(address)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would report to its makers
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # JAX warns, though an exec follows
                ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
        except (RayError, ConnectionError, ValueError, RuntimeError) as error:
            raise _no_cluster(address, str(error).strip().partition("\n")[0]) from None
        self._looked, self._cpus, self._gpus = 0.0, 1, 0
        self._look()
        self.workers = self._cpus
        self._streams: dict[Any, Item] = {}
        self._sent: dict[Work, tuple[str, Any]] = {}

    def _look(self) -> None:
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked, there = time.monotonic(), ray.cluster_resources()
            self._cpus, self._gpus = max(1, int(there.get("CPU", 1))), int(there.get("GPU", 0))

    def _capacity(self) -> int:
        self._look()
        return QUEUED_PER_CPU * self._cpus

    def _send(self, work: Work, item: Item) -> None:
        if work not in self._sent:
            self._sent[work] = (uuid4().hex, ray.put((work.prepare, work.perform, work.spec)))
        task = _task.options(name=f"kibitz {item.name(work)}", num_gpus=1 if work.trains and self._gpus else 0)
        self._streams[task.remote(work.trains, *self._sent[work], item.arguments | item.more())] = item

    def _events(self) -> list[Event]:
        ready, _ = ray.wait(list(self._streams), num_returns=1, fetch_local=False)
        return [self._event(stream) for stream in ready]

    def _event(self, stream: Any) -> Event:
        item = self._streams[stream]
        try:
            kind, value = ray.get(next(stream))
        except LOST as error:
            kind, value = "lost", type(error).__name__
        except StopIteration:
            kind, value = "lost", "its answer was incomplete"
        except RayTaskError as error:  # before the item began
            reason = str(error).strip().rpartition("\n")[2]
            kind = "failed"
            value = BadInput(f"A Ray worker cannot run kibitz ({reason}); install the same kibitz on every node.")
        if kind != "report":
            del self._streams[stream]
        return item, kind, value

    def _abandon(self) -> None:
        for stream in self._streams:
            ray.cancel(stream, force=True)
        self._streams.clear()

    def __exit__(self, *_: object) -> None:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise _no_cluster(address, getattr(error, "strerror", None) or str(error)) from None


def _no_cluster(address: str, reason: str) -> BadInput:
    return BadInput(f"There is no Ray cluster at {address!r} ({reason}); start one with `ray start --head`.")


_prepared: dict[str, Prepared] = {}  # of this worker, by the work's name


def _perform(trains: bool, name: str, work: Any, arguments: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if not trains:
        use_cores(ITEM_CORES)
    prepared = _prepared.get(name) or _prepared.setdefault(name, Prepared(*work))
    said: SimpleQueue[tuple[str, Any]] = SimpleQueue()

    def perform() -> None:
        said.put(prepared(arguments, lambda report: said.put(("report", report))))

    threading.Thread(target=perform, daemon=True).start()
    while True:
        kind, value = said.get()
        yield kind, value
        if kind != "report":
            return


_task: Any = ray.remote(num_cpus=ITEM_CORES, max_retries=0, num_returns="streaming")(_perform)
