"""What a captain is told who asks: phase, rates, par, win probability, who fares how against whom."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kibitz.games.cricket.chances import winprob
from kibitz.games.cricket.model.calibration import ERAS, calibration
from kibitz.games.cricket.model.delivery import TYPES, phase_of
from kibitz.games.cricket.model.tactics import OUTCOMES
from kibitz.games.cricket.teams.roster import Eleven
from kibitz.games.cricket.words.prompt import phase_text

Floats = NDArray[np.float64]
RUNS = np.array([0, 1, 2, 3, 4, 6, 0, 1.1, 2.3, 1.4])  # of each outcome, extras at their means


@cache
def typical(era: int) -> Floats:
    """f64[phase, outcome], shares of an ordinary ball."""
    share = calibration()["eras"][ERAS[era]]["share"]
    return np.array([np.mean([share[o] for o in range(20) if phase_of(o) == p], axis=0) for p in range(3)])


class Duel:
    """How batters of one match fare against its bowlers, on neutral plans and an ordinary pitch."""

    def __init__(self, settings: Any) -> None:
        outcomes = len(OUTCOMES)
        self._bat = np.asarray(settings.sides.batters, float).reshape(-1, 11, len(TYPES), outcomes)
        self._bowl = np.asarray(settings.sides.bowlers, float).reshape(-1, 11, 3, outcomes)
        self._types = np.asarray(settings.sides.types).reshape(-1, 11)
        self._usual = typical(int(settings.era))

    def expected(self, batting: int, batter: int, bowling: int, bowler: int, phase: int) -> tuple[float, float]:
        """Runs a ball and the chance of a wicket."""
        kind = int(self._types[bowling, bowler])
        weight = self._usual[phase] * np.exp(self._bat[batting, batter, kind] + self._bowl[bowling, bowler, phase])
        share = weight / weight.sum()
        return float(share @ RUNS), float(share[OUTCOMES.index("wicket")])


def analyze(
    drawn: dict[str, Any], view: Any, duel: Duel, batters: Eleven, bowlers: Eleven, era: int, names: tuple[str, ...]
) -> dict[str, Any]:
    """`names` are the bowlers to weigh: who bowls, or who may bowl next."""
    overs, phase = drawn["overs"], phase_of(int(view.twenty_over))
    batting, bowling = int(view.batting_eleven), int(view.bowling_eleven)
    order = [player.name for player in bowlers.players]
    wanted = [drawn["bowler"]["name"]] if drawn["bowler"] else list(names)
    match_ups = []
    for place in ("striker", "other"):
        for name in wanted:
            who = drawn[place]["player"]
            runs, wicket = duel.expected(batting, who, bowling, order.index(name), phase)
            match_ups.append(
                {
                    "batter": batters.players[who].name,
                    "bowler": name,
                    "type": bowlers.players[order.index(name)].bowls,
                    "runs_per_ball": round(runs, 2),
                    "wicket_chance": round(wicket, 3),
                }
            )
    return {
        "phase": phase_text(view),
        "balls_left": drawn["balls_left"],
        "wickets_in_hand": (2 if drawn["super_over"] else 10) - drawn["wickets"],
        "run_rate": drawn["run_rate"],
        "required_rate": drawn["required_rate"],
        "par": round(winprob.par_score(overs, era)),
        "projected": drawn["projected"],
        "win_probability": round(drawn["win_probability"][0], 3),
        "match_ups": match_ups,
    }
