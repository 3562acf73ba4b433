"""A person's seat: answered over HTTP, within a time limit."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
from jax import Array

from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.play.episode import table_for
from kibitz.core.play.player import Choice, Turn, TurnRequest
from kibitz.live.episodes.request import HUMAN
from kibitz.live.episodes.timeouts import POLL_SECONDS, EpisodeStopped, StopSignal

JOIN_SECONDS = 600.0  # for two people to get and open their links before the clock of the first turn starts
NOT_ASKED: dict[str, Any] = {"your_turn": False, "seconds_left": None, "turn": None}


class NotYourTurn(Exception):
    """The act came when this seat was not being asked."""


class HumanSeat:
    """Waits for `submit` until the time limit, then raises; the episode loop lets the heuristic play."""

    name = HUMAN

    def __init__(self, game: Game, seconds: float, signal: StopSignal) -> None:
        self._game, self._seconds, self._signal = game, seconds, signal
        self._changed = threading.Condition()  # reentrant
        self._turn: Turn | None = None
        self._details: dict[str, Any] = {}
        self._ends = 0.0  # by the monotonic clock
        self._answer: tuple[int, ...] | None = None
        self.join_seconds = 0.0  # added to the time limit until the person joins

    def join(self) -> None:
        """The person is here: from now on each turn has its usual time limit, the open one too."""
        with self._changed:
            if self.join_seconds:
                self.join_seconds, self._ends = 0.0, time.monotonic() + self._seconds

    def begin(self, settings: Any, seat: int, luck: Array) -> None:
        """Keeps no memory between episodes."""

    def request(self, turn: Turn) -> TurnRequest:
        """Opens the turn: from here on `submit` accepts an act for it."""
        details = self._describe(turn)
        with self._changed:
            self._turn, self._details, self._answer = turn, details, None
            self._ends = time.monotonic() + self._seconds + self.join_seconds
        return TurnRequest(self._seconds, details)

    def choose(self, turn: Turn) -> Choice:
        with self._changed:
            if self._turn is not turn:
                self.request(turn)
            try:
                while (answer := self._submitted()) is None:
                    left = self._ends - time.monotonic()
                    if self._signal.is_set():
                        raise EpisodeStopped(self._signal)
                    if left <= 0:
                        self.join_seconds = 0.0  # the person never joined
                        raise TimeoutError(f"no answer in {self._seconds:g} s")
                    self._changed.wait(min(left, POLL_SECONDS))
                return Choice(answer, self.name)
            finally:
                self._turn = None

    def _submitted(self) -> tuple[int, ...] | None:
        return self._answer

    def submit(self, act: list[int] | None, text: str | None, meant: int | None = None) -> str:
        """Accepts an act and returns it in words. BadInput names the legal acts; `meant` is the turn it is for."""
        with self._changed:
            turn = self._turn
            if turn is None or self._answer is not None:
                raise NotYourTurn("It is not your turn.")
            if meant not in (None, turn.number):
                raise NotYourTurn("That was meant for another turn; the game has moved on.")
            chosen = self._game.words.parse(turn.view, turn.masks, text or "") if act is None else tuple(act)
            # a head that does not matter may hold any value, but the value is stored and shown
            fits = all(0 <= value < len(mask) for value, mask in zip(chosen, turn.masks, strict=False))
            if not fits or not table_for(self._game).is_legal(turn.masks, chosen):
                legal = self._game.words.choices_text(turn.view, turn.masks)
                raise BadInput(f"The act {list(chosen)} is not legal now; legal choices: {legal}")
            self._answer = chosen
            self._changed.notify_all()
        return self._game.words.act_text(chosen)

    def asked(self) -> dict[str, Any]:
        """The open turn, or that there is none; an answered turn counts as closed.

        `seconds_left` counts from now, so a client need not compare its clock with the server's.
        """
        with self._changed:
            if self._turn is None or self._answer is not None:
                return NOT_ASKED
            return self._details | {"seconds_left": min(self._seconds, max(0.0, self._ends - time.monotonic()))}

    def _describe(self, turn: Turn) -> dict[str, Any]:
        words, hint, advice = self._game.words, turn.hint, None
        if hint is not None:
            advice = {"act": list(hint.act), "text": words.act_text(hint.act), "reason": hint.reason}
        return {
            "your_turn": True,
            "turn": turn.number,
            "seat": turn.seat,
            "view_text": words.position_text(turn.view),
            "legal_text": words.choices_text(turn.view, turn.masks),
            "fields": plain(words.answer_fields(turn.view, turn.masks)),
            "notes": plain(words.choice_notes(turn.settings, turn.view, turn.masks)),
            "masks": [np.asarray(mask).astype(bool).tolist() for mask in turn.masks],
            "heads": [head.name for head in self._game.heads],
            "hint": advice,
        }


def plain(value: Any) -> Any:
    """The same as JSON types."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset | range):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if hasattr(value, "tolist"):
        return value.tolist()
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
