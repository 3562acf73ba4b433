"""Players that may take too long."""

from __future__ import annotations

import queue
import threading
from typing import Any

from jax import Array

from kibitz.core.play.player import Choice, Player, Turn
from kibitz.core.play.recorder import Stopped
from kibitz.live.episodes.halt import Halt


class Left(Stopped, EOFError):
    """The episode ends while a player thinks. The episode loop lets an EOFError pass: nobody has to stand in."""


class Patient:
    """Gives a player so many seconds for a turn, then raises; the episode loop lets the heuristic play.

    One that still thinks about an old turn is not asked again until it has come back.
    """

    def __init__(self, player: Player, seconds: float, halt: Halt) -> None:
        self.name, self.player = player.name, player
        self._seconds, self._halt = seconds, halt
        self._asked: queue.SimpleQueue[Turn | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[int, Choice | BaseException]] = queue.SimpleQueue()
        self._busy = False
        self._worker: threading.Thread | None = None

    def begin(self, settings: Any, seat: int, luck: Array) -> None:
        self.player.begin(settings, seat, luck)

    def choose(self, turn: Turn) -> Choice:
        if self._busy:
            self._collect(0.0, turn.number)
        if self._busy:
            raise TimeoutError(f"{self.name} is still busy with an earlier turn")
        if self._worker is None:
            self._worker = threading.Thread(target=self._work, name=f"player {self.name}", daemon=True)
            self._worker.start()
        self._busy = True
        self._asked.put(turn)
        answer = self._wait(turn.number)
        if self._halt.is_set():
            raise Left(self._halt.reason, self._halt.kind)
        if answer is None:
            raise TimeoutError(f"{self.name}: no answer in {self._seconds:g} s")
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self) -> None:
        """The worker ends once it comes back."""
        if self._worker is not None:
            self._asked.put(None)

    def _wait(self, number: int) -> Choice | BaseException | None:
        step, left = 0.25, self._seconds
        while left > 0 and not self._halt.is_set():  # somebody who stops the episode should not wait for a player
            answer = self._collect(min(step, left), number)
            if answer is not None:
                return answer
            left -= step
        return None

    def _collect(self, seconds: float, number: int) -> Choice | BaseException | None:
        try:
            asked, answer = self._answers.get(timeout=seconds) if seconds else self._answers.get_nowait()
        except queue.Empty:
            return None
        self._busy = False
        return answer if asked == number else None

    def _work(self) -> None:
        while (turn := self._asked.get()) is not None:
            try:
                answer: Choice | BaseException = self.player.choose(turn)
            except Exception as error:  # a player is somebody else's code
                answer = error
            self._answers.put((turn.number, answer))
