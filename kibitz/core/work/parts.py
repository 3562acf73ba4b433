"""Work on a game in parts that workers compute: the game as a worker finds it again, and a range of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.registry import load_game
from kibitz.core.system.interrupt import finishing
from kibitz.core.work.executor import Executor, Item, Work


def game_spec(game: Game, options: Any = None) -> dict[str, Any]:
    """A game with its options, or with its default ones, for `spec_game` in a worker."""
    given = None if options is None else options.model_dump(mode="json")
    return {"game": game.name, "game_version": game.version, "options": given}


def spec_game(spec: Mapping[str, Any]) -> tuple[Game, Any]:
    """In a worker: the game of `game_spec`, built for its options, and the options."""
    game = load_game(spec["game"])
    options = game.default_options if spec["options"] is None else game.options.read(spec["options"], "option")
    game = load_game(spec["game"], options)
    if game.version != spec["game_version"]:
        raise BadInput(
            f"A worker has version {game.version} of {game.name}, not {spec['game_version']}; "
            "install one kibitz everywhere."
        )
    return game, options


def in_parts(
    executor: Executor, work: Work, total: int, size: int, progress: Callable[[int], None]
) -> tuple[list[Any], bool]:
    """The results of all parts, in their order. After Ctrl-C only those before the first gap, and True."""
    starts = range(0, total, size)
    items = (Item({"start": start, "count": min(size, total - start)}) for start in starts)
    found: dict[int, Any] = {}
    try:
        for item, result in executor.run(work, items):
            found[item.arguments["start"]] = result
            progress(item.arguments["count"])
    except KeyboardInterrupt:
        if 0 not in found:
            raise
        finishing()
        whole = next(place for place, start in enumerate(starts) if start not in found)
        return [found[start] for start in starts[:whole]], True
    return [found[start] for start in starts], False
