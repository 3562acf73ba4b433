"""Packs: fixed sets of first positions, each played twice with the sides swapped, so that luck cancels.

A record's `packs` returns an object with two functions: `packs()` lists the names that the game ships, and
`pack(name)` returns one, or reads a user's own file. Evaluation and task servers use nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from jax import Array

WHOLE = "default"  # the pack of whole episodes; every game accepts its name


class Scenario(NamedTuple):
    """One match to play; the player under evaluation sits in seat 0."""

    options: Any  # checked options of the game
    settings: Any  # their arrays, before any player discloses anything
    state: Any  # the first position
    adjustable: tuple[str, ...] = ()  # options that the position allows to change


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


class PackStart(NamedTuple):
    """How an episode from a pack begins."""

    options: Any
    state: Any
    seed: int
    match: int | None  # number in the pack; None: a fresh match


def is_plain(pack: str | None, match: int | None) -> bool:
    """Whether an episode is dealt by the game itself: without a pack, or as a fresh whole episode."""
    return pack is None or (pack == WHOLE and match is None)


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
    fresh: Callable[..., Scenario] | None = None
    """By seed: a match of the same kind that is not in the pack. `fits(options, adjustable)` leaves kinds out; NotFound
    if none is left."""

    @property
    def matches(self) -> int:
        return 2 * self.pairs

    def begin(self, match: int | None, seed: int, given: Mapping[str, Any]) -> PackStart:
        """Match number `match`, or a fresh one of the same kind, with those of the `given` options that it allows."""
        if match is None and self.fresh is not None:
            scenario = self.fresh(seed)
        else:
            match = (seed if match is None else match) % self.matches
            scenario, seed = self.scenario(match), self.seed(match)
        changed = {name: value for name, value in given.items() if name in scenario.adjustable}
        return PackStart(scenario.options.changed(changed), scenario.state, seed, match)
