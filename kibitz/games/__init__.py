"""The built-in games, one folder each, and access to any registered game. Nothing outside a folder knows its rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kibitz.core.errors import BadInput
from kibitz.core.registry import env_ids, game_names, usable_games
from kibitz.core.registry import load_game as get_game

if TYPE_CHECKING:
    from kibitz.core.play.packs import Pack

DEFAULT_GAME = "deal_or_no_deal"  # of a command or function that names no game

__all__ = [
    "DEFAULT_GAME",
    "env_ids",
    "game_names",
    "get_environment",
    "get_game",
    "get_pack",
    "pack_names",
    "usable_games",
]


def pack_names(game: str) -> tuple[str, ...]:
    """The packs that a game ships."""
    shelf = get_game(game).packs
    return () if shelf is None else tuple(shelf().packs())


def get_pack(game: str, name: str) -> Pack:
    """A pack of a game by its name, or from a user's own file."""
    shelf = get_game(game).packs
    if shelf is None:
        raise BadInput(f"{game} has no packs; evaluate it with a number of episodes.")
    pack: Pack = shelf().pack(name)
    return pack


def get_environment(name: str) -> type[Any]:
    """The game's environment for agents that call tools: `reset(options)`, `step(action)`, `state`."""
    own = get_game(name).tool_env
    if own is not None:
        return own()
    from kibitz.core.envs.game_tool_env import tool_environment

    return tool_environment(name)
