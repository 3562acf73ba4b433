"""From a driver to every watcher: commit to the store, then show."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from kibitz.live.store.base import Row, Store
from kibitz.live.store.stored_event import StoredEvent
from kibitz.live.stream.hub import Hub

log = logging.getLogger("kibitz.live")


class Link(Protocol):
    """What carries committed events to other servers; None where there is only one."""

    name: str
    away: bool
    left_out: int  # events that found no place while the others could not be reached

    def send(self, event: StoredEvent) -> None:
        """Never blocks and never raises: what is lost here the other server reads from the store."""

    async def run(self, hub: Hub) -> None:
        """Brings the others' events to our hub until cancelled."""

    def close(self) -> None: ...


class Bus:
    """Called from any thread. Events of one episode must come from one thread at a time."""

    def __init__(self, store: Store, link: Link | None = None) -> None:
        self.store, self.link = store, link
        self.hub = Hub(store)
        self.committed = 0
        self.unclosed: Counter[str] = Counter()  # by episode: how often it could not be closed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rows: dict[str, Row] = {}

    @property
    def name(self) -> str:
        return self.link.name if self.link else "in process"

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on events are shown on this loop; before, they are only stored."""
        self._loop = loop

    def begin(self, row: Row) -> None:
        """An episode is about to start; its row must be there before its first event."""
        self.store.begin(row)
        self._rows[row.episode_id] = row
        self._call(self.hub.open, row)

    def publish(self, event: StoredEvent) -> bool:
        """Returns once the event is committed; False if it was known already. Raises what the store raises."""
        added = self.store.append(event)
        self.committed += added
        row = self._rows.get(event.episode_id)
        if event.last:
            self._rows.pop(event.episode_id, None)
        if not added:
            # a commit whose answer was lost has been shown to nobody, so it is shown now, as it is stored: another
            # server may have closed the same episode. Hubs drop doubles
            event = StoredEvent.decode(self.store.events(event.episode_id, event.seq - 1, 1)[0], event.open_table)
        if self.link is not None:
            self.link.send(event)
        self._call(self.hub.deliver, event, row)
        return added

    def _call(self, function: Callable[..., object], *values: object) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *values)
