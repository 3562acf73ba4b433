"""Events of episodes that are played elsewhere: reading and checking them, and committing them to the store."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import threading
from collections import OrderedDict
from contextlib import suppress
from io import BytesIO
from typing import Annotated, Any
from weakref import WeakValueDictionary

import orjson
from fastapi import Header, Request
from pydantic import Field, ValidationError
from pydantic.json_schema import SkipJsonSchema

from kibitz.core.errors import BadInput
from kibitz.core.options import sentence
from kibitz.core.play.events import TYPES, Event
from kibitz.live.http.models import Envelope
from kibitz.live.store.base import EpisodeClosed, Row, SequenceGap
from kibitz.live.store.stored_event import FrameSize, PackedEvent, StoredEvent, decode_event
from kibitz.live.stream.bus import Bus
from kibitz.live.stream.bus_observer import TextToSpeech, with_audio

MAX_RETURN = 1e9  # sums and means of returns must stay finite
WORDS = ("text", "reason", "audio")  # that are spoken, listed or shown alone
MAX_EVENT_BYTES = 1 << 20  # so that a page of events for a slow reader stays small
PIECE_BYTES = 256 << 10  # of a body, checked at once
MAX_NAME = 200  # characters of a game's or player's name
KEY_HEADER = "Episode-Key"
KeyText = Annotated[str, Field(min_length=16, max_length=200, pattern="^[!-~]*$")]  # HTTP would remove outer spaces
Key = Annotated[KeyText | SkipJsonSchema[None], Header(alias=KEY_HEADER, description="the key of the episode's driver")]
MAX_KNOWN_FRAMES = 1000  # sizes in memory; others are read from the store again
LINES = {"content": {"application/x-ndjson": {"schema": {"type": "string", "description": "one event per line"}}}}


class WrongKey(Exception):
    """The episode belongs to another driver."""

    def __init__(self, episode_id: str) -> None:
        super().__init__(
            f"Episode {episode_id} belongs to another driver; send its key as {KEY_HEADER}, or use a new id."
        )


class TooManyDrivers(Exception):
    """Drivers have as many open episodes as the server accepts."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"Remote drivers already have {limit} open episodes; retry when one has ended.")


class EventLines:
    """Checks the events of one episode, as JSON Lines; BadInput names the line that is wrong.

    The text comes in pieces, and one line at a time is decoded, so memory stays near the size of the body.
    """

    def __init__(self) -> None:
        self.events: list[PackedEvent] = []
        self._frame = FrameSize()
        self._rest = b""  # the beginning of a line whose end has not arrived
        self._number = 0  # lines so far

    def feed(self, piece: bytes) -> None:
        whole, end, rest = (self._rest + piece).rpartition(b"\n")
        self._rest = rest
        for line in BytesIO(whole + end):
            self._add(line)
        if len(rest) > MAX_EVENT_BYTES:
            self._add(rest)

    def finish(self, piece: bytes) -> list[PackedEvent]:
        self.feed(piece + b"\n")
        if not self.events:
            raise BadInput("The body contains no event; send one JSON object per line.")
        return self.events

    def _add(self, line: bytes) -> None:
        self._number += 1
        number, line = self._number, line.strip()
        if not line:
            return
        if len(line) > MAX_EVENT_BYTES:
            raise BadInput(f"Line {number} exceeds {MAX_EVENT_BYTES >> 20} MiB; send smaller events.")
        try:
            given = Envelope.model_validate(orjson.loads(line))
        except orjson.JSONDecodeError:
            raise BadInput(f"Line {number} is not a JSON object.") from None
        except ValidationError as error:
            raise BadInput(f"Line {number}: {sentence(Envelope, error, 'key')}") from None
        if given.type not in TYPES:
            raise BadInput(f"Line {number} has the type {given.type!r}; it should be one of {', '.join(TYPES)}.")
        if wrong := _unsound(given.type, given.payload):
            raise BadInput(f"Line {number}: {wrong}")
        if self.events:
            before = self.events[-1]
            if (given.episode_id, given.seq) != (before.episode_id, before.seq + 1):
                raise BadInput(f"Line {number}: the events should be of one episode, with seq rising by one.")
            if before.last:
                raise BadInput(f"Line {number} follows a last event; no event may.")
        event = Event(given.episode_id, given.seq, given.ts, given.type, given.payload, given.v)
        try:
            self.events.append(PackedEvent.pack(event))
        except TypeError:  # from orjson: more than 254 levels
            raise BadInput(f"Line {number} is nested too deeply.") from None
        self._frame.add(event)
        self._frame.check()


async def read_events(request: Request) -> list[PackedEvent]:
    """The events of a request's body, checked off the event loop while the rest of it arrives."""
    lines, piece = EventLines(), bytearray()
    async for chunk in request.stream():
        piece += chunk
        if len(piece) > PIECE_BYTES:
            await asyncio.to_thread(lines.feed, bytes(piece))
            piece.clear()
    return await asyncio.to_thread(lines.finish, bytes(piece))


def _unsound(kind: str, payload: dict[str, Any]) -> str:
    """What is wrong with the parts of a payload that the server itself reads; the rest is up to the driver."""
    if not isinstance(payload.get("frame", {}), dict | None):
        return "the frame should be an object."
    private = payload.get("private", {})
    if not isinstance(private, dict) or not all(isinstance(part, dict) for part in private.values()):
        return "private should be an object with an object for each seat."
    for name in WORDS:
        if not isinstance(payload.get(name), str | None):
            return f"{name} should be a string."
    if payload.get("seat", 0) not in (0, 1):
        return "seat should be 0 or 1."
    if kind == "episode.ended":
        returns = payload.get("returns")
        pair = returns if isinstance(returns, list) and len(returns) == 2 else [None]
        if not all(isinstance(x, int | float) and abs(x) <= MAX_RETURN for x in pair):
            return f"an episode.ended needs returns: two numbers, none beyond {MAX_RETURN:g}."
    return ""


def row_of(first: PackedEvent, origin: str, key: str | None = None) -> Row:
    """The episode that an `episode.started` begins; BadInput if the event is not one. `key` is its driver's."""
    event = first.event
    if event.seq != 0 or event.type != "episode.started":
        raise BadInput("The first event should be an episode.started with seq 0.")
    payload = event.payload
    players, about = payload.get("players"), payload.get("about", {})
    names = [payload.get("game"), *(players if isinstance(players, list) else [])]
    if len(names) != 3 or not all(
        isinstance(name, str) and len(name) <= MAX_NAME and "\0" not in name for name in names
    ):
        raise BadInput("An episode.started needs game and two players.")
    if not isinstance(about, dict):
        raise BadInput("The about of an episode.started should be an object.")
    game, first_player, second_player = (str(name) for name in names)
    opened = about.get("open") is True
    return Row(
        event.episode_id, game, (first_player, second_player), event.ts, origin=origin, open_table=opened, about=about,
        secret={"key": _digest(key)} if key else {},
    )  # fmt: skip


def holds_key(row: Row, key: str | None) -> bool:
    """Whether this is the key of the driver that began the episode."""
    return key is not None and hmac.compare_digest(str(row.secret.get("key", "")), _digest(key))


def _digest(key: str) -> str:
    """What the store keeps of a key. Keys are random, so they need no slow hash."""
    return hashlib.sha256(key.encode()).hexdigest()


class DriverEvents:
    """Commits the events of drivers. Blocks, so call it off the event loop."""

    def __init__(self, bus: Bus, speech: TextToSpeech | None = None, max_open: int = 100) -> None:
        """At most `max_open` episodes of drivers are open at once."""
        self._bus, self._speech, self._max_open = bus, speech, max_open
        self._lock = threading.Lock()  # counting and beginning are one step
        self._busy: WeakValueDictionary[str, _Lock] = WeakValueDictionary()  # by episode
        self._frames: OrderedDict[str, FrameSize] = OrderedDict()  # by episode, the most recent last

    def commit(self, listed: list[PackedEvent], key: str | None = None) -> dict[str, Any]:
        """Commits a driver's events; commentary gets its audio here, where the audio is served.

        The key that comes with the first event is the episode's from then on; a driver that sends none is given one.
        Raises TooManyDrivers, WrongKey or, if the episode's frame would grow too large, BadInput.
        """
        with self._lock:
            busy = self._busy.setdefault(listed[0].episode_id, _Lock())
        with busy.lock:  # what one request adds to the frame counts for the next
            row, made = self._row_for(listed[0], key)
            frame = self._frame_after(row, listed)
            if row.last_seq < 0:
                self._bus.begin(row)
            tts = self._speech if row.about.get("speech") is True else None
            added = 0
            for packed in listed:
                stored = StoredEvent.decode(packed.body, row.open_table)
                spoken = with_audio(stored.event, tts)
                added += self._bus.publish(stored if spoken is stored.event else StoredEvent(spoken, row.open_table))
            self._keep(listed[-1], frame)
            return {"next": listed[-1].seq + 1, "added": added, "key": made}

    def _row_for(self, first: PackedEvent, key: str | None) -> tuple[Row, str | None]:
        """The episode, begun here if it is new, and the key made for it if its driver sent none."""
        store, episode_id, made = self._bus.store, first.episode_id, None
        row = store.episode(episode_id)
        if row is None and first.seq > 0:
            raise SequenceGap(0)
        if row is None:
            made = None if key else secrets.token_urlsafe(24)
            begun = row_of(first, "driver", key or made)
            with self._lock:
                if store.episode(episode_id) is None and store.open_drivers() >= self._max_open:
                    raise TooManyDrivers(self._max_open)
                with suppress(EpisodeClosed):  # another driver was first
                    store.begin(begun)
            row = store.episode(episode_id)
            assert row is not None
        if row.origin != "driver":
            raise EpisodeClosed(f"Episode {episode_id} is not played elsewhere.")
        if not holds_key(row, key or made):
            raise WrongKey(episode_id)
        return row, made

    def _frame_after(self, row: Row, listed: list[PackedEvent]) -> FrameSize:
        """The size of the frame once these events are stored; BadInput if it exceeds the limit."""
        known = self._frames.get(row.episode_id)
        frame = FrameSize() if known is None else known.copy()
        if frame.next != row.last_seq + 1:  # another server stored some
            frame = FrameSize()
            while frame.next <= row.last_seq and (bodies := self._bus.store.events(row.episode_id, frame.next - 1)):
                for body in bodies:
                    frame.add(decode_event(body))
        for packed in listed:
            if packed.seq == frame.next:  # the store knows earlier ones, and refuses later ones
                frame.add(packed.event)
                frame.check()
        return frame

    def _keep(self, last: PackedEvent, frame: FrameSize) -> None:
        with self._lock:
            self._frames.pop(last.episode_id, None)
            if not last.last:
                self._frames[last.episode_id] = frame
            while len(self._frames) > MAX_KNOWN_FRAMES:
                self._frames.popitem(last=False)


class _Lock:
    """A lock that can be referred to weakly."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
