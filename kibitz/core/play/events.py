"""One numbered stream of events per episode, which page, store, replay, speech and judges read."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

VERSION = 1
TYPES = (
    "episode.started",
    "hint",
    "turn.requested",
    "decision",
    "step",
    "commentary",
    "episode.ended",
    "episode.failed",
)
LAST = ("episode.ended", "episode.failed")


@dataclass(frozen=True)
class Event:
    """`seq` counts from 0 without holes.

    A payload's `private` maps a seat's number, as text, to what only that seat may know before the
    end; everything else in a payload is public.
    """

    episode_id: str
    seq: int
    ts: float
    type: str
    payload: Mapping[str, Any]
    v: int = VERSION

    def shown_to(self, seat: int | None, open_table: bool = False) -> Event:
        """The event as a watcher may see it: a seat sees its own secrets; the public sees none until the end."""
        private = self.payload.get("private")
        if private is None or open_table or self.type in LAST:
            return self
        kept = {key: value for key, value in private.items() if key == str(seat)}
        return replace(self, payload={**self.payload, "private": kept})

    def as_dict(self) -> dict[str, Any]:
        return {
            "v": self.v,
            "episode_id": self.episode_id,
            "seq": self.seq,
            "ts": self.ts,
            "type": self.type,
            "payload": dict(self.payload),
        }

    def as_json(self) -> str:
        return json.dumps(self.as_dict(), separators=(",", ":"), allow_nan=False)


def mostly_fallback(fallbacks: int, turns: int) -> bool:
    """Whether the fallback bot played most of a seat's turns, so that the result says nothing about the player."""
    return 2 * fallbacks > turns


def spoken(event: Event) -> str:
    """The line of commentary that an event carries, or ""."""
    return event.payload["text"] if event.type in ("commentary", "episode.ended") else ""


Observer = Callable[[Event], None]


class Stream:
    """Numbers the events of one episode and hands each to every observer, in order."""

    def __init__(
        self, observers: tuple[Observer, ...], episode_id: str | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.episode_id = episode_id or f"ep-{uuid.uuid4().hex[:12]}"
        self.events: list[Event] = []
        self._observers, self._clock = observers, clock

    def emit(self, kind: str, payload: Mapping[str, Any]) -> Event:
        event = Event(self.episode_id, len(self.events), self._clock(), kind, payload)
        self.events.append(event)
        for observer in self._observers:
            observer(event)
        return event
