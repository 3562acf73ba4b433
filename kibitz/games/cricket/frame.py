"""What a page or a terminal draws, and commentary lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kibitz.games.cricket import winprob
from kibitz.games.cricket.ball import HOWS, NOTHING, TYPES
from kibitz.games.cricket.calibration import ERAS
from kibitz.games.cricket.course import powerplay_balls
from kibitz.games.cricket.state import NOBODY, TIE, UNDECIDED, State
from kibitz.games.cricket.tactics import FIELDS, INTENTS, OUTCOMES, PLANS
from kibitz.games.cricket.words import outcome_text, overs_text


def private(state: State, seat: int) -> dict[str, Any]:
    """Captains have no secrets but the choice for the ball, and that is not in the state."""
    return {}


def last_ball(state: State) -> dict[str, Any] | None:
    ball = state.ball
    if int(ball.outcome) == NOTHING:
        return None
    return {
        "outcome": OUTCOMES[int(ball.outcome)],
        "runs": int(ball.runs),
        "how": HOWS[int(ball.how)] or None,
        "out": None if int(ball.out) == NOBODY else int(ball.out),
        "leg_bye": bool(ball.leg_bye),
        "batter": int(ball.batter),
        "bowler": int(ball.bowler),
        "intent": INTENTS[int(ball.intent)],
        "plan": PLANS[int(ball.plan)],
        "field": FIELDS[int(ball.field)],
        "text": outcome_text(ball),
    }


def frame(settings: Any, state: State, seat: int | None) -> dict[str, Any]:
    """Scoreboard, players in the middle, last ball and win probability. Everything here is public."""
    overs, era, second = int(settings.overs), int(settings.era), bool(state.second)
    batting, legal, score = int(state.batting), int(state.legal), int(state.score)
    chance = winprob.win_probability(
        second=second, score=score, first=int(state.first), legal=legal, wickets=int(state.wickets),
        overs=overs, era=era, supers=int(state.supers),
    )  # fmt: skip
    winner = int(state.winner)
    if winner != UNDECIDED:
        chance = 0.5 if winner == TIE else float(winner == batting)
    bowling = int(state.elevens[1 - batting])
    balls = 6 if int(state.supers) else 6 * overs
    needed = int(state.first) + 1 - score
    drawn: dict[str, Any] = {
        "overs": overs,
        "era": ERAS[era],
        "elevens": [int(x) for x in state.elevens],
        "batting": batting,
        "innings": int(second) + 1,
        "super_over": int(state.supers),
        "score": score,
        "wickets": int(state.wickets),
        "legal": legal,
        "over_text": overs_text(legal),
        "balls_left": balls - legal,
        "first": {"score": int(state.first), "wickets": int(state.first_wickets), "legal": int(state.first_legal)}
        if second
        else None,
        "target": int(state.first) + 1 if second else None,
        "needed": needed if second else None,
        "required_rate": round(6 * needed / max(balls - legal, 1), 2) if second else None,
        "run_rate": round(6 * score / max(legal, 1), 2),
        "projected": None
        if second or int(state.supers)
        else round(float(winprob.projected(score, legal, int(state.wickets), overs, era))),
        "powerplay": legal < powerplay_balls(overs) and not int(state.supers),
        "striker": {"player": int(state.striker), "faced": int(state.faced[0])},
        "other": {"player": int(state.other), "faced": int(state.faced[1])},
        "bowler": None if int(state.bowler) == NOBODY else int(state.bowler),
        "bowler_type": None
        if int(state.bowler) == NOBODY
        else TYPES[int(settings.sides.types[bowling * 11 + int(state.bowler)])],
        "free_hit": bool(state.free_hit),
        "ball": last_ball(state),
        "win_probability": [chance, 1 - chance] if batting == 0 else [1 - chance, chance],
        "over": bool(state.over),
        "winner": None if winner == UNDECIDED else "tie" if winner == TIE else winner,
    }
    if seat is not None:
        drawn["private"] = private(state, seat)
    return drawn


def tell(event: Mapping[str, Any], drawn: Mapping[str, Any]) -> str:
    """A line of commentary for an event, or nothing."""
    payload = event["payload"]
    if event["type"] == "episode.started":
        return f"{drawn['overs']} overs a side. Seat {drawn['batting']} bats."
    if event["type"] == "step":
        ball = drawn.get("ball")
        if not ball:
            return ""
        return f"{drawn['over_text']} {ball['text'].capitalize()}. {drawn['score']} for {drawn['wickets']}."
    if event["type"] == "episode.ended":
        mine, theirs = payload["returns"]
        return "A tie." if mine == theirs else f"Seat {0 if mine > theirs else 1} wins."
    return ""
