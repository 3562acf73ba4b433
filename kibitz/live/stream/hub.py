"""From committed events to watchers, by episode. Everything here and in `channel` runs on the server's event loop."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from prometheus_client import Histogram

from kibitz.live.store.base import Row, StoreUnavailable
from kibitz.live.store.sql import Store
from kibitz.live.store.stored_event import StoredEvent
from kibitz.live.stream.backlog import Backlog, read_page
from kibitz.live.stream.channel import Channel, Message, Watcher

PUSH_WATCHERS = 250  # sent to in one turn of the event loop, which takes a few milliseconds
READ_EVENTS = 500  # read from the store at once, to fill a channel
STORE_RETRY_SECONDS = 0.5
DELAY_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # bounds of histograms


class Hub:
    """Channels by episode."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.channels: dict[str, Channel] = {}
        self.newest: str | None = None  # the episode shown to a watcher that names none
        self.watchers = 0
        self.sent = 0  # events sent, counted once for each watcher
        self.resyncs = 0
        self.refused: Counter[int] = Counter()  # watchers' sockets closed with an error, by close code
        self.delivery_seconds = Histogram(
            "kibitz_delivery_seconds", "From an event's commit until this server first sent it to watchers",
            buckets=DELAY_SECONDS, registry=None,
        )  # fmt: skip
        self.backlog = Backlog()
        self.closing = False
        self._waiting: set[asyncio.Event] = set()  # watchers without an episode
        self._tasks: set[asyncio.Task[None]] = set()
        self._showing: dict[Channel, bool] = {}  # channels with many watchers, and whether to go round once more
        self._reading: dict[str, bool] = {}  # episodes being read, and whether to read them once more

    def open(self, row: Row) -> Channel:
        """The channel of an episode. Each watcher of a finished episode has its own and reads from the store."""
        if row.status != "running":
            return Channel(row, self.delivery_seconds)
        channel = self.channels.get(row.episode_id)
        if channel is None:
            channel = self.channels[row.episode_id] = Channel(row, self.delivery_seconds)
            self._choose_newest()
        return channel

    def watching(self) -> Counter[str]:
        """How many watch each running episode here."""
        return Counter({name: len(channel.watchers) for name, channel in self.channels.items() if channel.watchers})

    def _choose_newest(self) -> None:
        newest = max(self.channels.values(), key=lambda channel: channel.row.started_at, default=None)
        before, self.newest = self.newest, None if newest is None else newest.row.episode_id
        if self.newest is not None and self.newest != before:
            self._wake_waiting()

    def _wake_waiting(self) -> None:
        for waiting in self._waiting:
            waiting.set()

    async def join(self, row: Row, since: int = -1) -> Channel:
        """The channel for a watcher that has seen the events up to `since`, perhaps at another server that was faster.

        The row may be stale: an episode that ended since then is shown to its end.
        """
        channel = self.channels.get(row.episode_id)
        if channel is None:
            channel = self.open(row)
            channel.catching_up = None if channel.over else self._start(self._catch_up_with_retry(channel))
        if channel.catching_up is not None:
            try:
                await asyncio.shield(channel.catching_up)
            except Exception:
                channel.catching_up = None  # the next watcher tries again
                raise
        if since >= channel.next:
            await self.catch_up(channel)
        return channel

    def deliver(self, event: StoredEvent, row: Row | None = None) -> None:
        """An event that this server has committed. Drops duplicates; fills gaps from the store."""
        channel = self.channels.get(event.episode_id)
        if channel is None and row is not None:
            channel = self.open(row)
        if channel is None or event.seq > channel.next:
            self.read(event.episode_id)
        elif event.seq == channel.next:
            channel.add(event)
            self._show(channel)
            self._forget_if_over(channel)

    def _show(self, channel: Channel) -> None:
        """Sends what is new. With many watchers that takes several turns of the loop: events that arrive meanwhile join
        the next frames, so frames hold more events the busier the server is, and no timer delays any."""
        if len(channel.watchers) <= PUSH_WATCHERS or channel.over:
            self.sent += channel.push(channel.watchers)
        elif channel in self._showing:
            self._showing[channel] = True
        else:
            self._showing[channel] = False
            self._start(self._show_to_many(channel))

    async def _show_to_many(self, channel: Channel) -> None:
        try:
            again = True
            while again:
                self._showing[channel] = False
                watchers = list(channel.watchers)
                for first in range(0, len(watchers), PUSH_WATCHERS):
                    self.sent += channel.push(watchers[first : first + PUSH_WATCHERS])
                    await asyncio.sleep(0)
                again = self._showing[channel]
        finally:
            del self._showing[channel]

    def read(self, episode_id: str) -> None:
        """Shows what the store has of an episode since the last event here. Many calls at once cost one read."""
        if episode_id in self._reading:
            self._reading[episode_id] = True
        else:
            self._reading[episode_id] = False
            self._start(self._read(episode_id))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _read(self, episode_id: str) -> None:
        try:
            again = True
            while again:
                self._reading[episode_id] = False
                await self._read_once(episode_id)
                again = self._reading[episode_id]  # asked for meanwhile: the read may have been too early
        finally:
            del self._reading[episode_id]

    async def _read_once(self, episode_id: str) -> None:
        channel = self.channels.get(episode_id)
        while channel is None and not self.closing:
            try:
                row = await asyncio.to_thread(self.store.episode, episode_id)
            except StoreUnavailable:
                await asyncio.sleep(STORE_RETRY_SECONDS)
            else:
                if row is None:
                    return
                channel = self.channels.get(episode_id) or self.open(row)
        if channel is not None:
            await self._catch_up_with_retry(channel)

    async def _catch_up_with_retry(self, channel: Channel) -> None:
        """Retries while the store is unavailable: no later event may come to reveal the gap."""
        while not self.closing:
            try:
                await self.catch_up(channel)
                break
            except StoreUnavailable:
                await asyncio.sleep(STORE_RETRY_SECONDS)

    async def catch_up(self, channel: Channel) -> None:
        """Reads the events that the channel has missed."""
        while not channel.over:
            bodies = await asyncio.to_thread(self.store.events, channel.row.episode_id, channel.next - 1, READ_EVENTS)
            for body in bodies:
                missed = StoredEvent.decode(body, channel.row.open_table)
                if missed.seq == channel.next:
                    channel.add(missed)
            if bodies:
                self._show(channel)
            if not bodies:
                break
        self._forget_if_over(channel)

    async def catch_up_all(self, silent: float = 0.0) -> None:
        """Finds committed events that were never shown here, in episodes without an event for `silent` seconds."""
        for channel in list(self.channels.values()):
            if time.monotonic() - channel.last_event_at >= silent:
                await self.catch_up(channel)

    def _forget_if_over(self, channel: Channel) -> None:
        if channel.over:
            self.channels.pop(channel.row.episode_id, None)
            self._choose_newest()

    async def next_episode(self, seen: set[str]) -> str | None:
        """Waits for the newest running episode that is not in `seen`. None: the server is closing."""
        waiting = asyncio.Event()
        self._waiting.add(waiting)
        self.watchers += 1
        try:
            while not self.closing and (self.newest is None or self.newest in seen):
                await waiting.wait()
                waiting.clear()
        finally:
            self.watchers -= 1
            self._waiting.discard(waiting)
        return None if self.closing else self.newest

    def close(self) -> None:
        """Ends every watcher's stream."""
        self.closing = True
        self._wake_waiting()
        for channel in self.channels.values():
            for watcher in channel.watchers:
                watcher.wake.set()

    async def follow(self, channel: Channel, watcher: Watcher) -> AsyncIterator[Message]:
        """Everything from the watcher's cursor on, until the episode is over or the server closes."""
        channel.watchers.add(watcher)
        self.watchers += 1
        try:
            while True:
                watcher.wake.clear()
                if watcher.cursor < channel.next and (channel.over or not watcher.paused):
                    message = await self._next_message(channel, watcher)
                    with self.backlog.page(message.page_bytes):
                        yield message
                    if message.ended:
                        return
                    continue
                watcher.live = watcher.live or watcher.cursor >= channel.next
                if self.closing or channel.over:
                    return
                watcher.idle = True
                await watcher.wake.wait()
                watcher.idle = False
                if watcher.batch and not (channel.over or self.closing):
                    await asyncio.sleep(watcher.batch)
        finally:
            self.watchers -= 1
            channel.watchers.discard(watcher)

    async def _next_message(self, channel: Channel, watcher: Watcher) -> Message:
        if watcher.live and not channel.over and watcher.lags(channel):
            last = watcher.cursor - 1 if watcher.acked is None else min(watcher.acked, watcher.cursor - 1)
            watcher.skip_to(channel.next)
            self.resyncs += 1
            return Message(f'{{"resync":{last}}}')
        first, viewer = watcher.cursor, watcher.viewer
        if first >= channel.oldest:
            message = channel.message_from(first, viewer)
        else:
            await self.backlog.room()
            everything = channel.row.open_table or channel.over  # private values are public once the episode is over
            events = await asyncio.to_thread(
                read_page, self.store, channel.row.episode_id, first - 1, viewer, everything
            )
            text = f'{{"events":[{b",".join(events).decode()}]}}'
            last = first + len(events) - 1
            message = Message(text, first, last, channel.over and last + 1 >= channel.next, 2 * len(text))
        watcher.cursor = message.last + 1
        self.sent += message.last + 1 - first
        return message
