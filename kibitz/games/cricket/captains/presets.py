"""Who can captain a cricket side through its tools, and `pick_action`, which asks one of them.

A preset is a player's name: a heuristic (`balanced`), a language model (`llm:PRESET`) or a trained
policy (`policy:RUN`).
"""

from __future__ import annotations

import json
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Any

from kibitz.core.errors import BadInput
from kibitz.core.play.episode import table_for
from kibitz.core.play.player import Choice, Player, Turn
from kibitz.core.play.resolve import player_and_bot
from kibitz.games.cricket import game
from kibitz.games.cricket.captains.bots import CAPTAINS
from kibitz.games.cricket.captains.tool_models import CricketAction, CricketObservation
from kibitz.llm.presets import read_presets, why_not

log = logging.getLogger(__name__)

OPPONENT_PRESETS: dict[str, str] = {name: name for name in CAPTAINS} | {
    "llm": "llm:auto",
    "embedded": "llm:embedded",
    "groq": "llm:groq",
    "openai": "llm:openai",
}
"""What a user chooses -> `opponent_mode`."""

ABOUT = {
    "balanced": "the default captain, on whom the ball model is centred",
    "aggressive": "takes risks with bat and field",
    "defensive": "saves wickets and runs",
    "shrewd": "knows what counters what",
    "random": "any legal choice",
    "heuristic": "the same as balanced",
}


def captain_presets(runs: str | Path = "runs") -> dict[str, dict[str, Any]]:
    """Everybody who can captain here: `kind`, `usable`, and `why` not where it is not."""
    found = {name: _entry("heuristic", "", ABOUT.get(name, "")) for name in CAPTAINS}
    try:
        for name, preset in read_presets().items():
            found[f"llm:{name}"] = _entry("llm", why_not(preset), preset.note or preset.model)
    except BadInput as wrong:  # a broken file of the user's own hides its presets, not the captains
        found["llm:"] = _entry("llm", str(wrong), "")
    for folder in sorted(Path(runs).glob("*/run.json")):
        if _game_of(folder) == game().name:
            has_one = any((folder.parent / "checkpoints").glob("step_*.safetensors"))
            why = "" if has_one else "It has no checkpoint yet."
            found[f"policy:{folder.parent}"] = _entry("policy", why, folder.parent.name)
    return found


def _entry(kind: str, why: str, about: str) -> dict[str, Any]:
    return {"kind": kind, "usable": not why, "why": why, "about": about}


def _game_of(file: Path) -> Any:
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return about.get("game") if isinstance(about, dict) else None


@dataclass
class _Seat:
    """A captain in one episode: asked once a ball, whatever number of calls that takes."""

    player: Player
    turn: int = -1
    choice: Choice | None = None
    why: str = ""  # it could not be asked about this ball
    lock: RLock = field(default_factory=RLock)


class Captains:
    """Captains by episode and preset. `answered` counts by (preset, who answered)."""

    def __init__(self, most: int = 64) -> None:
        self.answered: Counter[tuple[str, str]] = Counter()
        self._seats: OrderedDict[tuple[str, str], _Seat] = OrderedDict()
        self._most, self._lock, self._said = most, RLock(), set[str]()

    def pick(
        self, obs: CricketObservation, preset: str, fallback: Callable[[CricketObservation], CricketAction]
    ) -> CricketAction:
        if preset not in CAPTAINS and not preset.startswith(("llm:", "policy:")):
            known = ", ".join([*CAPTAINS, "llm:PRESET", "policy:RUN"])
            raise BadInput(f"There is no captain {preset!r}; there are {known}.")
        began, why = None, ""
        try:
            seat = self._seat(obs, preset)
            with seat.lock:
                began = seat.turn != obs.turn
                choice = self._choice(seat, obs)
            call = _next_call(choice, obs)
            about = {"source": choice.source, "reason": choice.reason, "latency": choice.latency}
            action = CricketAction(
                **call, metadata={"preset": preset, **about, "usage": dict(choice.usage), "fallback": ""}
            )
        except Exception as error:  # a captain is somebody else's code; whatever it raises, the match goes on
            why = str(error) if isinstance(error, BadInput | _NotAsked) else f"{type(error).__name__}: {error}"
            action = fallback(obs).model_copy(
                update={"metadata": {"preset": preset, "source": "fallback", "reason": "", "fallback": why}}
            )
        if began or began is None:
            self._count(preset, why)
        return action

    def _count(self, preset: str, why: str) -> None:
        with self._lock:
            self.answered[preset, "fallback" if why else preset] += 1
            if why and preset not in self._said:
                self._said.add(preset)
                log.warning("captain %s did not answer (%s); the fallback plays", preset, why)

    def _seat(self, obs: CricketObservation, preset: str) -> _Seat:
        turn: Turn | None = obs._turn
        if turn is None:
            raise _NotAsked("the observation is not of a match that is being played in this process")
        key = (obs.episode_id, preset)
        with self._lock:
            if key not in self._seats:
                player, _ = player_and_bot(game(), preset)  # with a memory of its own for each episode
                player.begin(turn.settings, turn.seat, turn.luck)
                self._seats[key] = _Seat(player)
                while len(self._seats) > self._most:
                    self._seats.popitem(last=False)
            self._seats.move_to_end(key)
            return self._seats[key]

    def _choice(self, seat: _Seat, obs: CricketObservation) -> Choice:
        turn: Turn = obs._turn
        if seat.turn != obs.turn:
            seat.turn, seat.choice, seat.why = obs.turn, None, ""
            try:
                choice = seat.player.choose(turn)
                if not table_for(game()).is_legal(turn.masks, choice.act):
                    raise _NotAsked(f"illegal act {list(choice.act)}")
                seat.choice = choice
            except Exception as error:
                seat.why = str(error) if isinstance(error, _NotAsked) else f"{type(error).__name__}: {error}"
        if seat.choice is None:
            raise _NotAsked(seat.why)
        return seat.choice


class _NotAsked(RuntimeError):
    """Why a captain's answer is not used."""


def _next_call(choice: Choice, obs: CricketObservation) -> dict[str, Any]:
    """The first call of a choice that does not stand already; the ball when all do, or no call is left."""
    *settings, ball = game().drawing.tool_calls(choice.act, 0, obs.frame)
    legal = {tool["name"] for tool in obs.tools}
    for call in settings if obs.calls_left > 0 else []:
        stands = all(obs.plans.get(name) == value for name, value in call["arguments"].items())
        if call["tool"] in legal and not stands:
            return call
    return ball


CAPTAINS_HERE = Captains()


def pick_action(
    obs: CricketObservation, preset: str, fallback: Callable[[CricketObservation], CricketAction]
) -> CricketAction:
    """The next call of a preset's captain, or of `fallback` where it fails.

    The action's `metadata` says who answered (`source`), why the fallback had to (`fallback`, empty if
    it had not to), and the captain's reason, seconds and tokens.
    """
    return CAPTAINS_HERE.pick(obs, preset, fallback)
