"""One thread that writes and commits everything that is waiting in one transaction."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, NamedTuple, TypeVar

from kibitz.live.store.base import StoreUnavailable

Database = TypeVar("Database")
MAX_COMMIT_JOBS = 500


class Job(NamedTuple):
    queued_at: float
    work: Callable[[Any], Any]
    done: Future[Any]


class Writer(Generic[Database]):
    """Runs jobs, which are functions of a connection. `transact(jobs)` runs some in one transaction and commits.

    While the store is unavailable (errors of the types `unavailable`), the writer retries the same jobs until the
    oldest has waited `store_timeout` seconds; then they fail with StoreUnavailable.
    """

    def __init__(
        self,
        transact: Callable[[list[Callable[[Database], Any]]], list[Any]],
        unavailable: tuple[type[Exception], ...],
        store_timeout: float,
    ) -> None:
        self._transact, self._unavailable, self._store_timeout = transact, unavailable, store_timeout
        self._queue: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self.commits = 0  # fewer than jobs when several were grouped
        self.retries = 0
        self._thread = threading.Thread(target=self._work, name="store-writer", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[Database], Any]) -> Any:
        """Returns once the job is committed."""
        done: Future[Any] = Future()
        with self._changed:
            if self._closed:
                raise StoreUnavailable("The store is closed.")
            self._queue.append(Job(time.monotonic(), work, done))
            self._changed.notify()
        return done.result()

    def close(self) -> None:
        """Writes the queued jobs, then stops."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(self._store_timeout + 5)

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._closed:
                    self._changed.wait()
                if not self._queue:
                    return
                batch = [self._queue.popleft() for _ in range(min(MAX_COMMIT_JOBS, len(self._queue)))]
            self._commit(batch)

    def _commit(self, batch: list[Job]) -> None:
        pause = 0.01
        while True:
            try:
                results = self._transact([job.work for job in batch])
                break
            except self._unavailable as error:
                if self._closed or time.monotonic() - batch[0].queued_at > self._store_timeout:
                    return _fail(batch, StoreUnavailable(f"The store cannot be written: {error}".strip()))
                self.retries += 1
                time.sleep(pause)
                pause = min(pause * 2, 0.5)
            except Exception as error:  # a bug in one job must reach its caller, and no other
                if len(batch) == 1:
                    return _fail(batch, error)
                for job in batch:
                    self._commit([job])
                return None
        self.commits += 1
        for job, result in zip(batch, results, strict=True):
            if isinstance(result, Exception):
                job.done.set_exception(result)
            else:
                job.done.set_result(result)
        return None


def _fail(batch: list[Job], error: Exception) -> None:
    for job in batch:
        job.done.set_exception(error)
