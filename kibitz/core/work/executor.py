"""What an item of work is, and the one interface of everything that runs items.

An item is a pure function of plain data, so it may run anywhere, and again after its worker was lost, with the same
result. Its name is a hash of what it computes.
"""

from __future__ import annotations

import hashlib
import json
import logging
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, Self

from kibitz.core.errors import BadInput
from kibitz.core.system.logs import log_once

log = logging.getLogger("kibitz.core")
MAX_ATTEMPTS = 3  # of an item whose workers are lost
MAX_WORKERS = 256


@dataclass(frozen=True, eq=False)
class Work:
    """What many items have in common. A worker finds both functions by their import names."""

    prepare: Callable[[Any], Any]  # spec -> context; a worker calls it once
    perform: Callable[[Any, Any, Callable[[Any], None]], Any]  # context, an item's arguments, report -> result
    spec: Any  # plain data: the game, its options, the players
    trains: bool = False  # an item gets a GPU where the cluster has any, and every core (cores.py says why)
    here: Any = None  # the caller's own context, for items that run in this process


@dataclass(frozen=True, eq=False)
class Item:
    arguments: dict[str, Any]  # plain data
    more: Callable[[], dict[str, Any]] = dict  # arguments that are read when the item is sent; not part of its name

    def name(self, work: Work) -> str:
        """A hash of what the item computes."""
        function = f"{work.perform.__module__}.{work.perform.__qualname__}"
        text = json.dumps([function, work.spec, self.arguments], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


Report = Callable[[Item, Any], None]  # an item and what it says about its progress or cost


class Executor(Protocol):
    workers: int  # items at a time

    def run(self, work: Work, items: Iterable[Item], report: Report = ...) -> Iterator[tuple[Item, Any]]:
        """Items with their results, as they finish. Items are drawn as workers become free.

        An exception in an item is raised here. Leaving the iterator early stops the items in progress.
        """

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def _no_report(item: Item, said: Any) -> None:
    pass


class Here:
    """This process: one item after the other."""

    workers = 1

    def run(self, work: Work, items: Iterable[Item], report: Report = _no_report) -> Iterator[tuple[Item, Any]]:
        context = work.prepare(work.spec) if work.here is None else work.here
        for item in items:
            yield item, work.perform(context, item.arguments | item.more(), partial(report, item))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


Event = tuple[Item, Literal["report", "done", "failed", "lost"], Any]


class Pool(ABC):
    """Keeps as many items running as there is room for, and runs the items of lost workers again."""

    workers: int

    @abstractmethod
    def _capacity(self) -> int:
        """How many items may be under way; changes as machines come and go."""

    @abstractmethod
    def _send(self, work: Work, item: Item) -> None: ...

    @abstractmethod
    def _events(self) -> list[Event]:
        """Waits for the next events of the items that were sent; a lost item's value is the reason in words."""

    @abstractmethod
    def _abandon(self) -> None:
        """Stops the items under way; the pool can be used again."""

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...

    def __enter__(self) -> Self:
        return self

    def run(self, work: Work, items: Iterable[Item], report: Report = _no_report) -> Iterator[tuple[Item, Any]]:
        waiting, again = iter(items), deque[Item]()
        running: set[Item] = set()
        attempts: Counter[Item] = Counter()
        try:
            while True:
                while len(running) < self._capacity():
                    item = again.popleft() if again else next(waiting, None)
                    if item is None:
                        break
                    self._send(work, item)
                    running.add(item)
                if not running:
                    return
                for item, kind, value in self._events():
                    if kind == "report":
                        report(item, value)
                        continue
                    running.discard(item)
                    if kind == "done":
                        yield item, value
                    elif kind == "failed":
                        raise value
                    else:
                        attempts[item] += 1
                        self._check(attempts[item], value)
                        again.append(item)
        finally:
            if running:
                self._abandon()

    def _check(self, attempts: int, reason: str) -> None:
        if attempts >= MAX_ATTEMPTS:
            raise BadInput(
                f"One item of work lost its worker {attempts} times ({reason}), perhaps for lack of memory; "
                "use fewer --workers or machines with more memory."
            )
        log_once(log, f"A worker was lost ({reason}); what it was doing runs again, at most {MAX_ATTEMPTS} times.")


def executor_for(workers: int | None = None, ray: str | None = None) -> Executor:
    """Local processes, this one if a single one is wanted, or the Ray cluster at an address (`local`: a new one)."""
    if ray is not None:
        if workers is not None:
            raise BadInput("--ray cannot be combined with --workers: the cluster knows its own processors.")
        from kibitz.core.work.ray_cluster import RayCluster

        return RayCluster(ray)
    if workers is None or workers == 1:
        return Here()
    if not 1 <= workers <= MAX_WORKERS:
        raise BadInput(f"--workers is {workers}; it must be between 1 and {MAX_WORKERS}.")
    from kibitz.core.work.processes import Processes

    return Processes(workers)
