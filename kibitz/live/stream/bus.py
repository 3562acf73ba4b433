"""From a driver to every watcher: commit to the store, then show."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from prometheus_client import Histogram

from kibitz.live.store.base import OutageLog, Row
from kibitz.live.store.sql import Store
from kibitz.live.store.stored_event import StoredEvent
from kibitz.live.stream.calls import Calls
from kibitz.live.stream.hub import DELAY_SECONDS, Hub


class Link(Protocol):
    """Carries committed events to other servers."""

    name: str
    away: bool  # the other servers cannot be reached
    left_out: int  # events dropped from a full queue; the other servers read them from the store
    calls: Calls

    def watching(self) -> Counter[str]:
        """How many watch each episode at the other servers, as of a few seconds ago."""

    def send(self, event: StoredEvent) -> None:
        """Never blocks and never raises: the other servers read a lost event from the store."""

    async def run(self, hub: Hub) -> None:
        """Delivers the other servers' events to our hub until cancelled."""

    def close(self) -> None: ...


class Bus:
    """Callable from any thread. The events of one episode must come from one thread at a time."""

    def __init__(self, store: Store, link: Link | None = None) -> None:
        self.store, self.link = store, link
        self.hub = Hub(store)
        self.outages = OutageLog()
        self.committed = 0
        self.commit_seconds = Histogram(
            "kibitz_commit_seconds", "From handing an event to the store until it is committed",
            buckets=DELAY_SECONDS, registry=None,
        )  # fmt: skip
        self.unclosed: Counter[str] = Counter()  # by episode: failed attempts to close it
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rows: dict[str, Row] = {}

    @property
    def name(self) -> str:
        return self.link.name if self.link else "in process"

    def watching(self) -> Counter[str]:
        """How many watch each running episode, on every server. For the event loop."""
        return self.hub.watching() + (self.link.watching() if self.link else Counter())

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Show events on this loop from now on; until then the bus only stores them."""
        self._loop = loop

    def begin(self, row: Row) -> None:
        """Stores an episode's row; call it before the first event."""
        self.store.begin(row)
        self._rows[row.episode_id] = row
        self._call(self.hub.open, row)

    def publish(self, event: StoredEvent) -> bool:
        """Returns once the event is committed; False if it already was. Raises what the store raises."""
        began = time.monotonic()
        added = self.store.append(event)
        event.committed_at = time.monotonic()
        self.commit_seconds.observe(event.committed_at - began)
        self.committed += added
        row = self._rows.get(event.episode_id)
        if event.last:
            self._rows.pop(event.episode_id, None)
        if not added:
            # The answer to an earlier commit may have been lost before the event was shown. Show the stored version:
            # another server may have closed the same episode. Hubs drop duplicates.
            event = StoredEvent.decode(self.store.events(event.episode_id, event.seq - 1, 1)[0], event.open_table)
        if self.link is not None:
            self.link.send(event)
        self._call(self.hub.deliver, event, row)
        return added

    def _call(self, function: Callable[..., object], *values: object) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *values)
