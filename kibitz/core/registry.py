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

import logging
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from kibitz.core.errors import BadInput
from kibitz.core.system.logs import log_once

if TYPE_CHECKING:
    from kibitz.core.game import Game

log = logging.getLogger("kibitz")
GAMES, PLAYERS, ENVS = "kibitz.games", "kibitz.players", "kibitz.envs"
_JAX_LOCK = RLock()
_PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@cache
def registered(group: str) -> dict[str, EntryPoint]:
    """Entry points by name, kibitz's own first; no other package can replace one of those."""
    found = sorted(entry_points(group=group), key=lambda entry: (not entry.value.startswith("kibitz."), entry.name))
    if not any(entry.value.startswith("kibitz.") for entry in found):
        found = [*_from_checkout(group), *found]
    by_name: dict[str, EntryPoint] = {}
    for entry in found:
        by_name.setdefault(entry.name, entry)
    return by_name


def _from_checkout(group: str) -> list[EntryPoint]:
    """kibitz's own entry points where it runs from a checkout that was never installed."""
    import tomllib

    declared = tomllib.loads(_PYPROJECT.read_text(encoding="utf-8"))["project"]["entry-points"]
    return [EntryPoint(name, value, group) for name, value in sorted(declared.get(group, {}).items())]


def import_jax() -> None:
    """Imports JAX, one thread at a time.

    JAX's modules import each other in cycles. If two threads begin to import it at the same time, Python
    breaks the deadlock by showing one of them a half-initialised module. Threads that are about to load
    modules which need JAX call this first.
    """
    with _JAX_LOCK:
        import jax.numpy  # noqa: F401


def load(entry: EntryPoint) -> Any:
    """What an entry point names. A package that cannot be imported is the user's to repair: BadInput."""
    import_jax()
    try:
        return entry.load()
    except BadInput:
        raise
    except Exception as error:  # whatever a foreign module raises while it is imported
        raise BadInput(
            f"{entry.name!r} of {entry.group} cannot be loaded from {entry.value} "
            f"({type(error).__name__}: {error}); repair or uninstall its package."
        ) from error


def game_names() -> list[str]:
    return list(registered(GAMES))


def is_built_in(name: str) -> bool:
    """Whether the game is part of kibitz."""
    return name in game_names() and registered(GAMES)[name].value.startswith("kibitz.")


def usable_games() -> list[str]:
    """Every game that can be loaded: a broken package must not take the rest down."""
    return [name for name in game_names() if is_usable(name)]


def is_usable(name: str) -> bool:
    """Whether the game can be loaded; logs once why it cannot."""
    try:
        load_game(name)
    except Exception as error:
        log_once(log, f"The game {name!r} is not available: {error}")
        return False
    return True


def load_game(name: str, options: Any = None) -> Game:
    """A game's record, built to fit the options; its package is imported only now."""
    entries = registered(GAMES)
    if name not in entries:
        raise BadInput(f"There is no game {name!r}; choose one of {', '.join(entries)}.")
    loaded = load(entries[name])
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
