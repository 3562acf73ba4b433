"""How an episode stops early, and players that may take too long."""

from __future__ import annotations

import queue
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from kibitz.core.errors import Stopped
from kibitz.core.play.thinking import HEAR

if TYPE_CHECKING:  # the server imports this module at its start, long before it needs JAX
    from jax import Array

    from kibitz.core.play.player import Choice, Player, Turn, TurnRequest

POLL_SECONDS = 0.25  # how soon a waiting player notices that the episode was stopped


class StopSignal(threading.Event):
    """Set once, with the reason and the kind that the episode's last event carries."""

    reason = ""
    kind = "stopped"

    def stop(self, reason: str, kind: str = "stopped") -> None:
        self.reason, self.kind = reason, kind
        self.set()


class EpisodeStopped(Stopped, EOFError):
    """The episode ends while a player is thinking. An EOFError leaves the episode loop."""

    def __init__(self, signal: StopSignal) -> None:
        super().__init__(signal.reason, signal.kind)


class TimeLimitedPlayer:
    """Gives a player a number of seconds per turn, then raises; the episode loop lets the heuristic play.

    A player that is still busy with an earlier turn is not asked again until it has returned.
    """

    def __init__(self, player: Player, seconds: float, signal: StopSignal) -> None:
        self.name, self.player = player.name, player
        self._seconds, self._signal = seconds, signal
        self._turns: queue.SimpleQueue[Turn | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[int, Choice | BaseException]] = queue.SimpleQueue()
        self._busy = False
        self._worker: threading.Thread | None = None
        self.thinking_about: int | None = None  # the number of the open turn
        self.words = ""  # of the answer so far, where the player receives it in pieces

    def begin(self, settings: Any, seat: int, luck: Array) -> None:
        self.player.begin(settings, seat, luck)

    def request(self, turn: Turn) -> TurnRequest | None:
        """Tells watchers that a player that takes its time is being asked; it needs no details."""
        from kibitz.core.play.player import TurnRequest

        return TurnRequest(self._seconds, {}) if getattr(self.player, "is_slow", False) else None

    def choose(self, turn: Turn) -> Choice:
        self.words, self.thinking_about = "", turn.number
        try:
            return self._choose(turn)
        finally:
            self.thinking_about = None

    def _choose(self, turn: Turn) -> Choice:
        if self._busy:
            self._collect(0.0, turn.number)
        if self._busy:
            raise TimeoutError(f"{self.name} is still busy with an earlier turn")
        if self._worker is None:
            self._worker = threading.Thread(target=self._work, name=f"player {self.name}", daemon=True)
            self._worker.start()
        self._busy = True
        self._turns.put(turn)
        answer = self._wait(turn.number)
        if self._signal.is_set():
            raise EpisodeStopped(self._signal)
        if answer is None:
            raise TimeoutError(f"{self.name}: no answer in {self._seconds:g} s")
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self) -> None:
        """The worker thread ends once the player returns."""
        if self._worker is not None:
            self._turns.put(None)

    def _wait(self, number: int) -> Choice | BaseException | None:
        left = self._seconds
        while left > 0 and not self._signal.is_set():
            answer = self._collect(min(POLL_SECONDS, left), number)
            if answer is not None:
                return answer
            left -= POLL_SECONDS
        return None

    def _collect(self, seconds: float, number: int) -> Choice | BaseException | None:
        try:
            asked, answer = self._answers.get(timeout=seconds) if seconds else self._answers.get_nowait()
        except queue.Empty:
            return None
        self._busy = False
        return answer if asked == number else None

    def _hear(self, number: int, text: str) -> None:
        if self.thinking_about == number:
            self.words = text

    def _work(self) -> None:
        while (turn := self._turns.get()) is not None:
            HEAR.set(partial(self._hear, turn.number))
            try:
                answer: Choice | BaseException = self.player.choose(turn)
            except Exception as error:  # a player is foreign code
                answer = error
            self._answers.put((turn.number, answer))
