"""A person at the terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax import Array

from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.play.player import Choice, Turn
from kibitz.core.play.resolve import PlayerKind


class HumanPlayer:
    """Asks until the answer is a legal act, so invalid input never ends the game."""

    name = "human"

    def __init__(self, game: Game, ask: Callable[[str], str] = input, show: Callable[[str], None] = print) -> None:
        self._game, self._ask, self._show = game, ask, show

    def begin(self, settings: Any, seat: int, luck: Array) -> None:
        """Does nothing: a person remembers."""

    def choose(self, turn: Turn) -> Choice:
        self._show(self._game.words.position_text(turn.view))
        if turn.hint is not None:
            self._show(f"Your adviser: {_hint_text(self._game, turn.hint)}")
        self._show(f"You may type: {self._game.words.choices_text(turn.view, turn.masks)}")
        while True:
            try:
                return Choice(self._game.words.parse(turn.view, turn.masks, self._ask("> ")), self.name)
            except BadInput as error:
                self._show(str(error))
            except ValueError:  # undecodable bytes, a number of thousands of digits
                self._show("This input cannot be read; try again.")


def _hint_text(game: Game, hint: Choice) -> str:
    """A hint in one line: the act, how sure the adviser is, and why."""
    sure = "" if hint.confidence is None else f" ({hint.confidence:.0%} sure)"
    return f"{game.words.act_text(hint.act)}{sure}" + (f". {hint.reason}" if hint.reason else "")


KIND = PlayerKind(make=lambda game, rest, resolver: HumanPlayer(game), placeholder="", interactive=True)
