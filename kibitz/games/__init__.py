"""The registry: a game is one folder and one line here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kibitz.core.errors import BadInput

if TYPE_CHECKING:
    from kibitz.core.environment import Environment
    from kibitz.core.game import Game

GAMES = {
    "deal_or_no_deal": "kibitz.games.deal_or_no_deal",
    "cricket": "kibitz.games.cricket",
}
ENV_IDS = {"DealOrNoDialog-v0": "deal_or_no_deal"}


def get_game(name: str, options: Any = None) -> Game:
    """A game's record, built to fit the options; the game's folder is imported only now."""
    if name not in GAMES:
        raise BadInput(f"There is no game {name!r}; there are {', '.join(GAMES)}.")
    game: Game = import_module(GAMES[name]).game(options)
    return game


def get_environment(name: str) -> type[Environment]:
    """A game for agents that call tools: a class with `reset(options)`, `step(action)` and `state`."""
    if name not in GAMES:
        raise BadInput(f"There is no game {name!r}; there are {', '.join(GAMES)}.")
    offered: type[Environment] = import_module(GAMES[name]).environment()
    return offered
