"""Writes an episode as it is played: the payload of every event, and the commentary between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kibitz.core.errors import Stopped
from kibitz.core.game import SEATS, Game
from kibitz.core.play.events import Stream
from kibitz.core.play.player import Choice, TurnRequest

Commentate = Callable[[Mapping[str, Any], Mapping[str, Any]], str]
"""An event with its `players`, and the whole frame after it -> a line of commentary, or ""."""


class EpisodeRecorder:
    """One episode's stream. What only a seat may know is under `private` and nowhere else."""

    def __init__(self, game: Game, settings: Any, stream: Stream, commentate: Commentate) -> None:
        self.stream = stream
        self._game, self._settings, self._commentate = game, settings, commentate
        self._frame: Mapping[str, Any] = {}
        self._private: dict[str, dict[str, Any]] = {}
        self._players: list[str] = []

    def started(self, state: Any, players: Sequence[str], about: Mapping[str, Any]) -> None:
        game = self._game
        self._players = list(players)
        self._draw(state)
        self._emit(
            "episode.started",
            {
                "game": game.name,
                "version": game.version,
                "players": self._players,
                "frame": self._frame,
                "cast": game.drawing.cast(self._settings, state),
                "about": dict(about),
                "private": self._values(state),
            },
            0,
        )

    def hint(self, seat: int, turn: int, hint: Choice) -> None:
        advice = {"act": list(hint.act), "text": self._game.words.act_text(hint.act), "reason": hint.reason}
        payload = _asked(seat, turn, hint) | {"private": {str(seat): advice | {"confidence": hint.confidence}}}
        self._emit("hint", payload)

    def turn_requested(self, seat: int, turn: int, request: TurnRequest) -> None:
        """The public learns only which seat is being asked."""
        private = {str(seat): dict(request.details)}
        self._emit("turn.requested", {"seat": seat, "turn": turn, "seconds": request.seconds, "private": private})

    def decision(self, seat: int, turn: int, choice: Choice) -> None:
        chosen = {
            "act": list(choice.act),
            "text": self._game.words.act_text(choice.act),
            "calls": self._game.drawing.tool_calls(choice.act, seat, self._frame),
            # a player's reasons may mention private values
            "private": {str(seat): {"reason": choice.reason}},
        }
        self._emit("decision", _asked(seat, turn, choice) | chosen)

    def step(self, state: Any, turn: int, acts: Sequence[tuple[int, ...] | None], rewards: Any) -> None:
        """Emits the changed keys of frame and private values, and each seat's reward to that seat alone."""
        before, known = self._frame, self._private
        self._draw(state)
        private = {seat: _changed(known[seat], values) for seat, values in self._values(state).items()}
        payload: dict[str, Any] = {
            "turn": turn,
            "acts": [None if act is None else list(act) for act in acts],
            "frame": _changed(before, self._frame),
        }
        paid = [float(x) for x in rewards]
        if self._game.drawing.public_rewards:
            payload["rewards"] = paid
        else:
            private = {seat: {"reward": paid[int(seat)]} | values for seat, values in private.items()}
        if any(private.values()):
            payload["private"] = private
        self._emit("step", payload, turn)

    def ended(
        self, state: Any, returns: Any, scores: Mapping[str, tuple[float, float]], more: Mapping[str, Any]
    ) -> None:
        payload = {
            "returns": [float(x) for x in returns],
            # a measure that does not apply (the Pareto share of no deal) is null, because JSON has no NaN
            "scores": {name: [None if x != x else x for x in pair] for name, pair in scores.items()},
            "frame": self._frame,
            "private": self._values(state),
        }
        # the closing line is part of the last event: points stay private until then
        said = {"text": self._line("episode.ended", payload), "audio": None}
        self.stream.emit("episode.ended", payload | said | dict(more))

    def failed(self, state: Any, error: BaseException, more: Mapping[str, Any]) -> None:
        kind = error.kind if isinstance(error, Stopped) else "error" if isinstance(error, Exception) else "stopped"
        reason = str(error) if isinstance(error, Stopped) else f"{type(error).__name__}: {error}"
        payload = {"kind": kind, "reason": reason, "frame": self._frame, "private": self._values(state)}
        self.stream.emit("episode.failed", payload | dict(more))

    def _emit(self, kind: str, payload: Mapping[str, Any], turn: int | None = None) -> None:
        self.stream.emit(kind, payload)
        line = self._line(kind, payload) if turn is not None else ""
        if line:
            self.stream.emit("commentary", {"turn": turn, "text": line, "audio": None})

    def _line(self, kind: str, payload: Mapping[str, Any]) -> str:
        public = {key: value for key, value in payload.items() if key != "private"}
        return self._commentate({"type": kind, "payload": public, "players": self._players}, self._frame)

    def _draw(self, state: Any) -> None:
        self._frame = self._game.drawing.frame(self._settings, state)

    def _values(self, state: Any) -> dict[str, dict[str, Any]]:
        """The private values of every seat, remembered for the next comparison."""
        self._private = {str(seat): dict(self._game.drawing.private(self._settings, state, seat)) for seat in SEATS}
        return self._private


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in after.items() if key not in before or before[key] != value}


def _asked(seat: int, turn: int, choice: Choice) -> dict[str, Any]:
    """The public part of how a choice came about."""
    return {"seat": seat, "turn": turn, **choice.public()}
