"""What is installed, by entry point: games, kinds of players, Gymnasium ids. Nothing is imported before it is used.

A package registers a game in its pyproject.toml, the built-in games do the same:

    [project.entry-points."kibitz.games"]
    auction = "my_package:GAME"          # a Game, or a function of the options that returns one

    [project.entry-points."kibitz.players"]
    engine = "my_package.engine:KIND"    # a PlayerKind: `engine:NAME` is then a player everywhere

    [project.entry-points."kibitz.envs"]
    "Auction-v1" = "my_package.envs:AuctionEnv"   # beside `Kibitz/Auction-v0`, which every game has
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kibitz.core.errors import BadInput

if TYPE_CHECKING:
    from kibitz.core.game import Game

GAMES, PLAYERS, ENVS = "kibitz.games", "kibitz.players", "kibitz.envs"
_PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@cache
def registered(group: str) -> dict[str, EntryPoint]:
    """Entry points by name, kibitz's own first."""
    found = sorted(entry_points(group=group), key=lambda entry: (not entry.value.startswith("kibitz."), entry.name))
    if not any(entry.value.startswith("kibitz.") for entry in found):
        found = [*_from_checkout(group), *found]
    return {entry.name: entry for entry in found}


def _from_checkout(group: str) -> list[EntryPoint]:
    """kibitz's own entry points where it runs from a checkout that was never installed."""
    import tomllib

    declared = tomllib.loads(_PYPROJECT.read_text(encoding="utf-8"))["project"]["entry-points"]
    return [EntryPoint(name, value, group) for name, value in sorted(declared.get(group, {}).items())]


def game_names() -> list[str]:
    return list(registered(GAMES))


def load_game(name: str, options: Any = None) -> Game:
    """A game's record, built to fit the options; its package is imported only now."""
    entries = registered(GAMES)
    if name not in entries:
        raise BadInput(f"There is no game {name!r}; there are {', '.join(entries)}.")
    loaded = entries[name].load()
    game: Game = loaded(options) if callable(loaded) else loaded
    return game


def env_ids() -> dict[str, str]:
    """Gymnasium ids and the games they play; a game's own ids come before the generic one."""
    packages = {name: entry.module.partition(":")[0] for name, entry in registered(GAMES).items()}
    own = {
        env_id: name
        for env_id, entry in registered(ENVS).items()
        for name, package in packages.items()
        if f"{entry.module}.".startswith(f"{package}.")
    }
    return own | {generic_env_id(name): name for name in packages}


def generic_env_id(name: str) -> str:
    return f"Kibitz/{''.join(part.capitalize() for part in name.split('_'))}-v0"
