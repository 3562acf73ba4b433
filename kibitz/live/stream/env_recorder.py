"""The events of an environment that other code steps, made from its observations."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from kibitz.core.errors import BadInput
from kibitz.core.play.events import Event, Stream


class EnvRecorder:
    """Turns observations before and after each step into events.

    An observation has `frame` and `message`, as an object or a mapping; missing fields stay empty. A tool call that
    does not step the game becomes a decision without a step. What else the environment reports is in `metadata`:
    - after the reset, its `game`, and the `options` that together with the seed reproduce the episode;
    - `action`, the metadata of the action, as in `pick_action`: who chose it, and why a fallback did;
    - `acts` by seat, one entry per step of the game, and `rewards` by seat where the game makes them public;
    - `opponent`, an entry per act of seat 1: who chose it, and why a fallback did.
    """

    def __init__(self, episode_id: str, players: tuple[str, str], about: Mapping[str, Any], game: str = "") -> None:
        self._name, self._players, self._about = game, players, dict(about)
        self._stream = Stream((), episode_id)
        self._frame: dict[str, Any] = {}
        self._returns = [0.0, 0.0]
        self._steps = 0
        self._asked_at = 0.0
        self._last_line = ""

    def started(self, obs: Any) -> list[Event]:
        from kibitz.games import get_game

        name = self._name or _metadata(obs).get("game")
        if not name:
            raise BadInput("The environment does not name its game; give BusObserver the argument game.")
        self._game = get_game(name)
        self._frame = dict(_get(obs, "frame", {}))
        options = {key: value for key, value in _metadata(obs).items() if key == "options"}
        payload = {
            "game": self._game.name,
            "version": self._game.version,
            "players": list(self._players),
            "frame": self._frame,
            "cast": dict(_get(obs, "cast", {})),
            "about": self._about | options,
            "private": {},
        }
        self._asked_at = time.monotonic()
        started = self._stream.emit("episode.started", payload)
        return [started, *self._moves(obs, 0, 0.0, {}), *self._commentary(obs, 0)]  # the other side may move first

    def before(self, obs: Any) -> dict[str, Any]:
        """The moment before a step, to compare with the one after it."""
        turn = _get(obs, "turn", self._steps)
        return {"frame": dict(_get(obs, "frame", {})), "turn": turn, "latency": time.monotonic() - self._asked_at}

    def step(self, action: Any, pre: Mapping[str, Any], obs: Any, reward: float | None, turn: int) -> list[Event]:
        """The decision, and what it led to if it stepped the game."""
        self._asked_at = time.monotonic()
        frame = dict(_get(obs, "frame", {}))
        moved = _get(obs, "turn", None) != pre["turn"] or frame != self._frame
        stepped = bool(_acts(obs)) if "acts" in _metadata(obs) else moved
        decision = self._own_decision(action, obs, turn, float(pre.get("latency", 0.0)))
        if not stepped:
            return [decision]
        paid = float(reward if reward is not None else _get(obs, "reward", 0.0) or 0.0)
        changed = {key: value for key, value in frame.items() if key not in self._frame or self._frame[key] != value}
        moves = self._moves(obs, turn, paid, changed) or [self._step([None, None], turn, [paid, 0.0], changed)]
        self._frame = frame
        return [decision, *moves, *self._commentary(obs, turn)]

    def _own_decision(self, action: Any, obs: Any, turn: int, latency: float) -> Event:
        """A driver may pass on only tool and arguments; the environment has the metadata of the whole action."""
        tool = action if isinstance(action, str) else _get(action, "tool", None)
        arguments = dict(_get(action, "arguments", {}) or {})
        act: list[int] = next((acts[0] for acts in _acts(obs) if acts[0] is not None), [])
        shown = ", ".join(f"{name} {value}" for name, value in arguments.items())
        text = f"{tool} {shown}".strip() if tool else self._game.words.act_text(tuple(act)) if act else str(action)
        calls = [{"tool": tool, "arguments": arguments}] if tool else []
        answer = _metadata(action) or _metadata(obs).get("action") or {}
        return self._decision(0, turn, act, text, calls, {"latency": latency, **answer})

    def _moves(self, obs: Any, turn: int, paid: float, changed: Mapping[str, Any]) -> list[Event]:
        """Each step of the game since the last observation, after the opponent's decision."""
        listed, events = _acts(obs), []
        answers = iter(_metadata(obs).get("opponent") or ())
        rewards = _metadata(obs).get("rewards") or [[0.0, 0.0]] * (len(listed) - 1) + [[paid, 0.0]]
        for number, acts in enumerate(listed):
            answer = next(answers, None) if acts[1] is not None else None
            if answer is not None:
                calls = self._game.drawing.tool_calls(acts[1], 1, self._frame)
                events.append(
                    self._decision(1, turn, acts[1], self._game.words.act_text(tuple(acts[1])), calls, answer)
                )
            last = number == len(listed) - 1
            events.append(self._step(acts, turn, rewards[number], changed if last else {}))
        return events

    def _decision(
        self, seat: int, turn: int, act: list[int], text: str, calls: Iterable[Any], answer: Mapping[str, Any]
    ) -> Event:
        reason = str(answer.get("reason") or "")
        payload = {
            "seat": seat,
            "turn": turn,
            "act": act,
            "text": text,
            "calls": list(calls),
            "source": str(answer.get("source") or self._players[seat]),
            "latency": float(answer.get("latency") or 0.0),
            "usage": dict(answer.get("usage") or {}),
            "fallback": str(answer.get("fallback") or ""),
            "failure": str(answer.get("failure") or ""),
            "private": {str(seat): {"reason": reason}} if reason else {},
        }
        return self._stream.emit("decision", payload)

    def _step(self, acts: list[Any], turn: int, paid: list[float], changed: Mapping[str, Any]) -> Event:
        self._steps += 1
        self._returns = [total + float(part) for total, part in zip(self._returns, paid, strict=True)]
        public = self._game.drawing.public_rewards
        rewards = {"rewards": list(paid)} if public else {"private": {"0": {"reward": paid[0]}}}
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
            "returns": list(_get(state, "returns", None) or self._returns),  # seat 1's may be secret until now
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


def _metadata(source: Any) -> Mapping[str, Any]:
    """Of an observation or an action; empty if it has none."""
    return _get(source, "metadata", None) or {}


def _acts(obs: Any) -> list[list[Any]]:
    return [list(acts) for acts in _metadata(obs).get("acts", [])]


def _get(source: Any, name: str, default: Any) -> Any:
    if isinstance(source, Mapping):
        return source.get(name, default)
    return getattr(source, name, default)
