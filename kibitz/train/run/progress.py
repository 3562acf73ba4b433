"""How far a run has come, and how Ctrl-C stops it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from kibitz.core.system import interrupt
from kibitz.core.xla import hosts

KEEP_SECONDS = 0.25  # between two copies of the learner, which then cost less than a thousandth of the time


@dataclass
class Progress:
    learner: Any
    step: int
    clock: Callable[[], float]  # seconds the run took, those before a resume included
    kept: tuple[Any, int] | None = None  # a learner that can be resumed and its step, for a stop between two rows
    compile_seconds: float = 0.0
    train_seconds: float = 0.0
    evaluation: dict[str, list[float]] = field(default_factory=dict)
    _kept_at: float = 0.0

    def keep(self, reusable: bool) -> None:
        """Keeps the learner, whose rows have been written. A compiled program overwrites it unless it is `reusable`."""
        if hosts.several():  # the games of other hosts are only known at a checkpoint
            return
        now = time.monotonic()
        if reusable:
            self.kept = (self.learner, self.step)
        elif now - self._kept_at >= KEEP_SECONDS:
            self.kept, self._kept_at = (jax.tree.map(np.array, self.learner), self.step), now

    def go_back(self) -> None:
        """Returns to the learner that was kept last."""
        if self.kept is not None:
            self.learner, self.step = self.kept


class StopOnInterrupt:
    """The first Ctrl-C asks the run to stop after its current rows, the second raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.asked = False
        self.raises = False  # the first one raises, too: nothing is lost by ending at once

    def handle(self, number: int, frame: Any) -> None:
        again, self.asked = self.asked, True
        if hosts.several() and not again:
            interrupt.finishing()  # all hosts stop after their current rows
        if again or self.raises:
            raise KeyboardInterrupt

    @contextmanager
    def raising(self, wanted: bool) -> Iterator[None]:
        self.raises = wanted
        try:
            yield
        finally:
            self.raises = False


@contextmanager
def stoppable() -> Iterator[StopOnInterrupt]:
    """Within this block, Ctrl-C becomes a StopOnInterrupt. Signals reach the main thread only."""
    request = StopOnInterrupt()
    old: Any = None
    with suppress(ValueError):
        old = signal.signal(signal.SIGINT, request.handle)
    try:
        yield request
    finally:
        if old is not None:
            signal.signal(signal.SIGINT, old)
