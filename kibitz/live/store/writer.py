"""One thread that writes: whatever waits is committed together."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from kibitz.live.store.base import StoreUnavailable

Cursor = TypeVar("Cursor")
MOST = 500  # jobs in one commit


class Writer(Generic[Cursor]):
    """Jobs are functions of a cursor. `transact(jobs)` runs some inside one transaction and commits.

    When the store is away (`temporary` says which errors mean that), the same jobs are tried again
    until the oldest has waited `patience` seconds; then they fail with `StoreUnavailable`.
    """

    def __init__(
        self,
        transact: Callable[[list[Callable[[Cursor], Any]]], list[Any]],
        temporary: tuple[type[Exception], ...],
        patience: float,
    ) -> None:
        self._transact, self._temporary, self._patience = transact, temporary, patience
        self._waiting: deque[tuple[float, Callable[[Cursor], Any], Future[Any]]] = deque()
        self._filled = threading.Condition()
        self._closed = False
        self.commits = 0  # for metrics: events in a commit show how well grouping works
        self.retries = 0
        self._thread = threading.Thread(target=self._work, name="store-writer", daemon=True)
        self._thread.start()

    def run(self, job: Callable[[Cursor], Any]) -> Any:
        """Returns once the job is committed."""
        done: Future[Any] = Future()
        with self._filled:
            if self._closed:
                raise StoreUnavailable("The store is closed.")
            self._waiting.append((time.monotonic(), job, done))
            self._filled.notify()
        return done.result()

    def close(self) -> None:
        """Writes what waits, then ends."""
        with self._filled:
            self._closed = True
            self._filled.notify()
        self._thread.join(self._patience + 5)

    def _work(self) -> None:
        while True:
            with self._filled:
                while not self._waiting and not self._closed:
                    self._filled.wait()
                if not self._waiting:
                    return
                batch = [self._waiting.popleft() for _ in range(min(MOST, len(self._waiting)))]
            self._commit(batch)

    def _commit(self, batch: list[tuple[float, Callable[[Cursor], Any], Future[Any]]]) -> None:
        pause = 0.01
        while True:
            try:
                results = self._transact([job for _, job, _ in batch])
                break
            except self._temporary as error:
                if self._closed or time.monotonic() - batch[0][0] > self._patience:
                    return self._refuse(batch, StoreUnavailable(f"The store cannot be written: {error}".strip()))
                self.retries += 1
                time.sleep(pause)
                pause = min(pause * 2, 0.5)
            except Exception as error:  # a bug of ours: whoever waits must hear of it, and nobody else
                if len(batch) == 1:
                    return self._refuse(batch, error)
                for one in batch:
                    self._commit([one])
                return None
        self.commits += 1
        for (_, _, done), result in zip(batch, results, strict=True):
            if isinstance(result, Exception):
                done.set_exception(result)
            else:
                done.set_result(result)
        return None

    @staticmethod
    def _refuse(batch: list[tuple[float, Callable[[Cursor], Any], Future[Any]]], error: Exception) -> None:
        for _, _, done in batch:
            done.set_exception(error)
