"""Packs: fixed sets of first positions, each played twice with the sides swapped, so that luck cancels.

A game's folder may have a module `pack` with two functions: `packs()` lists the names it ships and
`pack(name)` gives one, or reads a person's own file. Evaluation and task servers use nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from jax import Array


class Scenario(NamedTuple):
    """One match to play; whoever is judged sits in seat 0."""

    options: Any  # checked options of the game
    settings: Any  # their arrays; nobody has told anything yet
    state: Any  # the first position


def is_swapped(match: int | None) -> bool:
    """Whether it is the second match of its pair; None is no match of a pack."""
    return match is not None and match % 2 == 1


@dataclass(frozen=True, eq=False)
class Regret:
    """What a choice gave away, as far as one step shows it.

    `tables(options)` is worked out once on the host; `lost(tables, settings, state, acts)` is f32[2],
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
