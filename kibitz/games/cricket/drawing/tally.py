"""What the printed page has beside the state: runs of batters, figures, the last balls, the partnership."""

from __future__ import annotations

from collections import deque
from typing import Any

from kibitz.games.cricket.drawing.scorecard import Innings, Scorecard

SHORT = {"wide": "wd", "no_ball": "nb", "dot": "·"}


def sign(ball: dict[str, Any]) -> str:
    """A ball as scorers write it: `1`, `4`, `W`, `2wd`, `nb`, `lb`, `·`."""
    runs, outcome = ball["runs"], ball["outcome"]
    if ball["how"]:
        return "W"
    if outcome in ("wide", "no_ball"):
        return f"{runs if runs > 1 else ''}{SHORT[outcome]}"
    if outcome == "bye":
        return f"{runs if runs > 1 else ''}{'lb' if ball['leg_bye'] else 'b'}"
    return SHORT.get(outcome, str(runs))


class Tally:
    """Kept from the first ball that was seen; a match begun in its middle has nothing from before."""

    def __init__(self) -> None:
        self.card = Scorecard()
        self.last: deque[str] = deque(maxlen=12)
        self.runs = self.balls = 0  # of the partnership

    def add(self, before: Any, after: Any, drawn: dict[str, Any]) -> None:
        """A ball, with the frame after it."""
        self.card.add(before, after)
        ball = drawn["ball"]
        self.last.append(sign(ball))
        self.runs += ball["runs"]
        self.balls += ball["outcome"] not in ("wide", "no_ball")
        opened = int(after.legal) == 0 and int(after.score) == 0
        if ball["how"] or opened:
            self.runs = self.balls = 0
        if opened:
            self.last.clear()

    def innings(self, seat: int, super_over: int) -> Innings:
        """The innings that is being played; an empty one before its first ball."""
        if self.card.innings:
            now = self.card.innings[-1]
            if (now.seat, now.super_over) == (seat, super_over):
                return now
        return Innings(seat, super_over)

    def fill(self, drawn: dict[str, Any]) -> dict[str, Any]:
        """A frame with what only the card knows."""
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
        """A side's batting and bowling lines in its last innings with the bat and with the ball."""
        bat = next((i for i in reversed(self.card.innings) if i.seat == seat), None) or Innings(seat, 0)
        ball = next((i for i in reversed(self.card.innings) if i.seat != seat), None) or Innings(1 - seat, 0)
        batting = [{"runs": b.runs, "balls": b.balls, "out": b.how or None} for b in bat.batters]
        bowling = [{"overs": b.overs, "runs": b.runs, "wickets": b.wickets} for b in ball.bowlers]
        return batting, bowling
