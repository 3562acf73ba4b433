"""The match in words: prompt variables, the answer's fields, acts said and typed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from kibitz.core.errors import BadInput
from kibitz.games.cricket import winprob
from kibitz.games.cricket.ball import HOWS, NO_BALL, NOTHING, TYPES, WIDE
from kibitz.games.cricket.state import NOBODY
from kibitz.games.cricket.tactics import FIELDS, INTENTS, PHASES, PLANS

CONFIDENCES = tuple(tenth / 10 for tenth in range(11))
HEAD_VALUES = {"intent": INTENTS, "plan": PLANS, "field": FIELDS}
NAMES = ("intent", "plan", "field", "bowler", "next_batter")


def overs_text(legal: int) -> str:
    """`14.2` for 86 balls."""
    return f"{legal // 6}.{legal % 6}"


def player(index: int) -> str:
    """Without names at hand: the place in the batting order."""
    return "nobody" if index == NOBODY else f"no. {index + 1}"


def outcome_text(ball: Any) -> str:
    """What the last ball brought, in a few words."""
    outcome, runs, how = int(ball.outcome), int(ball.runs), int(ball.how)
    if outcome == NOTHING:
        return "no ball yet"
    if how:
        return f"wicket, {HOWS[how]}" + (f", {runs} run" + "s" * (runs > 1) if runs else "")
    if outcome == WIDE:
        return f"wide, {runs} in all"
    if outcome == NO_BALL:
        return f"no-ball, {runs} in all, free hit"
    if outcome == 9:
        return f"{runs} {'leg bye' if ball.leg_bye else 'bye'}" + "s" * (runs > 1)
    return {0: "dot ball", 4: "four", 6: "six"}.get(runs, f"{runs} run" + "s" * (runs > 1))


def describe(settings: Any, view: Any, history: list[Mapping[str, Any]]) -> dict[str, str]:
    """Prompt variables; every one is a string and none knows more than the view."""
    left, second = int(view.balls_left), bool(view.second)
    needed = int(view.first) + 1 - int(view.score)
    chance = _chance(settings, view)
    bats = bool(view.bats)
    return {
        "role": "batting" if bats else "bowling",
        "overs": str(int(settings.overs)),
        "innings": "super over" if int(view.supers) else "chase" if second else "first innings",
        "score": f"{int(view.score)}/{int(view.wickets)}",
        "over_now": overs_text(int(view.legal)),
        "balls_left": str(left),
        "target": str(int(view.first) + 1) if second else "none",
        "needed": str(needed) if second else "none",
        "required_rate": f"{6 * needed / max(left, 1):.1f}" if second else "none",
        "run_rate": f"{6 * int(view.score) / max(int(view.legal), 1):.1f}",
        "phase": "powerplay" if bool(view.powerplay) else PHASES[_phase(view)],
        "striker": f"{player(int(view.striker))}, {int(view.faced[0])} balls faced",
        "non_striker": f"{player(int(view.other))}, {int(view.faced[1])} balls faced",
        "bowler": player(int(view.bowler)) + f", {TYPES[int(view.bowler_type)].replace('_', ' ')}",
        "free_hit": "yes" if bool(view.free_hit) else "no",
        "last_ball": outcome_text(view.ball),
        "win_probability": f"{chance if bats else 1 - chance:.2f}",
        "history_str": "\n".join(history_line(entry) for entry in history[-12:]),
        "legal_players": ", ".join(
            str(i) for i in range(11) if (int(view.waiting if bats else view.may_bowl) >> i) & 1
        ),
    }


def brief(view: Any) -> str:
    """The position, for the person in the seat."""
    doing = "You are batting" if bool(view.bats) else "You are bowling"
    board = f"{int(view.score)}/{int(view.wickets)} after {overs_text(int(view.legal))} overs"
    chasing = f", {int(view.first) + 1 - int(view.score)} needed from {int(view.balls_left)} balls"
    middle = f"{player(int(view.striker))} on strike, {player(int(view.bowler))} bowling"
    extra = " Free hit." if bool(view.free_hit) else ""
    return f"{doing}: {board}{chasing if bool(view.second) else ''}; {middle}.{extra}"


def _phase(view: Any) -> int:
    over = int(view.twenty_over)
    return (over >= 6) + (over >= 15)


def _chance(settings: Any, view: Any) -> float:
    return winprob.win_probability(
        second=bool(view.second),
        score=int(view.score),
        first=int(view.first),
        legal=int(view.legal),
        wickets=int(view.wickets),
        overs=int(settings.overs),
        era=int(settings.era),
        supers=int(view.supers),
    )


def history_line(entry: Mapping[str, Any]) -> str:
    return f"seat {entry['seat']}: {say(entry['act'])}" if "act" in entry else str(entry.get("text", ""))


def fields(view: Any, masks: Any) -> dict[str, Any]:
    """The answer's fields with the values that are open now: only what this side chooses."""
    opened = [np.flatnonzero(np.asarray(mask)).tolist() for mask in masks]
    mine = (0, 4) if bool(view.bats) else (1, 2, 3)
    chosen: dict[str, Any] = {}
    for head in mine:
        name = NAMES[head]
        chosen[name] = [HEAD_VALUES[name][i] for i in opened[head]] if name in HEAD_VALUES else opened[head]
    return chosen | {"confidence": list(CONFIDENCES)}


def say(act: Any) -> str:
    """Every head of an act in words; the side decides which of them count."""
    intent, plan, field, bowler, coming = (int(x) for x in act)
    bat = f"bat {INTENTS[intent]} (then {player(coming)})"
    return f"{bat}; bowl {PLANS[plan]} to a {FIELDS[field]} field ({player(bowler)})"


def parse(text: str, view: Any, masks: Any) -> tuple[int, ...]:
    """What a person typed: `attack`, `attack 5`, `yorker death`, `good balanced 9`. Players count from 1."""
    words = re.findall(r"[a-z_]+|\d+", text.lower())
    if not words:
        raise BadInput(f"Type one of {legal_text(view, masks)}.")
    opened = [np.flatnonzero(np.asarray(mask)).tolist() for mask in masks]
    act = [values[0] for values in opened]
    mine = [0] if bool(view.bats) else [1, 2]
    who = 4 if bool(view.bats) else 3
    for head in mine:
        act[head] = act[head] if head != 2 else (1 if 1 in opened[2] else act[2])
    for word in words:
        if word.isdigit():
            if int(word) - 1 not in opened[who]:
                choices = ", ".join(str(i + 1) for i in opened[who])
                raise BadInput(f"Player {word} cannot be chosen now; there are {choices}.")
            act[who] = int(word) - 1
            continue
        found = [(h, i) for h in mine for i, v in enumerate(HEAD_VALUES[NAMES[h]]) if v.startswith(word)]
        if len(found) != 1:
            raise BadInput(f"{word!r} is not a choice; type one of {legal_text(view, masks)}.")
        head, value = found[0]
        if value not in opened[head]:
            raise BadInput(f"{HEAD_VALUES[NAMES[head]][value]} is not allowed in the powerplay.")
        act[head] = value
    return tuple(act)


def legal_text(view: Any, masks: Any) -> str:
    """What may be typed now."""
    opened = [np.flatnonzero(np.asarray(mask)).tolist() for mask in masks]
    if bool(view.bats):
        return f"{' | '.join(INTENTS)}, and the number of the next batter ({', '.join(str(i + 1) for i in opened[4])})"
    allowed = " | ".join(FIELDS[i] for i in opened[2])
    bowlers = ", ".join(str(i + 1) for i in opened[3])
    return f"{' | '.join(PLANS)}, a field {allowed}, and the number of the bowler ({bowlers})"
