"""What a page or a terminal draws: a function of settings and state, public from top to bottom."""

from __future__ import annotations

from typing import Any

import jax

from kibitz.games.cricket.chances import winprob
from kibitz.games.cricket.drawing.fielders import fielders
from kibitz.games.cricket.laws.state import NOBODY, TIE, UNDECIDED, State
from kibitz.games.cricket.model.calibration import ERAS
from kibitz.games.cricket.model.delivery import HOWS, NO_BALL, NOTHING, WIDE
from kibitz.games.cricket.model.par import powerplay_balls
from kibitz.games.cricket.model.tactics import FIELDS, INTENTS, OUTCOMES, PLANS
from kibitz.games.cricket.teams import roster
from kibitz.games.cricket.teams.roster import Eleven
from kibitz.games.cricket.words.prompt import outcome_text, overs_text


def private(settings: Any, state: State, seat: int) -> dict[str, Any]:
    """Captains have no secrets but the choice for the ball, and that is not in the state."""
    return {}


def just_opened(state: State) -> bool:
    """Whether the last ball, if there was one, belongs to the innings before: every ball brings a run or counts."""
    return int(state.legal) == 0 and int(state.score) == 0


def batted_by(state: State) -> int:
    """The seat that faced the last ball. A super over is opened by the side that has just batted."""
    turned = just_opened(state) and bool(state.second)
    return 1 - int(state.batting) if turned else int(state.batting)


def chance(settings: Any, state: State) -> float:
    """Of the batting side."""
    winner = int(state.winner)
    if winner != UNDECIDED:
        return 0.5 if winner == TIE else float(winner == int(state.batting))
    return winprob.win_probability(
        second=bool(state.second), score=int(state.score), first=int(state.first), legal=int(state.legal),
        wickets=int(state.wickets), overs=int(settings.overs), era=int(settings.era), supers=int(state.supers),
    )  # fmt: skip


def chance_before(settings: Any, state: State) -> float:
    """Of the side that faced the last ball, before it: a state remembers enough to take one ball back.

    Only what the first side made is forgotten in a match that has just been tied; par stands for it.
    """
    overs, era, ball = int(settings.overs), int(settings.era), state.ball
    runs, out = int(ball.runs), int(ball.how) > 0
    counts = int(ball.outcome) not in (WIDE, NO_BALL)
    second, supers, first = bool(state.second), int(state.supers), int(state.first)
    score, wickets, legal = int(state.score), int(state.wickets), int(state.legal)
    if just_opened(state):
        wickets, legal = int(state.first_wickets), int(state.first_legal)
        if second:
            second, score, first = False, first, 0
        else:
            second, supers = True, supers - 1
            score = first = round(winprob.par_score(overs, era))
    return winprob.win_probability(
        second=second, score=score - runs, first=first, legal=legal - counts, wickets=wickets - out,
        overs=overs, era=era, supers=supers,
    )  # fmt: skip


def last_ball(settings: Any, state: State, sides: list[Eleven], now: float) -> dict[str, Any] | None:
    """The last delivery; `now` is the chance of the side that bats now."""
    ball = state.ball
    if int(ball.outcome) == NOTHING:
        return None
    batting = batted_by(state)
    batters, bowlers = sides[batting].players, sides[1 - batting].players
    counts = int(ball.outcome) not in (WIDE, NO_BALL)
    legal = (int(state.first_legal) if just_opened(state) else int(state.legal)) - counts
    after = now if batting == int(state.batting) else 1 - now
    gone = None if int(ball.out) == NOBODY else int(ball.out)
    return {
        "number": int(state.deliveries),  # two wides running look alike otherwise
        "at": f"{legal // 6}.{legal % 6 + 1}",
        "batting": batting,
        "outcome": OUTCOMES[int(ball.outcome)],
        "runs": int(ball.runs),
        "how": HOWS[int(ball.how)] or None,
        "out": gone,
        "out_name": None if gone is None else batters[gone].name,
        "leg_bye": bool(ball.leg_bye),
        "batter": int(ball.batter),
        "batter_name": batters[int(ball.batter)].name,
        "bowler": int(ball.bowler),
        "bowler_name": bowlers[int(ball.bowler)].name,
        "intent": INTENTS[int(ball.intent)],
        "plan": PLANS[int(ball.plan)],
        "field": FIELDS[int(ball.field)],
        "text": outcome_text(ball),
        "win_change": round(after - chance_before(settings, state), 4),
    }


def frame(settings: Any, state: State) -> dict[str, Any]:
    """Scoreboard, players in the middle, last ball and win probability.

    Players are indexes into the side that bats or bowls; `cast` has the sides by seat.
    """
    state = jax.device_get(state)
    overs, era, second, supers = int(settings.overs), int(settings.era), bool(state.second), int(state.supers)
    batting, legal, score, wickets = int(state.batting), int(state.legal), int(state.score), int(state.wickets)
    marks = jax.device_get(settings.sides.marks)
    sides = [roster.side(marks[int(place)]) for place in state.elevens]
    now, winner = chance(settings, state), int(state.winner)
    balls = 6 if supers else 6 * overs
    needed = max(int(state.first) + 1 - score, 0)
    striker, bowler = int(state.striker), int(state.bowler)
    setting = FIELDS[int(state.ball.field)]
    return {
        "overs": overs,
        "era": ERAS[era],
        "elevens": [int(x) for x in state.elevens],
        "marks": [int(marks[int(place)]) for place in state.elevens],
        "sides": [side.name for side in sides],
        "batting": batting,
        "innings": int(second) + 1,
        "super_over": supers,
        "score": score,
        "wickets": wickets,
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
        "projected": None if second or supers else round(float(winprob.projected(score, legal, wickets, overs, era))),
        "powerplay": legal < powerplay_balls(overs) and not supers,
        "powerplay_balls": powerplay_balls(overs),
        "striker": _batter(sides[batting], striker, int(state.faced[0])),
        "other": _batter(sides[batting], int(state.other), int(state.faced[1])),
        "bowler": None if bowler == NOBODY else _bowler(sides[1 - batting], bowler),
        "free_hit": bool(state.free_hit),
        "field": setting,
        "fielders": fielders(setting, sides[batting].players[striker].hand == "left"),
        "ball": last_ball(settings, state, sides, now),
        "win_probability": [now, 1 - now] if batting == 0 else [1 - now, now],
        "over": bool(state.over),
        "winner": None if winner == UNDECIDED else "tie" if winner == TIE else winner,
    }


def _batter(side: Eleven, player: int, faced: int) -> dict[str, Any]:
    return {"player": player, "name": side.players[player].name, "faced": faced}


def _bowler(side: Eleven, player: int) -> dict[str, Any]:
    return {"player": player, "name": side.players[player].name, "type": side.players[player].bowls}
