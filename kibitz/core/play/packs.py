"""Packs: fixed sets of first positions, each played twice with the sides swapped, so that luck cancels.

A record's `packs` returns an object with two functions: `packs()` lists the names that the game ships, and
`pack(name)` returns one, or reads a user's own file. Evaluation and task servers use nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from jax import Array


class Scenario(NamedTuple):
    """One match to play; the player under evaluation sits in seat 0."""

    options: Any  # checked options of the game
    settings: Any  # their arrays, before any player discloses anything
    state: Any  # the first position


def is_swapped(match: int | None) -> bool:
    """Whether this is the second match of its pair; None means no match of a pack."""
    return match is not None and match % 2 == 1


@dataclass(frozen=True, eq=False)
class Regret:
    """The value that a choice gave away, looking one step ahead.

    `tables(options)` is computed once on the host; `lost(tables, settings, state, acts)` is f32[2],
    at least 0: the value of the best choice each seat had less that of the choice it made.
    """

    tables: Callable[[Any], Any]
    lost: Callable[[Any, Any, Any, tuple[Any, Any]], Array]


@dataclass(frozen=True, eq=False)
class Pack:
    """Matches come in pairs: 2 i and 2 i + 1 are one scenario with the same luck and the sides swapped.

    In the second of a pair each seat also draws the other's luck, so that a player against itself
    wins exactly one of them.
    """

    name: str
    about: str  # a sentence
    pairs: int
    scenario: Callable[[int], Scenario]  # by match
    seed: Callable[[int], int]  # by match: what its luck comes from, the same within a pair
    regret: Regret | None = None

    @property
    def matches(self) -> int:
        return 2 * self.pairs
