"""The captain's tools: what each takes, when it is legal, and how calls become an act and an act becomes calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from kibitz.core.words import with_article
from kibitz.games.cricket.model.delivery import NO_PLAYER
from kibitz.games.cricket.model.tactics import ACCUMULATE, BALANCED, FIELDS, GOOD, INTENTS, PLANS
from kibitz.games.cricket.teams import roster
from kibitz.games.cricket.teams.ratings import VARIANTS

BAT, BOWL = "batting", "bowling"


class Tool(NamedTuple):
    """`role` is the side that may call the tool, or "" for both; `argument` is its only argument, or ""."""

    name: str
    role: str
    argument: str
    advances: bool
    description: str


TOOLS = {
    tool.name: tool
    for tool in (
        Tool("analyze_situation", "", "", False, "Phase, rates, par, match-ups and win probability. Plays no ball."),
        Tool("set_batting_plan", BAT, "intent", False, "How the batters play from now on."),
        Tool("choose_next_batter", BAT, "batter", False, "Who comes in when the next wicket falls."),
        Tool(
            "set_field",
            BOWL,
            "field",
            False,
            "The field from now on; a powerplay allows two men out.",
        ),
        Tool("choose_bowler", BOWL, "bowler", False, "Who bowls the next over."),
        Tool("set_bowling_plan", BOWL, "plan", False, "What to bowl from now on: length, line or a variation."),
        Tool("play_delivery", BAT, "", True, "Face one ball on the standing plan."),
        Tool("bowl_delivery", BOWL, "", True, "Bowl one ball on the standing plan."),
    )
}
FIXED_VALUES = {"intent": INTENTS, "field": FIELDS, "plan": PLANS}


class BadCall(ValueError):
    """A call that is not legal now; the message says what is."""


def schema(tool: Tool, values: tuple[str, ...] | None) -> dict[str, Any]:
    """JSON schema of the arguments. `values` are those open now; None allows any string."""
    if not tool.argument:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    kind: dict[str, Any] = {"type": "string"} if values is None else {"type": "string", "enum": list(values)}
    return {
        "type": "object",
        "properties": {tool.argument: kind},
        "required": [tool.argument],
        "additionalProperties": False,
    }


def legal_tools(role: str, values: Mapping[str, tuple[str, ...]]) -> list[dict[str, Any]]:
    """The tools that a captain may call now. A tool whose argument has no open value is omitted."""
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "advances": tool.advances,
            "arguments": schema(tool, values.get(tool.argument)),
        }
        for tool in _legal(role, values)
    ]


def _legal(role: str, values: Mapping[str, tuple[str, ...]]) -> list[Tool]:
    return [tool for tool in TOOLS.values() if tool.role in ("", role) and (not tool.argument or values[tool.argument])]


def check(role: str, values: Mapping[str, tuple[str, ...]], name: Any, arguments: Any) -> tuple[Tool, str]:
    """The tool and the value of its argument in the tool's own spelling, or BadCall."""
    tool = TOOLS.get(name) if isinstance(name, str) else None
    names = ", ".join(legal.name for legal in _legal(role, values))
    if tool is None:
        raise BadCall(f"There is no tool {_short(name)}; legal now: {names}.")
    if tool.role not in ("", role):
        raise BadCall(f"{tool.name} is for the {tool.role} side and you are {role}; legal now: {names}.")
    if not isinstance(arguments, Mapping):
        raise BadCall(f"The arguments of {tool.name} must be an object, not {_short(arguments)}.")
    if not tool.argument:
        if arguments:
            raise BadCall(f"{tool.name} takes no arguments; omit {_short(next(iter(arguments)))}.")
        return tool, ""
    if set(arguments) != {tool.argument}:
        given = ", ".join(_short(key) for key in arguments) or "none"
        raise BadCall(f"{tool.name} takes the argument {tool.argument!r} and no other; given: {given[:200]}.")
    opened = values[tool.argument]
    if not opened:
        raise BadCall(f"{tool.name} has no player to choose from now; legal now: {names}.")
    value = arguments[tool.argument]
    found = [x for x in opened if isinstance(value, str) and x.casefold() == value.strip().casefold()]
    if not found:
        raise BadCall(f"{tool.argument} {_short(value)} is not available now; choose one of {', '.join(opened)}.")
    return tool, found[0]


def _short(value: Any) -> str:
    """The value in a few characters; `repr` of an arbitrary value may be endless or fail."""
    if isinstance(value, str):
        return repr(value[:40])
    if value is None or isinstance(value, (bool, float)):
        return str(value)
    if isinstance(value, int):
        return str(value) if value.bit_length() < 64 else "a huge number"
    return with_article(type(value).__name__)


class Plans:
    """A captain's standing plans, and the act that they make for a ball.

    Plans stand until the captain changes them. The prepared order supplies players the captain has not chosen.
    """

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
        """Legal by construction: the neutral plan replaces one that has become illegal."""
        opened = [np.flatnonzero(mask).tolist() for mask in masks]
        if bool(view.bats):
            side = roster.side(view.batting_team_id)
            return (self._intent, GOOD, BALANCED, 0, _place(side, self._batter, opened[4], opened[4][0]))
        side = roster.side(view.bowling_team_id)
        field = self._field if self._field in opened[2] else BALANCED
        bowler = _place(side, self._bowler, opened[3], self._prepared(view, opened[3]))
        return (ACCUMULATE, self._plan, field, bowler, 0)

    def _prepared(self, view: Any, opened: list[int]) -> int:
        """The bowler of the prepared order; the best for a super over."""
        bowling, over = int(view.bowling_eleven), min(int(view.legal) // 6, 19)
        wanted = [int(self._orders[bowling, 0, over])]
        if int(view.supers):
            wanted = [int(player) for player in self._closers[bowling]]
        return next((player for player in wanted if player in opened), opened[-1])

    def played(self, view: Any) -> None:
        """Forgets the chosen bowler once that bowler's over has started."""
        if not bool(view.bats) and int(view.bowler) == NO_PLAYER:
            self._bowler = None

    def standing(self, view: Any) -> dict[str, str | None]:
        """The plans for the observation, without a batter who is no longer waiting."""
        waiting = int(view.waiting)
        side = roster.side(view.batting_team_id if bool(view.bats) else view.bowling_team_id)
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


def tool_calls(act: Any, seat: int, frame: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The calls with which the seat's captain would play this act from this frame, the ball last."""
    intent, plan, field, bowler, coming = (int(x) for x in act)
    if frame["batting"] == seat:
        made: list[tuple[str, dict[str, str]]] = [("set_batting_plan", {"intent": INTENTS[intent]})]
        if coming:
            made.append(("choose_next_batter", {"batter": roster.name(frame["marks"][frame["batting"]], coming)}))
        made.append(("play_delivery", {}))
    else:
        made = [("set_bowling_plan", {"plan": PLANS[plan]}), ("set_field", {"field": FIELDS[field]})]
        if not frame.get("bowler"):
            made.insert(0, ("choose_bowler", {"bowler": roster.name(frame["marks"][1 - frame["batting"]], bowler)}))
        made.append(("bowl_delivery", {}))
    return [{"tool": tool, "arguments": arguments} for tool, arguments in made]
