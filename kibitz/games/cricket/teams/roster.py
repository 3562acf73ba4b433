"""Sides and players with their names, on the host.

Settings are arrays and cannot hold names. So `Sides.team_ids` holds a hash of each side, and a table in
this process maps the hash back to the side: code that has a view or settings can find the names.
"""

from __future__ import annotations

import hashlib
from functools import cache
from threading import Lock
from typing import Any, Literal

from pydantic import Field, model_validator

from kibitz.core.options import Options
from kibitz.games.cricket.model.delivery import NO_PLAYER


class Player(Options):
    """A player with ratings from 0 to 100."""

    name: str = Field(min_length=1, max_length=40)
    hand: Literal["right", "left"] = "right"
    bowls: Literal["pace_right", "pace_left", "spin_off", "spin_leg", "spin_left_orth", "spin_left_wrist"] = (
        "pace_right"
    )
    keeper: bool = False
    strike: int = Field(50, ge=0, le=100, description="scores freely: fewer dots, more fours")
    power: int = Field(50, ge=0, le=100, description="hits sixes")
    safety: int = Field(50, ge=0, le=100, description="is hard to get out")
    versus_spin: int = Field(50, ge=0, le=100, description="runs against spin rather than pace")
    economy: int = Field(25, ge=0, le=100, description="concedes few runs")
    threat: int = Field(40, ge=0, le=100, description="takes wickets")
    control: int = Field(40, ge=0, le=100, description="bowls few wides")


class Eleven(Options):
    """A side in its batting order."""

    name: str = Field(min_length=1, max_length=40)
    players: tuple[Player, ...]

    @model_validator(mode="after")
    def _check_side(self) -> Eleven:
        if len(self.players) != 11:
            raise ValueError(f"{self.name} has {len(self.players)} players; a side has eleven.")
        keepers = sum(player.keeper for player in self.players)
        if keepers != 1:
            raise ValueError(f"{self.name} has {keepers} wicketkeepers; mark exactly one player 'keeper: true'.")
        names = [player.name for player in self.players]
        if len(set(names)) != 11:
            raise ValueError(f"{self.name} names a player twice; give each of the eleven a different name.")
        return self

    @property
    def keeper(self) -> int:
        return next(i for i, player in enumerate(self.players) if player.keeper)


_KNOWN: dict[int, Eleven] = {}
_LOCK = Lock()


def team_id(side: Eleven) -> int:
    """Registers the side and returns its id, a hash that is the same in every process."""
    digest = hashlib.blake2b(side.model_dump_json().encode(), digest_size=4).digest()
    number = int.from_bytes(digest) & 0x7FFFFFFF
    with _LOCK:
        while _KNOWN.setdefault(number, side) != side:  # hash collision: take the next free number
            number = (number + 1) & 0x7FFFFFFF
    return number


def side(number: Any) -> Eleven:
    """The side with this id, or a nameless one if this process has not registered it."""
    return _KNOWN.get(int(number)) or _nameless()


@cache
def _nameless() -> Eleven:
    players = (Player(name=f"no. {i + 1}", keeper=i == 5) for i in range(11))
    return Eleven(name="the side", players=tuple(players))


def name(number: Any, player: Any) -> str:
    """The player's name, or `nobody`."""
    return "nobody" if int(player) == NO_PLAYER else side(number).players[int(player)].name


def surname(full: str) -> str:
    """The name a commentator uses."""
    return full.split()[-1] if not full.startswith("no. ") else full


def role(eleven: Eleven, place: int) -> str:
    """keeper, batter, all-rounder or bowler."""
    player = eleven.players[place]
    if player.keeper:
        return "keeper"
    if player.economy < 35:
        return "batter"
    return "all-rounder" if place < 7 else "bowler"


def card(eleven: Eleven) -> dict[str, Any]:
    """A side as plain data, with the skills that captains may see."""
    players = []
    for place, player in enumerate(eleven.players):
        known = player.model_dump(exclude={"name", "hand", "bowls", "keeper"})
        players.append(
            {
                "name": player.name,
                "role": role(eleven, place),
                "bats": player.hand,
                "bowls": None if player.keeper else player.bowls,
                "skills": known,
            }
        )
    return {"name": eleven.name, "players": players}


def cast(settings: Any, state: Any) -> dict[str, Any]:
    """Both sides by seat, for pages and commentary."""
    team_ids = [int(settings.sides.team_ids[int(place)]) for place in state.elevens]
    return {"sides": [card(side(number)) for number in team_ids]}
