"""The answer of `analyze_situation`: phase, rates, par, win probability and match-ups."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kibitz.games.cricket.chances import winprob
from kibitz.games.cricket.model.calibration import ERAS, calibration
from kibitz.games.cricket.model.delivery import TYPES, phase_of
from kibitz.games.cricket.model.tactics import OUTCOMES
from kibitz.games.cricket.teams import roster
from kibitz.games.cricket.words.prompt import phase_text

Floats = NDArray[np.float64]
MEAN_RUNS = np.array([0, 1, 2, 3, 4, 6, 0, 1.1, 2.3, 1.4])  # by outcome


@cache
def _mean_shares(era: int, model: int) -> Floats:
    """f64[phase, outcome], mean shares of outcomes."""
    share = calibration(model)["eras"][ERAS[era]]["share"]
    return np.array([np.mean([share[o] for o in range(20) if phase_of(o) == p], axis=0) for p in range(3)])


class MatchUps:
    """How the batters of a match fare against its bowlers, with neutral plans on an ordinary pitch."""

    def __init__(self, settings: Any) -> None:
        outcomes = len(OUTCOMES)
        self._bat = np.asarray(settings.sides.batters, float).reshape(-1, 11, len(TYPES), outcomes)
        self._bowl = np.asarray(settings.sides.bowlers, float).reshape(-1, 11, 3, outcomes)
        self._types = np.asarray(settings.sides.types).reshape(-1, 11)
        self._shares = _mean_shares(int(settings.era), int(settings.fitted))
        self.model = int(settings.fitted)

    def expected(self, batting: int, batter: int, bowling: int, bowler: int, phase: int) -> tuple[float, float]:
        """Runs per ball and the probability of a wicket."""
        kind = int(self._types[bowling, bowler])
        weight = self._shares[phase] * np.exp(self._bat[batting, batter, kind] + self._bowl[bowling, bowler, phase])
        share = weight / weight.sum()
        return float(share @ MEAN_RUNS), float(share[OUTCOMES.index("wicket")])


def analyze(frame: dict[str, Any], view: Any, duels: MatchUps, may_bowl: tuple[str, ...]) -> dict[str, Any]:
    """Match-ups are against the current bowler, or against all who may bowl the next over."""
    phase = phase_of(int(view.twenty_over))
    batting, bowling = int(view.batting_eleven), int(view.bowling_eleven)
    batters, bowlers = roster.side(view.batting_team_id), roster.side(view.bowling_team_id)
    order = [player.name for player in bowlers.players]
    names = [frame["bowler"]["name"]] if frame["bowler"] else list(may_bowl)
    match_ups = []
    for place in ("striker", "other"):
        for name in names:
            batter = frame[place]["player"]
            runs, wicket = duels.expected(batting, batter, bowling, order.index(name), phase)
            match_ups.append(
                {
                    "batter": batters.players[batter].name,
                    "bowler": name,
                    "type": bowlers.players[order.index(name)].bowls,
                    "runs_per_ball": round(runs, 2),
                    "wicket_chance": round(wicket, 3),
                }
            )
    return {
        "phase": phase_text(view),
        "balls_left": frame["balls_left"],
        "wickets_in_hand": (2 if frame["super_over"] else 10) - frame["wickets"],
        "run_rate": frame["run_rate"],
        "required_rate": frame["required_rate"],
        "par": round(winprob.par_score(frame["overs"], ERAS.index(frame["era"]), duels.model)),
        "projected": frame["projected"],
        "win_probability": round(frame["win_probability"][0], 3),
        "match_ups": match_ups,
    }
