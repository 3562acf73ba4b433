"""The frame that a page or a terminal draws: a function of settings and state, all of it public."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from kibitz.core.game import Summary
from kibitz.games.cricket.chances import winprob
from kibitz.games.cricket.drawing.fielders import fielders
from kibitz.games.cricket.drawing.shot import shot
from kibitz.games.cricket.laws.state import TIE, UNDECIDED, State
from kibitz.games.cricket.model.calibration import ERAS
from kibitz.games.cricket.model.delivery import HOWS, NO_BALL, NO_PLAYER, NOTHING, WIDE
from kibitz.games.cricket.model.par import powerplay_balls
from kibitz.games.cricket.model.tactics import FIELDS, INTENTS, OUTCOMES, PLANS
from kibitz.games.cricket.teams import roster
from kibitz.games.cricket.teams.roster import Eleven
from kibitz.games.cricket.words.prompt import outcome_text, overs_text


def private(settings: Any, state: State, seat: int) -> dict[str, Any]:
    """Empty: a captain's only secret is the choice for the next ball, which the state does not hold."""
    return {}


def _just_opened(state: State) -> bool:
    """Whether no ball of this innings has been bowled; a last ball then belongs to the previous innings."""
    return int(state.legal) == 0 and int(state.score) == 0


def _batted_by(state: State) -> int:
    """The seat that faced the last ball. The side that has just batted opens a super over."""
    turned = _just_opened(state) and bool(state.second)
    return 1 - int(state.batting) if turned else int(state.batting)


def chance(settings: Any, state: State) -> float:
    """The batting side's win probability."""
    winner = int(state.winner)
    if winner != UNDECIDED:
        return 0.5 if winner == TIE else float(winner == int(state.batting))
    return winprob.win_probability(
        second=bool(state.second), score=int(state.score), first=int(state.first), legal=int(state.legal),
        wickets=int(state.wickets), overs=int(settings.overs), era=int(settings.era), supers=int(state.supers),
        model=int(settings.fitted),
    )  # fmt: skip


def _chance_before(settings: Any, state: State) -> float:
    """The win probability of the side that faced the last ball, before that ball.

    A state holds enough to undo one ball, except the first score of a match that has just been tied;
    par replaces it.
    """
    overs, era, ball = int(settings.overs), int(settings.era), state.ball
    runs, out = int(ball.runs), int(ball.how) > 0
    counts = int(ball.outcome) not in (WIDE, NO_BALL)
    second, supers, first = bool(state.second), int(state.supers), int(state.first)
    score, wickets, legal = int(state.score), int(state.wickets), int(state.legal)
    if _just_opened(state):
        wickets, legal = int(state.first_wickets), int(state.first_legal)
        if second:
            second, score, first = False, first, 0
        else:
            second, supers = True, supers - 1
            score = first = round(winprob.par_score(overs, era, int(settings.fitted)))
    return winprob.win_probability(
        second=second, score=score - runs, first=first, legal=legal - counts, wickets=wickets - out,
        overs=overs, era=era, supers=supers, model=int(settings.fitted),
    )  # fmt: skip


def last_ball(settings: Any, state: State, sides: list[Eleven], now: float) -> dict[str, Any] | None:
    """The last delivery; `now` is the current batting side's win probability."""
    ball = state.ball
    if int(ball.outcome) == NOTHING:
        return None
    batting = _batted_by(state)
    batters, bowlers = sides[batting].players, sides[1 - batting].players
    counts = int(ball.outcome) not in (WIDE, NO_BALL)
    legal = (int(state.first_legal) if _just_opened(state) else int(state.legal)) - counts
    after = now if batting == int(state.batting) else 1 - now
    gone = None if int(ball.out) == NO_PLAYER else int(ball.out)
    drawn = {
        "number": int(state.deliveries),  # otherwise two successive wides would be equal
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
        "win_change": round(after - _chance_before(settings, state), 4),
    }
    return drawn | {"shot": shot(drawn, batters[int(ball.batter)].hand == "left")}


def frame(settings: Any, state: State) -> dict[str, Any]:
    """Scoreboard, players in the middle, last ball and win probability.

    Players are indices into the batting or bowling side; `cast` holds the sides by seat.
    """
    state = jax.device_get(state)
    overs, era, second, supers = int(settings.overs), int(settings.era), bool(state.second), int(state.supers)
    projected = winprob.projected(
        int(state.score), int(state.legal), int(state.wickets), overs, era, int(settings.fitted)
    )
    batting, legal, score, wickets = int(state.batting), int(state.legal), int(state.score), int(state.wickets)
    known_ids = jax.device_get(settings.sides.team_ids)
    team_ids = [int(known_ids[int(place)]) for place in state.elevens]
    sides = [roster.side(team_id) for team_id in team_ids]
    now, winner = chance(settings, state), int(state.winner)
    balls = 6 if supers else 6 * overs
    needed = max(int(state.first) + 1 - score, 0)
    striker, bowler = int(state.striker), int(state.bowler)
    setting = FIELDS[int(state.ball.field)]
    return {
        "overs": overs,
        "era": ERAS[era],
        "elevens": [int(x) for x in state.elevens],
        "marks": team_ids,
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
        "projected": None if second or supers else round(float(projected)),
        "powerplay": legal < powerplay_balls(overs) and not supers,
        "powerplay_balls": powerplay_balls(overs),
        "striker": _batter(sides[batting], striker, int(state.faced[0])),
        "other": _batter(sides[batting], int(state.other), int(state.faced[1])),
        "bowler": None if bowler == NO_PLAYER else _bowler(sides[1 - batting], bowler),
        "free_hit": bool(state.free_hit),
        "field": setting,
        "fielders": fielders(setting, sides[batting].players[striker].hand == "left"),
        "ball": last_ball(settings, state, sides, now),
        "win_probability": [now, 1 - now] if batting == 0 else [1 - now, now],
        "over": bool(state.over),
        "winner": None if winner == UNDECIDED else "tie" if winner == TIE else winner,
    }


def summary(drawn: Mapping[str, Any]) -> Summary:
    """Runs, wickets and overs of both sides. In a super over, the score of that over."""
    now = f"{drawn['score']}/{drawn['wickets']} ({overs_text(drawn['legal'])})"
    first = drawn["first"]
    before = f"{first['score']}/{first['wickets']} ({overs_text(first['legal'])})" if first else ""
    one, other = (now, before) if drawn["batting"] == 0 else (before, now)
    names = drawn["sides"]
    return Summary((names[0], names[1]), (one, other), drawn["win_probability"][0])


def _batter(side: Eleven, player: int, faced: int) -> dict[str, Any]:
    return {"player": player, "name": side.players[player].name, "faced": faced}


def _bowler(side: Eleven, player: int) -> dict[str, Any]:
    return {"player": player, "name": side.players[player].name, "type": side.players[player].bowls}
