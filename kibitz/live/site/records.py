"""Players' records as pages show them: wins only where the returns of the two seats can be compared."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import cache
from typing import Any

from kibitz.core.registry import import_jax

log = logging.getLogger("kibitz.live")


def comparable(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records, without wins and draws in games that have no winner. Loads the games: call it off the event loop."""
    return [one if has_winner(one["game"]) else one | {"wins": None, "draws": None} for one in records]


@cache
def has_winner(name: str) -> bool:
    """Whether the game measures `win`. Elsewhere both seats may gain, or each counts in points of its own."""
    import_jax()
    from kibitz.core.game import blank
    from kibitz.games import game_names, get_game

    try:
        game = get_game(name) if name in game_names() else None
        return game is not None and "win" in blank(game.measures.score, game.default_settings, game.example)
    except Exception:  # a foreign game that cannot be imported; the list of games says so
        log.debug("the game %s cannot be loaded", name, exc_info=True)
        return False
