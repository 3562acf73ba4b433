"""The registry: a game is one folder and one line here."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from kibitz.core.errors import BadInput

if TYPE_CHECKING:
    from kibitz.core.envs.tool_env import Environment
    from kibitz.core.game import Game
    from kibitz.core.play.packs import Pack

GAMES = {
    "deal_or_no_deal": "kibitz.games.deal_or_no_deal",
    "cricket": "kibitz.games.cricket",
}
ENV_IDS = {"DealOrNoDialog-v0": "deal_or_no_deal", "Cricket-v0": "cricket"}


def get_game(name: str, options: Any = None) -> Game:
    """A game's record, built to fit the options; the game's folder is imported only now."""
    game: Game = import_module(_folder(name)).game(options)
    return game


def pack_names(game: str) -> tuple[str, ...]:
    """The packs a game ships; none if its folder has no module `pack`."""
    names: tuple[str, ...] = import_module(f"{_folder(game)}.packs").packs() if _has_packs(game) else ()
    return names


def get_pack(game: str, name: str) -> Pack:
    """A pack of a game by its name, or from a person's own file."""
    if not _has_packs(game):
        raise BadInput(f"{game} has no packs; evaluate it with a number of episodes.")
    pack: Pack = import_module(f"{_folder(game)}.packs").pack(name)
    return pack


def get_environment(name: str) -> type[Environment]:
    """A game for agents that call tools: a class with `reset(options)`, `step(action)` and `state`."""
    offered: type[Environment] = import_module(_folder(name)).environment()
    return offered


def _has_packs(game: str) -> bool:
    return find_spec(f"{_folder(game)}.packs") is not None


def _folder(name: str) -> str:
    if name not in GAMES:
        raise BadInput(f"There is no game {name!r}; there are {', '.join(GAMES)}.")
    return GAMES[name]
