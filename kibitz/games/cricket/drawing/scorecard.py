"""The scorecard, which the host updates ball by ball.

The compiled laws carry only what they need. A caller that plays one ball at a time adds each state here
and gets every number of the printed card.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from kibitz.games.cricket.laws.state import State
from kibitz.games.cricket.model.delivery import BYE, HOWS, NO_BALL, RUN_OUT, RUNS, WICKET, WIDE
from kibitz.games.cricket.words.prompt import overs_text

SHORT = {"wide": "wd", "no_ball": "nb", "dot": "·"}


@dataclass
class Batting:
    """One batter's line; `how` is empty for a batter who is not out."""

    runs: int = 0
    balls: int = 0
    fours: int = 0
    sixes: int = 0
    how: str = ""
    bowler: int | None = None  # the bowler credited with the wicket
    came_in: bool = False


@dataclass
class Bowling:
    """One bowler's line. It excludes byes, leg byes and run outs."""

    balls: int = 0
    runs: int = 0
    wickets: int = 0
    wides: int = 0
    no_balls: int = 0

    @property
    def overs(self) -> str:
        return overs_text(self.balls)


@dataclass
class Innings:
    seat: int  # the batting seat
    super_over: int
    batters: list[Batting] = field(default_factory=lambda: [Batting() for _ in range(11)])
    bowlers: list[Bowling] = field(default_factory=lambda: [Bowling() for _ in range(11)])
    extras: dict[str, int] = field(default_factory=lambda: {"wides": 0, "no_balls": 0, "byes": 0, "leg_byes": 0})
    falls: list[dict[str, Any]] = field(default_factory=list)
    total: int = 0
    wickets: int = 0
    legal: int = 0

    def add(self, ball: Any) -> None:
        outcome, runs, how = int(ball.outcome), int(ball.runs), int(ball.how)
        batter, bowler = self.batters[int(ball.batter)], self.bowlers[int(ball.bowler)]
        self.total += runs
        bat = _batter_runs(ball)
        batter.runs += bat
        batter.balls += outcome != WIDE
        batter.fours += bat == 4 and outcome != WICKET
        batter.sixes += bat == 6
        legal = outcome not in (WIDE, NO_BALL)
        self.legal += legal
        bowler.balls += legal
        if outcome != BYE:
            bowler.runs += runs
        bowler.wides += runs if outcome == WIDE else 0
        bowler.no_balls += outcome == NO_BALL
        if outcome == WIDE:
            self.extras["wides"] += runs
        elif outcome == NO_BALL:
            self.extras["no_balls"] += 1
        elif outcome == BYE:
            self.extras["leg_byes" if bool(ball.leg_bye) else "byes"] += runs
        if how:
            self._wicket(ball, how)

    def _wicket(self, ball: Any, how: int) -> None:
        self.wickets += 1
        gone = self.batters[int(ball.out)]
        gone.how = HOWS[how]
        if how != RUN_OUT:
            gone.bowler = int(ball.bowler)
            self.bowlers[int(ball.bowler)].wickets += 1
        self.falls.append(
            {"wicket": self.wickets, "score": self.total, "player": int(ball.out), "over": overs_text(self.legal)}
        )


class Scorecard:
    """Every innings of a match, including super overs."""

    def __init__(self) -> None:
        self.innings: list[Innings] = []

    def add(self, before: State, after: State) -> None:
        """Adds the ball between two states."""
        at = (int(before.batting), int(before.supers))
        if not self.innings or (self.innings[-1].seat, self.innings[-1].super_over) != at:
            self.innings.append(Innings(*at))
        now = self.innings[-1]
        for player in (int(before.striker), int(before.other)):
            now.batters[player].came_in = True
        now.add(after.ball)


def _batter_runs(ball: Any) -> int:
    """Runs of a ball that are credited to the striker."""
    outcome = int(ball.outcome)
    if outcome < WICKET:
        return RUNS[outcome]
    return {NO_BALL: int(ball.runs) - 1, WICKET: int(ball.runs)}.get(outcome, 0)


def _ball_symbol(ball: dict[str, Any]) -> str:
    """A ball in scorers' notation: `1`, `4`, `W`, `2wd`, `nb`, `lb`, `·`."""
    runs, outcome = ball["runs"], ball["outcome"]
    if ball["how"]:
        return "W"
    if outcome in ("wide", "no_ball"):
        return f"{runs if runs > 1 else ''}{SHORT[outcome]}"
    if outcome == "bye":
        return f"{runs if runs > 1 else ''}{'lb' if ball['leg_bye'] else 'b'}"
    return SHORT.get(outcome, str(runs))


class ScorecardTally:
    """The scorecard, the last balls and the partnership, from the first ball added here.

    A match that starts midway has no earlier figures.
    """

    def __init__(self) -> None:
        self.card = Scorecard()
        self.last: deque[str] = deque(maxlen=12)
        self.runs = self.balls = 0  # in the partnership

    def add(self, before: Any, after: Any, drawn: dict[str, Any]) -> None:
        """Adds a ball and the frame after it."""
        self.card.add(before, after)
        ball = drawn["ball"]
        self.last.append(_ball_symbol(ball))
        self.runs += ball["runs"]
        self.balls += ball["outcome"] not in ("wide", "no_ball")
        opened = int(after.legal) == 0 and int(after.score) == 0
        if ball["how"] or opened:
            self.runs = self.balls = 0
        if opened:
            self.last.clear()

    def innings(self, seat: int, super_over: int) -> Innings:
        """The current innings; an empty one before its first ball."""
        if self.card.innings:
            now = self.card.innings[-1]
            if (now.seat, now.super_over) == (seat, super_over):
                return now
        return Innings(seat, super_over)

    def fill(self, drawn: dict[str, Any]) -> dict[str, Any]:
        """Adds runs, figures, last balls and partnership to a frame."""
        now = self.innings(drawn["batting"], drawn["super_over"])
        for place in ("striker", "other"):
            drawn[place] = drawn[place] | {"runs": now.batters[drawn[place]["player"]].runs}
        if drawn["bowler"] is not None:
            line = now.bowlers[drawn["bowler"]["player"]]
            drawn["bowler"] |= {"overs_text": line.overs, "runs": line.runs, "wickets": line.wickets}
        drawn["last_balls"] = list(self.last)
        drawn["partnership"] = {"runs": self.runs, "balls": self.balls}
        return drawn

    def lines(self, seat: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """A side's batting and bowling lines from its latest innings of each kind."""
        bat = next((i for i in reversed(self.card.innings) if i.seat == seat), None) or Innings(seat, 0)
        ball = next((i for i in reversed(self.card.innings) if i.seat != seat), None) or Innings(1 - seat, 0)
        batting = [{"runs": b.runs, "balls": b.balls, "out": b.how or None} for b in bat.batters]
        bowling = [{"overs": b.overs, "runs": b.runs, "wickets": b.wickets} for b in ball.bowlers]
        return batting, bowling
