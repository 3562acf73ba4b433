"""An evaluation in parts, which workers play. Joined in their order they are what one process would have played."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kibitz.core.errors import BadInput
from kibitz.core.work.executor import Executor, Here
from kibitz.evaluate.host_games import games_at_once
from kibitz.evaluate.tally import Tallies

COMPILED_PART = 2048  # episodes of bots, about a second of a slow one
HOST_PART = 16


def can_share(executor: Executor, sides: Sequence[Any]) -> bool:
    """A player that counts the hints it asks for must stay where its counts are read."""
    return not isinstance(executor, Here) and not any(hasattr(side.player, "hint_counts") for side in sides)


def check_out(out: Any, executor: Executor | None) -> None:
    if out is not None and executor is not None and not isinstance(executor, Here):
        raise BadInput("--out keeps episodes of one process; omit --workers and --ray, or use `kibitz tournament`.")


def found_as(sides: Sequence[Any]) -> list[Any]:
    """Each player's name for a worker, and whether it hears hints."""
    return [[side.pinned or side.name, side.hint] for side in sides]


def size_of(executor: Executor, sides: Sequence[Any], episodes: int) -> int:
    """An even number of episodes, so that no worker is idle for long."""
    largest = COMPILED_PART
    if any(side.bot is None for side in sides):
        largest = max(HOST_PART, games_at_once([side.player for side in sides]))
    return 2 * max(1, min(largest, episodes // (4 * executor.workers)) // 2)


def joined(parts: Sequence[Any]) -> Any:
    """One tuple of results from those of the parts: rows of arrays, and costs counted in the same order."""
    values: dict[str, Any] = {}
    for name in parts[0]._fields:
        pieces = [getattr(part, name) for part in parts]
        if isinstance(pieces[0], np.ndarray):
            values[name] = np.concatenate(pieces)
        elif isinstance(pieces[0], dict):
            values[name] = {key: np.concatenate([piece[key] for piece in pieces]) for key in pieces[0]}
        elif isinstance(pieces[0], Tallies):
            values[name] = Tallies()
            for piece in pieces:
                values[name].count(piece.decisions)
    return parts[0]._replace(**values)
