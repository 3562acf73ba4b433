"""Closes orphaned episodes, so that every record ends with an event that says why."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from kibitz.core.play.events import Event
from kibitz.live.store.base import EpisodeClosed, Query, Row, StoreUnavailable
from kibitz.live.store.stored_event import StoredEvent, decode_event, fold
from kibitz.live.stream.bus import Bus

log = logging.getLogger("kibitz.live")
SWEEP_SECONDS = 5.0  # between two sweeps for orphaned episodes, and for committed events that were never shown
MAX_ATTEMPTS = 600  # to write an episode's last event while the store is unavailable
MAX_RETRY_SECONDS = 2.0
MAX_RUNNING = 1000  # episodes per sweep


class OrphanSweeper:
    """Closes what a crash of this or another server left running, and what this server has lost track of.

    In a shared store one sweep proves nothing: a store that was unavailable has forgotten which servers
    live until their next heartbeat. An owner that is missing in two sweeps is gone.
    """

    def __init__(self, bus: Bus, running: Collection[str]) -> None:
        self._bus, self._running = bus, running  # ids of the episodes that this server plays now
        self._missing: set[str] = set()

    def sweep(self) -> None:
        store = self._bus.store
        store.heartbeat()
        orphaned = {row.episode_id for row in store.orphaned()}
        for episode_id in orphaned & self._missing if store.shared else orphaned:
            if episode_id not in self._bus.unclosed:  # otherwise an earlier sweep has logged it
                log.warning("episode %s was interrupted", episode_id)
            fail_episode(self._bus, episode_id, "interrupted", "The server stopped during the episode.")
        self._missing = orphaned
        for row in _running(self._bus):
            if row.origin == "server" and row.owner == store.owner and row.episode_id not in self._running:
                fail_episode(self._bus, row.episode_id, "error", "The episode could not be recorded completely.")
        for episode_id in list(self._bus.unclosed):  # another server may have closed it
            found = store.episode(episode_id)
            if found is None or found.status != "running":
                note_closed(self._bus, episode_id)


class DriverTimeouts:
    """Closes a driver's episode that received no event for too long, by this server's clock: theirs may be wrong."""

    def __init__(self, bus: Bus, seconds: float) -> None:
        self._bus, self._seconds = bus, seconds
        self._seen: dict[str, tuple[int, float]] = {}  # by episode: its last seq, and since when

    def sweep(self) -> None:
        now, seen = time.monotonic(), {}
        for row in _running(self._bus):
            if row.origin != "driver":
                continue
            last, since = self._seen.get(row.episode_id, (row.last_seq, now))
            seen[row.episode_id] = row.last_seq, since if last == row.last_seq else now
            if now - seen[row.episode_id][1] > self._seconds:
                fail_episode(self._bus, row.episode_id, "interrupted", "The driver sent no events for too long.")
        self._seen = seen


def _running(bus: Bus) -> list[Row]:
    return bus.store.episodes(Query(status="running", limit=MAX_RUNNING))


def fail_episode(bus: Bus, episode_id: str, kind: str, reason: str, closing: Callable[[], bool] | None = None) -> bool:
    """Closes an episode without a player by an `episode.failed`, as soon as the store accepts it.

    Returns whether the event was added. Retries until `closing()`: while the server lives, unless given.
    """
    closing = closing or (lambda: bus.hub.closing)
    for attempt in range(MAX_ATTEMPTS):
        if closing() and attempt:
            return False
        try:
            added = bus.publish(StoredEvent(_failed(bus, episode_id, kind, reason)))
        except EpisodeClosed:
            note_closed(bus, episode_id)
            return False
        except StoreUnavailable as error:
            if not attempt:
                log.warning("cannot close episode %s until the store is available: %s", episode_id, error)
            time.sleep(min(0.1 * 2**attempt, MAX_RETRY_SECONDS))
        except Exception:  # the next sweep tries again: log the first failure, count the others
            if not bus.unclosed[episode_id]:
                log.exception("episode %s cannot be closed", episode_id)
            bus.unclosed[episode_id] += 1
            return False
        else:
            note_closed(bus, episode_id)
            return added
    return False


def _failed(bus: Bus, episode_id: str, kind: str, reason: str) -> Event:
    """The last event, from what the store has of the episode."""
    frame: dict[str, Any] = {}
    private: dict[str, dict[str, Any]] = {}
    last, steps = -1, 0
    while bodies := bus.store.events(episode_id, last):
        for event in map(decode_event, bodies):
            frame = fold(frame, event)
            last, steps = event.seq, steps + (event.type == "step")
            if event.type in ("episode.started", "step"):
                _merge(private, event.payload.get("private", {}))
    payload = {"kind": kind, "reason": reason, "frame": frame or None, "private": private, "steps": steps}
    row = bus.store.episode(episode_id)
    secret = {} if row is None else row.secret
    drawn = {key: secret[key] for key in ("seed", "number", "match") if secret.get(key) is not None}
    return Event(episode_id, last + 1, time.time(), "episode.failed", payload | drawn)


def _merge(private: dict[str, dict[str, Any]], changed: Mapping[str, Mapping[str, Any]]) -> None:
    """A step carries the private values that changed, and the reward that it paid, which is none of them."""
    for seat, values in changed.items():
        private.setdefault(seat, {}).update({key: value for key, value in values.items() if key != "reward"})


def note_closed(bus: Bus, episode_id: str) -> None:
    """Logs that an episode is closed if earlier attempts failed."""
    if attempts := bus.unclosed.pop(episode_id, 0):
        log.warning("episode %s is closed now, after %d failed attempts", episode_id, attempts)
