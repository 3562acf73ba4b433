"""Captain presets: the players that can captain a side through its tools, and `pick_action`, which asks one.

A preset is the name of a player: a heuristic (`balanced`), a language model (`llm:PRESET`) or a trained
policy (`policy:RUN`).
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

from kibitz.core.errors import BadInput, NotFound
from kibitz.core.play.episode import table_for
from kibitz.core.play.player import Choice, Player, Turn
from kibitz.core.play.resolve import ANY_PATH, player_and_bot
from kibitz.core.registry import load_game
from kibitz.games.cricket.captains.bots import CAPTAINS
from kibitz.games.cricket.captains.tool_calls import tool_calls
from kibitz.games.cricket.captains.tool_models import CricketAction, CricketObservation, read_observation

log = logging.getLogger(__name__)

MAX_SEATS = 64  # captains kept in memory, one per episode and preset

OPPONENT_PRESETS: dict[str, str] = {name: name for name in CAPTAINS} | {
    "llm": "llm:auto",
    "embedded": "llm:embedded",
    "groq": "llm:groq",
    "openai": "llm:openai",
}
"""From a user's choice to `opponent_mode`."""

ABOUT = {
    "balanced": "the default captain, on which the ball model is centred",
    "aggressive": "takes risks with bat and field",
    "defensive": "saves wickets and runs",
    "shrewd": "knows which choice counters which",
    "random": "any legal choice",
    "heuristic": "the same as balanced",
}

Fallback = Callable[[CricketObservation], CricketAction]


def captain_presets() -> dict[str, dict[str, Any]]:
    """Every preset on this machine: `kind`, `usable`, `why` it is not usable, and `about`."""
    presets = {}
    for player in ANY_PATH.players(load_game("cricket")):
        kind = "heuristic" if player.name in CAPTAINS else player.kind
        about = ABOUT.get(player.name, player.about)
        presets[player.name] = {"kind": kind, "usable": not player.why_not, "why": player.why_not, "about": about}
    return presets


class _NoAnswer(RuntimeError):
    """A captain has no usable answer; the message says why."""


@dataclass
class _Seat:
    """A captain in one episode. It chooses once per ball, however many calls the choice takes."""

    player: Player
    turn: int = -1
    choice: Choice | None = None
    why: str = ""  # why there is no choice for this ball
    lock: RLock = field(default_factory=RLock)


class CaptainPool:
    """Captains by episode and preset. `answered` counts balls by (preset, player that answered)."""

    def __init__(self) -> None:
        self.answered: Counter[tuple[str, str]] = Counter()
        self._seats: OrderedDict[tuple[str, str], _Seat] = OrderedDict()
        self._lock, self._warned = RLock(), set[str]()

    def pick(self, obs: CricketObservation, preset: str, fallback: Fallback) -> CricketAction:
        new_ball, why = True, ""
        try:
            seat = self._seat(obs, preset)
            with seat.lock:
                new_ball = seat.turn != obs.turn
                choice = self._choice(seat, obs)
            source = {"source": choice.source, "reason": choice.reason, "latency": choice.latency}
            metadata = {"preset": preset, **source, "usage": dict(choice.usage), "fallback": ""}
            action = CricketAction(**_next_call(choice, obs), metadata=metadata)
        except Exception as error:  # a captain may be foreign code: whatever it raises, the match continues
            if isinstance(error, BadInput) and not isinstance(error, NotFound):
                raise  # there is no such preset
            why = _sentence(error)
            metadata = {"preset": preset, "source": "fallback", "reason": "", "fallback": why}
            action = fallback(obs).model_copy(update={"metadata": metadata})
        if new_ball:
            self._count(preset, why)
        return action

    def _count(self, preset: str, why: str) -> None:
        with self._lock:
            self.answered[preset, "fallback" if why else preset] += 1
            if why and preset not in self._warned:
                self._warned.add(preset)
                log.warning("Captain %s did not answer (%s); the fallback plays.", preset, why)

    def _seat(self, obs: CricketObservation, preset: str) -> _Seat:
        key = (obs.episode_id, preset)
        with self._lock:
            if key not in self._seats:
                player, _ = player_and_bot(load_game("cricket"), preset)  # each episode needs its own memory
                turn = _turn_of(obs)
                player.begin(turn.settings, turn.seat, turn.luck)
                self._seats[key] = _Seat(player)
                while len(self._seats) > MAX_SEATS:
                    self._seats.popitem(last=False)
            self._seats.move_to_end(key)
            return self._seats[key]

    def _choice(self, seat: _Seat, obs: CricketObservation) -> Choice:
        turn = _turn_of(obs)
        if seat.turn != obs.turn:
            seat.turn, seat.choice, seat.why = obs.turn, None, ""
            try:
                choice = seat.player.choose(turn)
                if not table_for(load_game("cricket")).is_legal(turn.masks, choice.act):
                    raise _NoAnswer(f"illegal act {list(choice.act)}")
                seat.choice = choice
            except Exception as error:
                seat.why = str(error) if isinstance(error, _NoAnswer) else f"{type(error).__name__}: {error}"
        if seat.choice is None:
            raise _NoAnswer(seat.why)
        return seat.choice


def _turn_of(obs: CricketObservation) -> Turn:
    turn: Turn | None = obs._turn
    if turn is None and obs.turn_data is not None:  # the match is in another process
        from kibitz.games.cricket.captains.portable import turn_of_data

        turn = obs._turn = turn_of_data(obs.turn_data, obs.episode_id, obs.turn)
    if turn is None:
        raise _NoAnswer("the observation has no turn to play")
    return turn


def _sentence(error: Exception) -> str:
    return str(error) if isinstance(error, BadInput | _NoAnswer) else f"{type(error).__name__}: {error}"


def _next_call(choice: Choice, obs: CricketObservation) -> dict[str, Any]:
    """The first call that changes a plan; the ball when no plan needs a change or no call is left."""
    *changes, ball = tool_calls(choice.act, 0, obs.frame)
    legal = {tool["name"] for tool in obs.tools}
    for call in changes if obs.calls_left > 0 else []:
        stands = all(obs.plans.get(name) == value for name, value in call["arguments"].items())
        if call["tool"] in legal and not stands:
            return call
    return ball


CAPTAIN_POOL = CaptainPool()


def pick_action(obs: CricketObservation | Mapping[str, Any], preset: str, fallback: Fallback) -> CricketAction:
    """The next call of a preset's captain, or of `fallback` if the captain fails.

    The observation may have gone through JSON: the match may run on a server, the captain here.

    The action's `metadata` names the player that answered (`source`), why the fallback was needed
    (`fallback`, empty if it was not), and the captain's reason, seconds and tokens.
    """
    return CAPTAIN_POOL.pick(read_observation(obs), preset, fallback)
