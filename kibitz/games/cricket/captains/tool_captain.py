"""`HeuristicCaptain`: reads a frame, calls a tool. A good captain to watch, and the one who stands in."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kibitz.core.errors import BadInput
from kibitz.games.cricket.captains import bots as captains
from kibitz.games.cricket.chances.winprob import path_of
from kibitz.games.cricket.model import tactics
from kibitz.games.cricket.model.calibration import ERAS
from kibitz.games.cricket.model.delivery import phase_of
from kibitz.games.cricket.model.par import resembles
from kibitz.games.cricket.model.tactics import FIELDS, INTENTS, PLANS

Call = dict[str, Any]


class HeuristicCaptain:
    """Decides once a ball and then calls what it takes to play the decision.

    It weighs a ball as the captains inside compiled programs do, with the temper of one of them, and
    plans its bowlers by their ratings: the best two keep overs for the end.
    """

    def __init__(self, seed: int | None = None, temper: str = "shrewd") -> None:
        if temper not in captains.TEMPERS:
            raise BadInput(f"There is no temper {temper!r}; there are {', '.join(captains.TEMPERS)}.")
        self._temper = captains.TEMPERS[temper]
        self._rng = random.Random(seed)
        self._ball: Any = None
        self._wanted: list[Call] = []

    def act(self, frame: Mapping[str, Any]) -> Call:
        """The next call, from a frame of `to_ui_frame`."""
        ball = (frame["episode_id"], frame["turn"])
        if ball != self._ball:
            self._ball = ball
            self._wanted = self._decide(frame)
        legal = {entry["name"]: entry for entry in frame["tools"]}
        while self._wanted and frame["calls_left"] > 0:
            call = self._wanted.pop(0)
            if call["tool"] in legal and _changes(call, frame["plans"]):
                return call
        final = "play_delivery" if frame["role"] == "batting" else "bowl_delivery"
        return {"tool": final, "arguments": {}}

    def _decide(self, frame: Mapping[str, Any]) -> list[Call]:
        asked = [_call("analyze_situation")] if frame["legal"] == 0 and not frame["ball"] else []
        if frame["role"] == "batting":
            return [*asked, *self._coming(frame), _call("set_batting_plan", intent=self._intent(frame))]
        return [
            *self._bowler(frame),
            _call("set_field", field=self._field(frame)),
            _call("set_bowling_plan", plan=self._plan(frame)),
        ]

    def _intent(self, frame: Mapping[str, Any]) -> str:
        """Around the risk the moment asks for; a free hit is free."""
        if frame["free_hit"]:
            return "slog"
        temper, legal, overs = self._temper, frame["legal"], frame["overs"]
        rests, usual = path_of(overs)
        behind = 0.0
        if frame["super_over"]:
            rest, worn = 12.0, 0.0
        else:
            rest = float(rests[ERAS.index(frame["era"])][legal])
            worn = float(np.clip(frame["wickets"] - usual[legal], -4, 5))
        if frame["needed"]:
            behind = float(np.clip(np.log(frame["needed"] / max(rest, 1.0)), *captains.CHASE_LIMITS))
        hurry = captains.URGENCY * (1 - overs / 20)
        risk = captains.STAGE[_over(frame)] + hurry + temper.risk - temper.caution * worn + temper.chase * behind
        gaps = [(float(level) - risk) / captains.SPREAD for level in tactics.levels()]
        return self._rng.choices(INTENTS, [float(np.exp(-0.5 * gap * gap)) + 1e-12 for gap in gaps])[0]

    def _coming(self, frame: Mapping[str, Any]) -> list[Call]:
        """Near the end a hitter is sent in before a steadier man."""
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
        shares = captains.bowling(self._temper)[0].reshape(2, 3, len(PLANS) - 1)
        return self._draw(PLANS, shares[int(kind.startswith("spin")), phase_of(_over(frame))])

    def _next_type(self, frame: Mapping[str, Any]) -> str:
        """Of the man this captain has just chosen, or will."""
        chosen = [call["arguments"]["bowler"] for call in self._bowler(frame)]
        mine = frame["players"]["mine"]["players"]
        return str(next((player["bowls"] for player in mine if player["name"] in chosen), "pace"))

    def _field(self, frame: Mapping[str, Any]) -> str:
        shares = captains.bowling(self._temper)[1].reshape(3, len(FIELDS) - 1)
        field = self._draw(FIELDS, shares[phase_of(_over(frame))])
        return field if field in _open(frame, "set_field") else "balanced"

    def _draw(self, names: Sequence[str], ends: Any) -> str:
        """By cumulative shares, the last left out."""
        return names[int(np.searchsorted(ends, self._rng.random(), side="right"))]


def _call(tool: str, **arguments: str) -> Call:
    return {"tool": tool, "arguments": arguments}


def _changes(call: Call, plans: Mapping[str, Any]) -> bool:
    """Whether the call would alter a standing plan, or asks something."""
    return all(plans[name] != value for name, value in call["arguments"].items())


def _open(frame: Mapping[str, Any], tool: str) -> list[str]:
    """Values of a tool's argument that are open now; none if it is not legal."""
    for entry in frame["tools"]:
        if entry["name"] == tool:
            return [value for place in entry["arguments"]["properties"].values() for value in place["enum"]]
    return []


def _over(frame: Mapping[str, Any]) -> int:
    """The over of twenty that this ball resembles."""
    return 19 if frame["super_over"] else int(resembles(frame["overs"])[frame["legal"]])


def _bowled(player: Mapping[str, Any]) -> int:
    """Overs begun."""
    whole, _, part = player["bowling"]["overs"].partition(".")
    return int(whole) + int(part != "0")
