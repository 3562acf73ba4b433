"""The captain's tools: what each takes, when it is legal, and what is wrong with a bad call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kibitz.games.cricket.model.tactics import FIELDS, INTENTS, PLANS

BAT, BOWL = "batting", "bowling"


class Spec(NamedTuple):
    """`role` is the side that may call it, or "" for both; `argument` its only argument, or ""."""

    name: str
    role: str
    argument: str
    advances: bool
    about: str


SPECS = {
    spec.name: spec
    for spec in (
        Spec(
            "analyze_situation", "", "", False, "Phase, rates, par, match-ups and win probability. No ball is played."
        ),
        Spec("set_batting_plan", BAT, "intent", False, "How the batters play from now on."),
        Spec("choose_next_batter", BAT, "batter", False, "Who comes in when the next wicket falls."),
        Spec("set_field", BOWL, "field", False, "The field from now on; only two men are out in the powerplay."),
        Spec("choose_bowler", BOWL, "bowler", False, "Who bowls the next over that begins."),
        Spec("set_bowling_plan", BOWL, "plan", False, "What is bowled from now on: length, line, or a variation."),
        Spec("play_delivery", BAT, "", True, "Face one ball on the standing plan."),
        Spec("bowl_delivery", BOWL, "", True, "Bowl one ball on the standing plan."),
    )
}
FIXED = {"intent": INTENTS, "field": FIELDS, "plan": PLANS}


class BadCall(ValueError):
    """A call that cannot be made now; the sentence says what would be right."""


def schema(spec: Spec, values: tuple[str, ...] | None) -> dict[str, Any]:
    """JSON schema of the arguments; `values` are those open now, none for any name."""
    if not spec.argument:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    kind: dict[str, Any] = {"type": "string"} if values is None else {"type": "string", "enum": list(values)}
    return {
        "type": "object",
        "properties": {spec.argument: kind},
        "required": [spec.argument],
        "additionalProperties": False,
    }


def legal(role: str, values: Mapping[str, tuple[str, ...]]) -> list[dict[str, Any]]:
    """The tools a captain may call now; one whose argument has no open value is not among them."""
    return [
        {
            "name": spec.name,
            "description": spec.about,
            "advances": spec.advances,
            "arguments": schema(spec, values.get(spec.argument)),
        }
        for spec in SPECS.values()
        if spec.role in ("", role) and (not spec.argument or values[spec.argument])
    ]


def check(role: str, values: Mapping[str, tuple[str, ...]], tool: Any, arguments: Any) -> tuple[Spec, str]:
    """The tool and its argument's value as it is spelt here, or BadCall."""
    spec = SPECS.get(tool) if isinstance(tool, str) else None
    names = ", ".join(s.name for s in SPECS.values() if s.role in ("", role) and (not s.argument or values[s.argument]))
    if spec is None:
        raise BadCall(f"There is no tool {_short(tool)}; legal now: {names}.")
    if spec.role not in ("", role):
        raise BadCall(f"{spec.name} is for the {spec.role} side and you are {role}; legal now: {names}.")
    if not isinstance(arguments, Mapping):
        raise BadCall(f"The arguments of {spec.name} should be a table, not {_short(arguments)}.")
    if not spec.argument:
        if arguments:
            raise BadCall(f"{spec.name} takes no arguments, not {_short(next(iter(arguments)))}.")
        return spec, ""
    if set(arguments) != {spec.argument}:
        given = ", ".join(_short(name) for name in arguments) or "none"
        raise BadCall(f"{spec.name} takes the argument {spec.argument!r} and no other; given: {given[:200]}.")
    opened = values[spec.argument]
    if not opened:
        raise BadCall(f"{spec.name} has nobody to choose from now; legal now: {names}.")
    value = arguments[spec.argument]
    found = [x for x in opened if isinstance(value, str) and x.casefold() == value.strip().casefold()]
    if not found:
        raise BadCall(f"{spec.argument} {_short(value)} is not open now; there are {', '.join(opened)}.")
    return spec, found[0]


def _short(value: Any) -> str:
    """Whatever was given, in a few characters; `repr` of a stranger's value may be endless or fail."""
    if isinstance(value, str):
        return repr(value[:40])
    if value is None or isinstance(value, (bool, float)):
        return str(value)
    if isinstance(value, int):
        return str(value) if value.bit_length() < 64 else "a huge number"
    return f"a {type(value).__name__}"
