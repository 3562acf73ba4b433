"""A person in a seat, who answers over HTTP."""

from __future__ import annotations

import secrets
import threading
import time
from typing import Any

import numpy as np
from jax import Array

from kibitz.core.act import Act
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.play.episode import table_for
from kibitz.core.play.player import Choice, Turn
from kibitz.live.episodes.halt import Halt
from kibitz.live.episodes.timeouts import Left


class NotYourTurn(Exception):
    """Nobody asks this seat now."""


class HumanSeat:
    """Waits for `submit` until the deadline, then raises; the episode loop lets the heuristic play."""

    name = "human"

    def __init__(self, game: Game, seconds: float, halt: Halt) -> None:
        self.token = secrets.token_urlsafe(24)
        self._game, self._seconds, self._halt = game, seconds, halt
        self._changed = threading.Condition()
        self._turn: Turn | None = None
        self._deadline: float | None = None
        self._answer: tuple[int, ...] | None = None

    def begin(self, settings: Any, seat: int, luck: Array) -> None:
        """Nothing to forget: a person remembers."""

    def choose(self, turn: Turn) -> Choice:
        with self._changed:
            self._turn, self._answer = turn, None
            self._deadline = time.time() + self._seconds
            ends = time.monotonic() + self._seconds
            try:
                while (answer := self._answered()) is None:
                    left = ends - time.monotonic()
                    if self._halt.is_set():
                        raise Left(self._halt.reason, self._halt.kind)
                    if left <= 0:
                        raise TimeoutError(f"no answer in {self._seconds:g} s")
                    self._changed.wait(min(left, 0.25))
                return Choice(answer, self.name)
            finally:
                self._turn = self._deadline = None

    def _answered(self) -> tuple[int, ...] | None:
        return self._answer

    def submit(self, act: list[int] | None, text: str | None, meant: int | None = None) -> str:
        """The act in words; BadInput says what would be legal. One that is meant for another turn is not taken."""
        with self._changed:
            turn = self._turn
            if turn is None or self._answer is not None:
                raise NotYourTurn("It is not your turn.")
            if meant not in (None, turn.number):
                raise NotYourTurn("That was meant for another turn; the game has gone on.")
            chosen = self._game.parse(text or "", turn.view, turn.masks) if act is None else tuple(act)
            # a head that does not matter may hold anything, but what it holds is stored and shown
            fits = all(0 <= value < len(mask) for value, mask in zip(chosen, turn.masks, strict=False))
            if not fits or not table_for(self._game).is_legal(turn.masks, chosen):
                legal = self._game.legal_text(turn.view, turn.masks)
                raise BadInput(f"The act {list(chosen)} is not legal now; you may say: {legal}")
            self._answer = chosen
            self._changed.notify_all()
        said: Act = chosen
        return self._game.say(said)

    def asked(self) -> dict[str, Any]:
        """What the page shows to the person."""
        with self._changed:
            turn, deadline, answered = self._turn, self._deadline, self._answer is not None
        if turn is None or answered:  # the loop takes its answer in a moment
            return {"your_turn": False, "deadline": None, "turn": None}
        hint = turn.hint
        return {
            "your_turn": True,
            "deadline": deadline,
            "turn": turn.number,
            "seat": turn.seat,
            "view_text": self._game.brief(turn.view),
            "legal_text": self._game.legal_text(turn.view, turn.masks),
            "fields": plain(self._game.fields(turn.view, turn.masks)),
            "masks": [np.asarray(mask).astype(bool).tolist() for mask in turn.masks],
            "heads": [head.name for head in self._game.heads],
            "hint": None
            if hint is None
            else {"act": list(hint.act), "text": self._game.say(hint.act), "reason": hint.reason},
        }


def plain(value: Any) -> Any:
    """The same in what JSON knows."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset | range):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if hasattr(value, "tolist"):
        return value.tolist()
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
