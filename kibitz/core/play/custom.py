"""Players that users write themselves: functions, classes and bots, as objects or named `module:NAME`."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

from kibitz.core.bots import Bot
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.play.player import Choice, Player, Turn

Act: TypeAlias = Choice | tuple[int, ...] | str  # a string is read as `kibitz play` reads it
PlayerLike: TypeAlias = Bot | Player | Callable[[Turn], Act]
OBJECT_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


class FunctionPlayer:
    """Asks a function of the turn, which keeps no state between turns."""

    def __init__(self, game: Game, function: Callable[[Turn], Act], name: str = "") -> None:
        given = getattr(function, "__name__", type(function).__name__)
        self.name = name or (given if given.isidentifier() else "function")
        self._game, self._function = game, function

    def begin(self, settings: Any, seat: int, luck: Any) -> None:
        """Does nothing: every turn contains the whole history."""

    def choose(self, turn: Turn) -> Choice:
        said = self._function(turn)
        if isinstance(said, Choice):
            return said
        if isinstance(said, str):
            return Choice(self._game.words.parse(turn.view, turn.masks, said), self.name)
        return Choice(tuple(int(head) for head in np.asarray(said).reshape(-1)), self.name)


def as_player(game: Game, given: PlayerLike, name: str = "") -> Bot | Player:
    """A bot or a player as it is, a player for any other callable; a class is called with the game, or with nothing."""
    if isinstance(given, Bot):
        return given
    made: Any = _instance(game, given) if isinstance(given, type) else given
    if hasattr(made, "begin") and hasattr(made, "choose"):
        if not getattr(made, "name", ""):
            made.name = name or type(made).__name__
        player: Player = made
        return player
    if callable(made):
        return FunctionPlayer(game, made, name)
    raise BadInput(
        f"{type(given).__name__} cannot play; give a name, a function of the turn, or an object with begin and choose."
    )


def imported_player(game: Game, name: str) -> Bot | Player:
    """The player that `module:NAME` names, from a module here or an installed one."""
    module, _, attribute = name.partition(":")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)  # a console script does not look here by itself
    try:
        found = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module exists and needs another one
        raise BadInput(
            f"There is no player and no module for {name!r}; see `kibitz list players`, or name a file here."
        ) from None
    except AttributeError:
        raise BadInput(f"The module {module!r} has no {attribute!r}; name a class or a function in it.") from None
    return as_player(game, found, name)


def _instance(game: Game, kind: type) -> Any:
    try:
        required = [
            parameter
            for parameter in inspect.signature(kind).parameters.values()
            if parameter.default is parameter.empty
            and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        required = []
    if len(required) > 1:
        raise BadInput(f"{kind.__name__} needs {len(required)} arguments; a player's class takes the game, or nothing.")
    return kind(game) if required else kind()
