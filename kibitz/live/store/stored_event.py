"""An event as bytes: serialised once, for the store and for every watcher."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import orjson

from kibitz.core.play.events import LAST, Event
from kibitz.live.store.frames import frame_of

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""What an episode's id may look like; it is looked up, never joined into a path."""

Look: TypeAlias = int | None
"""Who looks: a seat, or the public."""


@dataclass(frozen=True)
class Told:
    """One event on its way: what the store keeps, and what each kind of watcher may see of it."""

    event: Event
    open_table: bool = False

    @property
    def episode_id(self) -> str:
        return self.event.episode_id

    @property
    def seq(self) -> int:
        return self.event.seq

    @property
    def last(self) -> bool:
        return self.event.type in LAST

    @cached_property
    def body(self) -> bytes:
        """Everything, secrets too."""
        return encode(self.event)

    @cached_property
    def _shown(self) -> dict[Look, str]:
        return {}

    @cached_property
    def _framed(self) -> dict[Look, bytes]:
        return {}

    def frame(self, look: Look) -> bytes:
        """The same as a WebSocket frame, ready to be written."""
        framed = self._framed
        if look not in framed:
            framed[look] = frame_of(self.text(look))
        return framed[look]

    def text(self, look: Look) -> str:
        """As this watcher may see it; at most three variants are ever made."""
        shown = self._shown
        if look not in shown:
            seen = self.event.shown_to(look, self.open_table)
            shown[look] = (self.body if seen is self.event else encode(seen)).decode()
        return shown[look]


def encode(event: Event) -> bytes:
    return orjson.dumps(event.as_dict())


def decode(body: bytes | str) -> Event:
    return event_of(orjson.loads(body))


def event_of(values: Mapping[str, Any]) -> Event:
    return Event(
        values["episode_id"], values["seq"], values["ts"], values["type"], values["payload"], values["v"]
    )  # fmt: skip


def told(body: bytes, open_table: bool) -> Told:
    """From the store or from another server: the bytes are kept as they came."""
    known = Told(decode(body), open_table)
    known.__dict__["body"] = body
    return known


def fold(frame: Mapping[str, Any], event: Event) -> dict[str, Any]:
    """The whole frame after an event: steps carry only what changed."""
    given = event.payload.get("frame")
    if not isinstance(given, Mapping):
        return dict(frame)
    return {**frame, **given} if event.type == "step" else dict(given)
