"""The scorecard, kept by the host from one ball to the next.

The compiled rules carry only what they need; whoever plays a match one ball at a time adds each
state here and has every number of the printed card.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kibitz.games.cricket.laws.state import State
from kibitz.games.cricket.model.delivery import BYE, HOWS, NO_BALL, RUN_OUT, RUNS, WICKET, WIDE
from kibitz.games.cricket.words.prompt import overs_text


@dataclass
class Batting:
    """One batter's line; `how` is empty while he is in or has not been."""

    runs: int = 0
    balls: int = 0
    fours: int = 0
    sixes: int = 0
    how: str = ""
    bowler: int | None = None  # credited with the wicket
    came_in: bool = False


@dataclass
class Bowling:
    """One bowler's line: byes and leg-byes are not his, run outs are not his wickets."""

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
    seat: int  # that bats
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
        bat = batter_runs(ball)
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

    def adds_up(self) -> bool:
        """Runs are batters' and extras; wickets are bowlers' and run outs; balls are bowled by somebody."""
        run_outs = sum(batter.how == HOWS[RUN_OUT] for batter in self.batters)
        byes = self.extras["byes"] + self.extras["leg_byes"]
        return (
            self.total == sum(b.runs for b in self.batters) + sum(self.extras.values())
            and self.wickets == sum(b.wickets for b in self.bowlers) + run_outs
            and self.legal == sum(b.balls for b in self.bowlers)
            and self.total == sum(b.runs for b in self.bowlers) + byes
            and self.wickets == len(self.falls) == sum(bool(b.how) for b in self.batters)
        )


class Scorecard:
    """Every innings of a match, super overs included."""

    def __init__(self) -> None:
        self.innings: list[Innings] = []

    def add(self, before: State, after: State) -> None:
        """The ball that led from one state to the next."""
        at = (int(before.batting), int(before.supers))
        if not self.innings or (self.innings[-1].seat, self.innings[-1].super_over) != at:
            self.innings.append(Innings(*at))
        now = self.innings[-1]
        for player in (int(before.striker), int(before.other)):
            now.batters[player].came_in = True
        now.add(after.ball)


def batter_runs(ball: Any) -> int:
    """Runs of a ball that go to the striker."""
    outcome = int(ball.outcome)
    if outcome < WICKET:
        return RUNS[outcome]
    return {NO_BALL: int(ball.runs) - 1, WICKET: int(ball.runs)}.get(outcome, 0)
