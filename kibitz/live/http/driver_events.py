"""Events of episodes that are played elsewhere: reading and checking them, and committing them to the store."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Any

import orjson
from pydantic import ValidationError

from kibitz.core.errors import BadInput
from kibitz.core.options import sentence
from kibitz.core.play.events import TYPES, Event
from kibitz.live.http.models import Envelope
from kibitz.live.store.base import EpisodeClosed, Row, SequenceGap
from kibitz.live.store.stored_event import StoredEvent
from kibitz.live.stream.bus import Bus
from kibitz.live.stream.bus_observer import TextToSpeech, with_audio

MAX_RETURN = 1e9  # sums and means of returns must stay finite
WORDS = ("text", "reason", "audio")  # that are spoken, listed or shown alone
MAX_NAME = 200  # characters of a game's or player's name
KEY_HEADER = "Episode-Key"
MIN_KEY, MAX_KEY = 16, 200  # characters
LINES = {"content": {"application/x-ndjson": {"schema": {"type": "string", "description": "one event per line"}}}}


class WrongKey(Exception):
    """The episode belongs to another driver."""

    def __init__(self, episode_id: str) -> None:
        super().__init__(
            f"Episode {episode_id} belongs to another driver; send its key as {KEY_HEADER}, or use a new id."
        )


def parse_lines(body: bytes) -> list[StoredEvent]:
    """Events of one episode, in order, as JSON Lines; BadInput names the line that is wrong."""
    listed: list[StoredEvent] = []
    for number, line in enumerate(body.splitlines(), 1):
        if not line.strip():
            continue
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
        listed.append(StoredEvent(Event(given.episode_id, given.seq, given.ts, given.type, given.payload, given.v)))
        try:
            _ = listed[-1].body  # the bytes that the store keeps
        except TypeError:  # from orjson: more than 254 levels
            raise BadInput(f"Line {number} is nested too deeply.") from None
    if not listed:
        raise BadInput("The body contains no event; send one JSON object per line.")
    first = listed[0]
    for place, event in enumerate(listed):
        if event.episode_id != first.episode_id or event.seq != first.seq + place:
            raise BadInput(f"Line {place + 1}: the events should be of one episode, with seq rising by one.")
        if event.last and event is not listed[-1]:
            raise BadInput(f"Line {place + 1} is a last event; no event may follow it.")
    return listed


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


def row_of(first: StoredEvent, origin: str, key: str = "") -> Row:
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


def holds_key(row: Row, key: str) -> bool:
    """Whether this is the key of the driver that began the episode."""
    return bool(key) and hmac.compare_digest(str(row.secret.get("key", "")), _digest(key))


def _digest(key: str) -> str:
    """What the store keeps of a key. Keys are random, so they need no slow hash."""
    return hashlib.sha256(key.encode()).hexdigest()


def commit(bus: Bus, listed: list[StoredEvent], speech: TextToSpeech | None, key: str = "") -> dict[str, Any]:
    """Commits a driver's events; commentary gets its audio here, where the audio is served.

    The key that comes with the first event is the episode's from then on; a driver that sends none is given one.
    """
    if key and not MIN_KEY <= len(key) <= MAX_KEY:
        raise BadInput(f"A key has {MIN_KEY} to {MAX_KEY} characters; choose one at random.")
    episode_id, made = listed[0].episode_id, ""
    row = bus.store.episode(episode_id)
    if row is None and listed[0].seq > 0:
        raise SequenceGap(0)
    if row is None:
        made = "" if key else secrets.token_urlsafe(24)
        bus.store.begin(row_of(listed[0], "driver", key or made))
        row = bus.store.episode(episode_id)  # another driver may have been first
        assert row is not None
    if row.origin != "driver":
        raise EpisodeClosed(f"Episode {episode_id} is not played elsewhere.")
    if not holds_key(row, key or made):
        raise WrongKey(episode_id)
    if row.last_seq < 0:
        bus.begin(row)
    tts = speech if row.about.get("speech") is True else None
    added = 0
    for event in listed:
        spoken = with_audio(event.event, tts)
        stored = event if spoken is event.event else StoredEvent(spoken)
        stored.open_table = row.open_table
        added += bus.publish(stored)
    return {"next": listed[-1].seq + 1, "added": added, "key": made or None}
