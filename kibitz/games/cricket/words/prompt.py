"""The match in words: prompt variables, answer fields, acts as text and text as acts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from kibitz.core.errors import BadInput
from kibitz.core.words import with_article
from kibitz.games.cricket.chances import winprob
from kibitz.games.cricket.model.delivery import BYE, HOWS, NO_BALL, NO_PLAYER, NOTHING, WIDE, phase_of
from kibitz.games.cricket.model.tactics import (
    ACCUMULATE,
    BALANCED,
    FIELDS,
    GOOD,
    INTENTS,
    PHASES,
    PLANS,
    open_in_powerplay,
)
from kibitz.games.cricket.teams import roster
from kibitz.games.cricket.teams.roster import Eleven

CONFIDENCES = tuple(tenth / 10 for tenth in range(11))
HEAD_VALUES = {"intent": INTENTS, "plan": PLANS, "field": FIELDS}
NAMES = ("intent", "plan", "field", "bowler", "next_batter")


def overs_text(legal: int) -> str:
    """`14.2` for 86 balls."""
    return f"{legal // 6}.{legal % 6}"


def outcome_text(ball: Any) -> str:
    """The outcome of the last ball in a few words."""
    outcome, runs, how = int(ball.outcome), int(ball.runs), int(ball.how)
    if outcome == NOTHING:
        return "no ball yet"
    if how:
        return f"wicket, {HOWS[how]}" + (f", {runs} run" + "s" * (runs > 1) if runs else "")
    if outcome == WIDE:
        return f"wide, {runs} in all"
    if outcome == NO_BALL:
        return f"no-ball, {runs} in all, free hit"
    if outcome == BYE:
        return f"{runs} {'leg bye' if ball.leg_bye else 'bye'}" + "s" * (runs > 1)
    return {0: "dot ball", 4: "four", 6: "six"}.get(runs, f"{runs} run" + "s" * (runs > 1))


def prompt_variables(settings: Any, view: Any, history: list[Mapping[str, Any]]) -> dict[str, str]:
    """Prompt variables. All are strings and none reveals more than the view."""
    left, second = int(view.balls_left), bool(view.second)
    needed = int(view.first) + 1 - int(view.score)
    batting_chance = chance(settings, view)
    bats = bool(view.bats)
    batters, bowlers = roster.side(view.batting_team_id), roster.side(view.bowling_team_id)
    overs, era, model = int(settings.overs), int(settings.era), int(settings.fitted)
    projected = winprob.projected(int(view.score), int(view.legal), int(view.wickets), overs, era, model)
    return {
        "role": "batting" if bats else "bowling",
        "my_side": (batters if bats else bowlers).name,
        "other_side": (bowlers if bats else batters).name,
        "overs": str(overs),
        "innings": "super over" if int(view.supers) else "chase" if second else "first innings",
        "score": f"{int(view.score)}/{int(view.wickets)}",
        "over_now": overs_text(int(view.legal)),
        "balls_left": str(left),
        "target": str(int(view.first) + 1) if second else "none",
        "needed": str(needed) if second else "none",
        "required_rate": f"{6 * needed / max(left, 1):.1f}" if second else "none",
        "run_rate": f"{6 * int(view.score) / max(int(view.legal), 1):.1f}",
        "par": f"{winprob.par_score(overs, era, model):.0f}",
        "projected": "none" if second or int(view.supers) else f"{float(projected):.0f}",
        "phase": phase_text(view),
        "striker": f"{_batter_text(batters, int(view.striker))}, {int(view.faced[0])} balls faced",
        "non_striker": f"{_batter_text(batters, int(view.other))}, {int(view.faced[1])} balls faced",
        "bowler": "to be chosen" if int(view.bowler) == NO_PLAYER else _bowler_text(bowlers, int(view.bowler)),
        "free_hit": "yes" if bool(view.free_hit) else "no",
        "last_ball": _last_ball_text(view),
        "win_probability": f"{batting_chance if bats else 1 - batting_chance:.2f}",
        "history_str": "\n".join(history_line(entry) for entry in history[-12:]),
        "legal_fields": ", ".join(
            name for name, up in zip(FIELDS, open_in_powerplay(), strict=True) if up or not bool(view.powerplay)
        ),
        "legal_players": "; ".join(
            _batter_text(batters, i) if bats else _bowler_text(bowlers, i)
            for i in range(11)
            if (int(view.waiting if bats else view.may_bowl) >> i) & 1
        ),
    } | _brief_variables(view, batters, bowlers)


def _brief_variables(view: Any, batters: Eleven, bowlers: Eleven) -> dict[str, str]:
    """What the short template for a taught model shows: players by place in the order, ratings as plain numbers."""

    def batter(place: int, faced: Any) -> str:
        player = batters.players[place]
        return f"{place + 1} {player.strike} {player.power} {player.safety} faced {int(faced)}"

    bats, place, ball = bool(view.bats), int(view.bowler), view.ball
    bowler = None if place == NO_PLAYER else bowlers.players[place]
    open_places = int(view.waiting) * bool(view.comes_in) if bats else int(view.may_bowl)
    listed = [i for i in range(11) if (open_places >> i) & 1]
    people = (batters if bats else bowlers).players
    tactics = f"{INTENTS[int(ball.intent)]} {PLANS[int(ball.plan)]} {FIELDS[int(ball.field)]}"
    return {
        "striker_brief": batter(int(view.striker), view.faced[0]),
        "non_striker_brief": batter(int(view.other), view.faced[1]),
        "bowler_brief": f"{place + 1} {bowler.bowls} {bowler.economy} {bowler.threat}" if bowler else "none",
        "last_ball_brief": "none" if int(ball.outcome) == NOTHING else f"{tactics} {outcome_text(ball)}",
        "players_brief": ", ".join(f"{i + 1} {people[i].name}" for i in listed) if len(listed) > 1 else "none",
    }


def _batter_text(side: Eleven, place: int) -> str:
    """A batter with the ratings that matter to the captain."""
    player = side.players[place]
    return f"{player.name} ({player.hand}-hander, power {player.power}, safety {player.safety})"


def _bowler_text(side: Eleven, place: int) -> str:
    player = side.players[place]
    return f"{player.name} ({player.bowls.replace('_', ' ')}, economy {player.economy}, threat {player.threat})"


def phase_text(view: Any) -> str:
    return "powerplay" if bool(view.powerplay) else PHASES[phase_of(int(view.twenty_over))]


def _last_ball_text(view: Any) -> str:
    """The last ball with its players, or without them if it belongs to the previous innings."""
    ball = view.ball
    text = outcome_text(ball)
    if int(ball.outcome) == NOTHING or (int(view.legal) == 0 and int(view.score) == 0):
        return text
    who = f"{roster.name(view.bowling_team_id, ball.bowler)} to {roster.name(view.batting_team_id, ball.batter)}"
    plan, field, intent = PLANS[int(ball.plan)], FIELDS[int(ball.field)], INTENTS[int(ball.intent)]
    return f"{who}, {plan} ball to {with_article(field)} field, batter's intent {intent}: {text}"


def position_text(view: Any) -> str:
    """The position in a sentence, for a person in this seat."""
    doing = "You are batting" if bool(view.bats) else "You are bowling"
    board = f"{int(view.score)}/{int(view.wickets)} after {overs_text(int(view.legal))} overs"
    chasing = f", {int(view.first) + 1 - int(view.score)} needed from {int(view.balls_left)} balls"
    bowler = roster.name(view.bowling_team_id, view.bowler)
    bowling = "a new over" if int(view.bowler) == NO_PLAYER else f"{bowler} bowling"
    middle = f"{roster.name(view.batting_team_id, view.striker)} on strike, {bowling}"
    extra = " Free hit." if bool(view.free_hit) else ""
    return f"{doing}: {board}{chasing if bool(view.second) else ''}; {middle}.{extra}"


def chance(settings: Any, view: Any) -> float:
    """The batting side's win probability."""
    return winprob.win_probability(
        second=bool(view.second),
        score=int(view.score),
        first=int(view.first),
        legal=int(view.legal),
        wickets=int(view.wickets),
        overs=int(settings.overs),
        era=int(settings.era),
        supers=int(view.supers),
        model=int(settings.fitted),
    )


def history_line(entry: Mapping[str, Any]) -> str:
    if "act" not in entry:
        return str(entry.get("text", ""))
    intent, plan, field, *_ = (int(x) for x in entry["act"])
    bats = is_batting(entry["act"])
    said = f"bats {INTENTS[intent]}" if bats else f"bowls {PLANS[plan]} to {with_article(FIELDS[field])} field"
    return f"seat {entry['seat']} {said}"


def is_batting(act: Any) -> bool:
    """Whether the act is a batting side's. The heads that a side does not choose are neutral.

    An act with only neutral choices counts as batting.
    """
    intent, plan, field, bowler, coming = (int(x) for x in act)
    return bool(coming) or intent != ACCUMULATE or (plan == GOOD and field == BALANCED and bowler == 0)


def answer_fields(view: Any, masks: Any) -> dict[str, Any]:
    """The answer fields that this side can choose, with the values open now."""
    opened = [np.flatnonzero(np.asarray(mask)).tolist() for mask in masks]
    mine = (0, 4) if bool(view.bats) else (1, 2, 3)
    people = roster.side(view.batting_team_id if bool(view.bats) else view.bowling_team_id).players
    chosen: dict[str, Any] = {}
    for head in mine:
        name = NAMES[head]
        if name in HEAD_VALUES:
            chosen[name] = [HEAD_VALUES[name][i] for i in opened[head]]
        elif len(opened[head]) > 1:  # a single player is no choice, and costs an LLM tokens
            chosen[name] = [people[i].name for i in opened[head]]
    return chosen | {"confidence": list(CONFIDENCES)}


def act_text(act: Any) -> str:
    """An act in words, without the heads that the side does not choose."""
    intent, plan, field, bowler, coming = (int(x) for x in act)
    if is_batting(act):
        return INTENTS[intent] + (f"; no. {coming + 1} is next in" if coming else "")
    return f"{PLANS[plan].replace('_', ' ')}, {FIELDS[field]} field; no. {bowler + 1} bowls"


def parse(view: Any, masks: Any, text: str) -> tuple[int, ...]:
    """A typed act: `attack`, `attack 5`, `yorker death`, `good balanced redfern`. Players count from 1."""
    words = re.findall(r"[^\W\d]+|\d+", text.lower())
    if not words:
        raise BadInput(f"Type one of {choices_text(view, masks)}.")
    opened = [np.flatnonzero(np.asarray(mask)).tolist() for mask in masks]
    act = [values[0] for values in opened]
    mine = [0] if bool(view.bats) else [1, 2]
    who = 4 if bool(view.bats) else 3
    people = roster.side(view.batting_team_id if bool(view.bats) else view.bowling_team_id).players
    for head, neutral in ((0, ACCUMULATE), (1, GOOD), (2, BALANCED)):
        act[head] = neutral if neutral in opened[head] else act[head]
    for word in words:
        if word.isdecimal():
            if int(word) - 1 not in opened[who]:
                choices = ", ".join(str(i + 1) for i in opened[who])
                raise BadInput(f"Player {word} is not available now; choose one of {choices}.")
            act[who] = int(word) - 1
            continue
        found = [(h, i) for h in mine for i, v in enumerate(HEAD_VALUES[NAMES[h]]) if v.startswith(word)]
        found = found or [(who, i) for i in opened[who] if word in people[i].name.lower().split()]
        if len(found) != 1:
            raise BadInput(f"{word!r} is not a choice; type one of {choices_text(view, masks)}.")
        head, value = found[0]
        if value not in opened[head]:
            raise BadInput(f"{HEAD_VALUES[NAMES[head]][value]} is not allowed in the powerplay.")
        act[head] = value
    return tuple(act)


def choices_text(view: Any, masks: Any) -> str:
    """The choices that a person may type now."""
    opened = [np.flatnonzero(np.asarray(mask)).tolist() for mask in masks]
    bats = bool(view.bats)
    people = roster.side(view.batting_team_id if bats else view.bowling_team_id).players

    def players(head: int) -> str:
        return ", ".join(f"{i + 1} {people[i].name}" for i in opened[head])

    if bats:
        coming = f", and the number of the next batter ({players(4)})" if len(opened[4]) > 1 else ""
        return f"{' | '.join(INTENTS)}{coming}"
    allowed = " | ".join(FIELDS[i] for i in opened[2])
    return f"{' | '.join(PLANS)}, a field {allowed}, and the number of the bowler ({players(3)})"
