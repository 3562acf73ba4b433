"""An event as bytes: serialised once, for the store and for every watcher."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import orjson

from kibitz.core.errors import BadInput
from kibitz.core.play.events import LAST, Event

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""A valid episode id. The server looks ids up and never joins them into a path."""

MAX_FRAME_BYTES = 1 << 20  # of a complete frame, as JSON

Viewer: TypeAlias = int | None
"""The seat that a watcher occupies; None for the public."""


@dataclass(eq=False)
class StoredEvent:
    """One event with its encodings: what the store keeps, and what each viewer may see of it."""

    event: Event
    open_table: bool = False
    committed_at: float | None = None  # monotonic seconds; known only to the server that committed it

    @classmethod
    def decode(cls, body: bytes, open_table: bool) -> StoredEvent:
        """From the store or from another server; keeps the bytes unchanged."""
        stored = cls(decode_event(body), open_table)
        stored.__dict__["body"] = body
        return stored

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
        """The whole event, private values included."""
        return _encode(self.event)

    @cached_property
    def _texts(self) -> dict[Viewer, str]:
        return {}

    @cached_property
    def _frames(self) -> dict[Viewer, bytes]:
        return {}

    def text(self, viewer: Viewer) -> str:
        """The event as this viewer may see it. There are at most three variants: two seats and the public."""
        texts = self._texts
        if viewer not in texts:
            visible = self.event.shown_to(viewer, self.open_table)
            texts[viewer] = (self.body if visible is self.event else _encode(visible)).decode()
        return texts[viewer]

    def frame(self, viewer: Viewer) -> bytes:
        """`text` as a complete WebSocket frame."""
        frames = self._frames
        if viewer not in frames:
            frames[viewer] = encode_ws_text(self.text(viewer))
        return frames[viewer]


@dataclass(frozen=True, slots=True)
class PackedEvent:
    """A checked event that waits to be stored, as bytes alone: decoded, it takes about ten times as much memory."""

    episode_id: str
    seq: int
    last: bool
    body: bytes

    @classmethod
    def pack(cls, event: Event) -> PackedEvent:
        body = bytes(memoryview(_encode(event)))  # a copy: orjson's own bytes occupy several times their length
        return cls(event.episode_id, event.seq, event.type in LAST, body)

    @property
    def event(self) -> Event:
        return decode_event(self.body)


def encode_ws_text(text: str) -> bytes:
    """A text frame as a server sends it: unmasked, so every watcher gets the same bytes."""
    body = text.encode()
    size = len(body)
    if size < 126:
        return bytes((0x81, size)) + body
    if size < 1 << 16:
        return b"\x81\x7e" + struct.pack(">H", size) + body
    return b"\x81\x7f" + struct.pack(">Q", size) + body


def _encode(event: Event) -> bytes:
    return orjson.dumps(event.as_dict())


def decode_event(body: bytes | str) -> Event:
    return event_from_dict(orjson.loads(body))


def event_from_dict(values: Mapping[str, Any]) -> Event:
    return Event(
        values["episode_id"], values["seq"], values["ts"], values["type"], values["payload"], values["v"]
    )  # fmt: skip


def fold(frame: Mapping[str, Any], event: Event) -> dict[str, Any]:
    """The complete frame after an event. A step carries only the keys that changed; other events replace the frame."""
    given = event.payload.get("frame")
    if not isinstance(given, Mapping):
        return dict(frame)
    return {**frame, **given} if event.type == "step" else dict(given)


class FrameSize:
    """The size of an episode's complete frame as events come in, without the frame itself."""

    def __init__(self, next_seq: int = 0, sizes: Mapping[str, int] | None = None) -> None:
        self.next = next_seq  # seq of the event to come
        self._sizes = dict(sizes or {})  # bytes by key

    def copy(self) -> FrameSize:
        return FrameSize(self.next, self._sizes)

    def add(self, event: Event) -> None:
        """As `fold`."""
        self.next = event.seq + 1
        given = event.payload.get("frame")
        if not isinstance(given, Mapping):
            return
        sizes = {key: len(orjson.dumps({key: value})) for key, value in given.items()}
        self._sizes = {**self._sizes, **sizes} if event.type == "step" else sizes

    def check(self) -> None:
        """BadInput if the frame is too large: servers hold it in memory and send it in one piece."""
        if sum(self._sizes.values()) > MAX_FRAME_BYTES:
            limit = f"{MAX_FRAME_BYTES >> 20} MiB"
            raise BadInput(f"After event {self.next - 1} the frame exceeds {limit}; send fewer keys or smaller values.")
