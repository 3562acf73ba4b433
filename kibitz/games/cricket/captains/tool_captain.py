"""`HeuristicCaptain`: reads a frame and calls a tool. It also replaces captains that fail."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kibitz.core.errors import BadInput
from kibitz.games.cricket.captains import bots
from kibitz.games.cricket.model import tactics
from kibitz.games.cricket.model.calibration import ERAS
from kibitz.games.cricket.model.delivery import phase_of
from kibitz.games.cricket.model.par import equivalent_overs, par_path
from kibitz.games.cricket.model.tactics import FIELDS, INTENTS, PLANS

Call = dict[str, Any]


class HeuristicCaptain:
    """Decides once per ball, then makes the calls that play the decision.

    It chooses like the bots, with the style of one of them, and ranks its bowlers by their ratings: the
    best two keep overs for the end.
    """

    def __init__(self, seed: int | None = None, style: str = "shrewd") -> None:
        if style not in bots.STYLES:
            raise BadInput(f"There is no style {style!r}; choose one of {', '.join(bots.STYLES)}.")
        self._style = bots.STYLES[style]
        self._rng = random.Random(seed)
        self._ball: Any = None
        self._pending: list[Call] = []

    def act(self, frame: Mapping[str, Any]) -> Call:
        """The next call for a frame of `to_ui_frame`."""
        ball = (frame["episode_id"], frame["turn"])
        if ball != self._ball:
            self._ball = ball
            self._pending = self._decide(frame)
        legal = {entry["name"]: entry for entry in frame["tools"]}
        while self._pending and frame["calls_left"] > 0:
            call = self._pending.pop(0)
            if call["tool"] in legal and _changes(call, frame["plans"]):
                return call
        final = "play_delivery" if frame["role"] == "batting" else "bowl_delivery"
        return {"tool": final, "arguments": {}}

    def _decide(self, frame: Mapping[str, Any]) -> list[Call]:
        asked = [_call("analyze_situation")] if frame["legal"] == 0 and not frame["ball"] else []
        if frame["role"] == "batting":
            return [*asked, *self._next_batter(frame), _call("set_batting_plan", intent=self._intent(frame))]
        return [
            *self._bowler(frame),
            _call("set_field", field=self._field(frame)),
            _call("set_bowling_plan", plan=self._plan(frame)),
        ]

    def _intent(self, frame: Mapping[str, Any]) -> str:
        """Drawn around the risk that the position demands; a free hit has no risk."""
        if frame["free_hit"]:
            return "slog"
        style, legal, overs = self._style, frame["legal"], frame["overs"]
        par_runs_left, par_wickets = par_path(overs)
        log_rate_needed = 0.0
        if frame["super_over"]:
            runs_left, excess = 12.0, 0.0
        else:
            runs_left = float(par_runs_left[ERAS.index(frame["era"])][legal])
            excess = float(np.clip(frame["wickets"] - par_wickets[legal], -4, 5))
        if frame["needed"]:
            log_rate_needed = float(np.clip(np.log(frame["needed"] / max(runs_left, 1.0)), *bots.CHASE_LIMITS))
        urgency = bots.URGENCY * (1 - overs / 20)
        stage = bots.STAGE[_over(frame)]
        risk = stage + urgency + style.risk - style.caution * excess + style.chase * log_rate_needed
        gaps = [(float(level) - risk) / bots.SPREAD for level in tactics.intent_risks()]
        return self._rng.choices(INTENTS, [float(np.exp(-0.5 * gap * gap)) + 1e-12 for gap in gaps])[0]

    def _next_batter(self, frame: Mapping[str, Any]) -> list[Call]:
        """Near the end, sends in a hitter ahead of a steadier batter."""
        names = _open(frame, "choose_next_batter")
        if not names or phase_of(_over(frame)) < 2 or frame["plans"]["batter"]:
            return []
        skills = {player["name"]: player["skills"] for player in frame["players"]["mine"]["players"]}
        best = max(names, key=lambda name: skills[name]["power"] + 0.5 * skills[name]["strike"])
        better = skills[best]["power"] >= skills[names[0]]["power"] + 10
        return [_call("choose_next_batter", batter=best)] if better else []

    def _bowler(self, frame: Mapping[str, Any]) -> list[Call]:
        names = _open(frame, "choose_bowler")
        if frame["bowler"] is not None or not names:
            return []
        players = {player["name"]: player for player in frame["players"]["mine"]["players"]}

        def merit(name: str) -> float:
            skills = players[name]["skills"]
            return float(skills["economy"] + 0.5 * skills["threat"] + 0.3 * skills["control"])

        overs, left = frame["overs"], frame["balls_left"] // 6
        late = max(2, overs // 5)
        if not frame["super_over"] and left > late:
            limit, kept = -(-overs // 5), -(-late // 2)
            closers = sorted((n for n in players if players[n]["bowls"]), key=merit)[-2:]
            saved = {name for name in closers if limit - _bowled(players[name]) <= kept}
            names = [name for name in names if name not in saved] or names
        return [_call("choose_bowler", bowler=max(names, key=merit))]

    def _plan(self, frame: Mapping[str, Any]) -> str:
        kind = frame["bowler"]["type"] if frame["bowler"] else self._next_type(frame)
        shares = bots.bowling(self._style)[0].reshape(2, 3, len(PLANS) - 1)
        return self._draw(PLANS, shares[int(kind.startswith("spin")), phase_of(_over(frame))])

    def _next_type(self, frame: Mapping[str, Any]) -> str:
        """The type of the bowler that this captain chooses."""
        chosen = [call["arguments"]["bowler"] for call in self._bowler(frame)]
        mine = frame["players"]["mine"]["players"]
        return str(next((player["bowls"] for player in mine if player["name"] in chosen), "pace"))

    def _field(self, frame: Mapping[str, Any]) -> str:
        shares = bots.bowling(self._style)[1].reshape(3, len(FIELDS) - 1)
        field = self._draw(FIELDS, shares[phase_of(_over(frame))])
        return field if field in _open(frame, "set_field") else "balanced"

    def _draw(self, names: Sequence[str], ends: Any) -> str:
        """Draws by cumulative shares without the last."""
        return names[int(np.searchsorted(ends, self._rng.random(), side="right"))]


def _call(tool: str, **arguments: str) -> Call:
    return {"tool": tool, "arguments": arguments}


def _changes(call: Call, plans: Mapping[str, Any]) -> bool:
    """Whether the call would change a standing plan or has no argument."""
    return all(plans[name] != value for name, value in call["arguments"].items())


def _open(frame: Mapping[str, Any], tool: str) -> list[str]:
    """The open values of a tool's argument; none if the tool is not legal."""
    for entry in frame["tools"]:
        if entry["name"] == tool:
            return [value for place in entry["arguments"]["properties"].values() for value in place["enum"]]
    return []


def _over(frame: Mapping[str, Any]) -> int:
    """The equivalent over of a twenty-over innings."""
    return 19 if frame["super_over"] else int(equivalent_overs(frame["overs"])[frame["legal"]])


def _bowled(player: Mapping[str, Any]) -> int:
    """Overs started."""
    whole, _, part = player["bowling"]["overs"].partition(".")
    return int(whole) + int(part != "0")
