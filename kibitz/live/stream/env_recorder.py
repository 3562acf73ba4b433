"""The events of an environment that other code steps, made from its observations."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from kibitz.core.play.events import Event, Stream


class EnvRecorder:
    """Turns observations before and after each step into events.

    An observation has `frame` and `message`, as an object or a mapping; missing fields stay empty. A tool call that
    does not step the game becomes a decision without a step. An environment whose observations carry, in `metadata`,
    the `options` of the reset and the `acts` of each step (by seat, one entry per step of the game) leaves a record
    that can be replayed and so branched.
    """

    def __init__(self, game: str, episode_id: str, players: tuple[str, str], about: Mapping[str, Any]) -> None:
        self._game, self._players, self._about = game, players, dict(about)
        self._stream = Stream((), episode_id)
        self._frame: dict[str, Any] = {}
        self._returns = [0.0, 0.0]
        self._public_rewards = False
        self._steps = 0
        self._asked_at = 0.0
        self._last_line = ""

    def started(self, obs: Any) -> list[Event]:
        from kibitz.games import get_game

        game = get_game(self._game)
        self._public_rewards = game.drawing.public_rewards
        self._frame = dict(_get(obs, "frame", {}))
        payload = {
            "game": self._game,
            "version": game.version,
            "players": list(self._players),
            "frame": self._frame,
            "cast": dict(_get(obs, "cast", {})),
            "about": self._about | _metadata(obs, "options"),
            "private": {},
        }
        events = [self._stream.emit("episode.started", payload)]
        events += [self._step(acts, 0, 0.0, {}) for acts in _acts(obs)]  # the other side may move first
        return events + self._commentary(obs, 0)

    def before(self, obs: Any) -> dict[str, Any]:
        """The moment before a step, to compare with the one after it."""
        return {"frame": dict(_get(obs, "frame", {})), "turn": _get(obs, "turn", self._steps)}

    def decision(self, action: Any, turn: int) -> list[Event]:
        tool, arguments = str(_get(action, "tool", action)), dict(_get(action, "arguments", {}) or {})
        shown = ", ".join(f"{name} {value}" for name, value in arguments.items())
        now = time.monotonic()
        latency, self._asked_at = (now - self._asked_at if self._asked_at else 0.0), now
        payload = {
            "seat": 0,
            "turn": turn,
            "act": [],
            "text": f"{tool} {shown}".strip(),
            "calls": [{"tool": tool, "arguments": arguments}],
            "source": self._players[0],
            "latency": latency,
            "usage": {},
            "fallback": "",
            "private": {},
        }
        return [self._stream.emit("decision", payload)]

    def step(self, pre: Mapping[str, Any], obs: Any, reward: float | None, turn: int) -> list[Event]:
        self._asked_at = time.monotonic()
        frame = dict(_get(obs, "frame", {}))
        stepped = _get(obs, "turn", None) != pre["turn"] or frame != self._frame
        if not stepped:
            return []
        paid = float(reward if reward is not None else _get(obs, "reward", 0.0) or 0.0)
        self._returns[0] += paid
        changed = {key: value for key, value in frame.items() if key not in self._frame or self._frame[key] != value}
        self._frame = frame
        *earlier, last = _acts(obs) or [[None, None]]
        events = [self._step(acts, turn, 0.0, {}) for acts in earlier]
        return [*events, self._step(last, turn, paid, changed), *self._commentary(obs, turn)]

    def _step(self, acts: list[Any], turn: int, paid: float, changed: Mapping[str, Any]) -> Event:
        self._steps += 1
        rewards = {"rewards": [paid, 0.0]} if self._public_rewards else {"private": {"0": {"reward": paid}}}
        return self._stream.emit("step", {"turn": turn, "acts": acts, **rewards, "frame": dict(changed)})

    def ended(self, state: Any) -> list[Event]:
        """Ends as failed if the driver abandoned the episode before its end."""
        if _get(state, "match_over", _get(state, "done", True)) is False:  # cricket's name, every other game's
            failed = {
                "kind": "stopped",
                "reason": "The driver stopped the episode.",
                "frame": self._frame,
                "private": {},
            }
            return [self._stream.emit("episode.failed", failed | {"steps": self._steps})]
        payload = {
            "text": self._last_line,
            "audio": None,
            "returns": self._returns,
            "scores": {},
            "frame": self._frame,
            "review": {},
            "private": {},
            "seed": int(_get(state, "seed", 0) or 0),
            "number": 0,
            "match": _get(state, "pack_match", None),
            "steps": self._steps,
        }
        return [self._stream.emit("episode.ended", payload)]

    def _commentary(self, obs: Any, turn: int) -> list[Event]:
        self._last_line = str(_get(obs, "message", "") or "")
        payload = {"turn": turn, "text": self._last_line, "audio": None}
        return [self._stream.emit("commentary", payload)] if self._last_line else []


def _metadata(obs: Any, name: str) -> dict[str, Any]:
    """One entry of the observation's metadata, if present."""
    metadata = _get(obs, "metadata", None) or {}
    return {name: metadata[name]} if name in metadata else {}


def _acts(obs: Any) -> list[list[Any]]:
    return [list(acts) for acts in _metadata(obs, "acts").get("acts", [])]


def _get(source: Any, name: str, default: Any) -> Any:
    if isinstance(source, Mapping):
        return source.get(name, default)
    return getattr(source, name, default)
