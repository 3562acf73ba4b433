"""A captain's standing plans, and the act they make of a ball."""

from __future__ import annotations

from typing import Any

import numpy as np

from kibitz.games.cricket.laws.state import NOBODY
from kibitz.games.cricket.model.tactics import ACCUMULATE, BALANCED, FIELDS, GOOD, INTENTS, PLANS
from kibitz.games.cricket.teams import roster
from kibitz.games.cricket.teams.ratings import VARIANTS


class Plans:
    """They stand until they are changed; men who were not chosen come by the order prepared before the match."""

    def __init__(self, settings: Any) -> None:
        self._orders = np.asarray(settings.sides.orders).reshape(-1, VARIANTS, 20)
        self._closers = np.asarray(settings.sides.closers).reshape(-1, 2)
        self._intent, self._plan, self._field = ACCUMULATE, GOOD, BALANCED
        self._batter: str | None = None
        self._bowler: str | None = None

    def set(self, argument: str, value: str) -> None:
        if argument == "intent":
            self._intent = INTENTS.index(value)
        elif argument == "plan":
            self._plan = PLANS.index(value)
        elif argument == "field":
            self._field = FIELDS.index(value)
        elif argument == "batter":
            self._batter = value
        else:
            self._bowler = value

    def act(self, view: Any, masks: Any) -> tuple[int, ...]:
        """Legal by construction: a plan that has become illegal gives way to the neutral one."""
        opened = [np.flatnonzero(mask).tolist() for mask in masks]
        if bool(view.bats):
            side = roster.side(view.batting_mark)
            return (self._intent, GOOD, BALANCED, 0, _place(side, self._batter, opened[4], opened[4][0]))
        side = roster.side(view.bowling_mark)
        field = self._field if self._field in opened[2] else BALANCED
        return (ACCUMULATE, self._plan, field, _place(side, self._bowler, opened[3], self._usual(view, opened[3])), 0)

    def _usual(self, view: Any, opened: list[int]) -> int:
        """By the prepared order; the best man for a super over."""
        bowling, over = int(view.bowling_eleven), min(int(view.legal) // 6, 19)
        wanted = [int(self._orders[bowling, 0, over])]
        if int(view.supers):
            wanted = [int(player) for player in self._closers[bowling]]
        return next((player for player in wanted if player in opened), opened[-1])

    def played(self, act: tuple[int, ...], view: Any) -> None:
        """A chosen bowler has his over now; he is not asked again by himself."""
        if not bool(view.bats) and int(view.bowler) == NOBODY:
            self._bowler = None

    def standing(self, view: Any) -> dict[str, str | None]:
        """As the captain may read them; a man who is out or bowling no longer stands."""
        waiting = int(view.waiting)
        side = roster.side(view.batting_mark if bool(view.bats) else view.bowling_mark)
        batter = self._batter
        if bool(view.bats) and batter is not None:
            places = [i for i, player in enumerate(side.players) if player.name == batter]
            batter = batter if places and waiting >> places[0] & 1 else None
        return {
            "intent": INTENTS[self._intent],
            "batter": batter,
            "plan": PLANS[self._plan],
            "field": FIELDS[self._field],
            "bowler": self._bowler,
        }


def _place(side: Any, name: str | None, opened: list[int], otherwise: int) -> int:
    return next((i for i in opened if side.players[i].name == name), otherwise)
