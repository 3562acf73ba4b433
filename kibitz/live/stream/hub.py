"""From committed events to watchers: a short memory of each running episode, and each watcher's position in it.

Everything here runs on the server's event loop. A watcher has a position, not a queue: events it has not received yet
are in the channel's ring or, further back, in the store. So a slow watcher uses no memory and delays no other.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from prometheus_client import Histogram

from kibitz.live.store.base import Row, StoreUnavailable
from kibitz.live.store.sql import Store
from kibitz.live.store.stored_event import StoredEvent, Viewer, encode_ws_text, fold

MAX_RING_EVENTS = 512  # of a running episode
MAX_RING_BYTES = 8 << 20  # of stored bodies: a foreign driver's event may have megabytes
MAX_LAG_EVENTS = 256  # beyond this the watcher must fetch the rest itself
MAX_UNACKED_EVENTS = 2 * MAX_LAG_EVENTS  # for a watcher that acknowledges
READ_EVENTS = 500  # read from the store at once
MAX_CACHED_MESSAGES = 64  # many watchers ask for the same batch
STORE_RETRY_SECONDS = 0.5
DELAY_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # bounds of histograms


@dataclass(eq=False)
class Watcher:
    """One connection. `acked` is None until its first acknowledgement."""

    viewer: Viewer = None
    batch: float = 0.0  # seconds to gather events before a message
    cursor: int = 0  # seq of the next event to send
    acked: int | None = None
    live: bool = False  # has been up to date at least once
    paused: bool = False  # after a resync, until its next acknowledgement
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    push: Callable[[bytes], bool] | None = None  # writes a frame straight to the socket; False: its buffer is full
    idle: bool = False  # nothing is on its way to this watcher

    def ack(self, seq: int) -> None:
        """The client has everything up to `seq`."""
        self.acked = seq
        if self.paused:
            self.paused, self.cursor = False, min(seq + 1, self.cursor)
            self.wake.set()

    def skip_to(self, seq: int) -> None:
        """The client fetches the rest itself. Continue at `seq`, or after its next acknowledgement if it sends any."""
        if self.acked is None:
            self.cursor = seq
        else:
            self.paused = True


@dataclass(frozen=True)
class Message:
    """Sent at once: the events first..last, or a notice from the server."""

    text: str
    first: int = -1
    last: int = -1
    ended: bool = False

    @cached_property
    def frame(self) -> bytes:
        return encode_ws_text(self.text)


class Channel:
    """One episode as the hub knows it."""

    def __init__(self, row: Row, delivery_seconds: Histogram) -> None:
        self.row = row
        self.ring: deque[StoredEvent] = deque()
        self.ring_bytes = 0
        self.next = row.last_seq + 1  # seq of the event to come
        self.over = row.status != "running"
        self.last_event_at = time.monotonic()
        self.frame: dict[str, Any] | None = None  # complete, once it is known
        self.watchers: set[Watcher] = set()
        self.catching_up: asyncio.Task[None] | None = None  # reads what came after the row was read
        self._delivery_seconds = delivery_seconds
        self._delivered = self.next  # seq of the first event that no watcher has been sent
        self._messages: OrderedDict[tuple[int, int, Viewer], Message] = OrderedDict()

    @property
    def oldest(self) -> int:
        return self.next - len(self.ring)

    def add(self, event: StoredEvent, gather: float = 0.0) -> int:
        """Pushes the event to every idle watcher and wakes the others; returns how many it was pushed to."""
        self._remember(event)
        self.next, self.last_event_at = event.seq + 1, time.monotonic()
        if event.seq == 0 or self.frame is not None:
            self.frame = fold(self.frame or {}, event.event)
        self.over = self.over or event.last
        pushed = 0
        for watcher in self.watchers:
            if (
                watcher.idle
                and watcher.push is not None
                and not (gather or watcher.batch or self.over)
                and watcher.cursor == event.seq
                and (watcher.acked is None or event.seq - watcher.acked <= MAX_UNACKED_EVENTS)
                and watcher.push(event.frame(watcher.viewer))
            ):
                watcher.cursor += 1
                pushed += 1
            else:
                watcher.wake.set()
        if pushed:
            self._measure(event.seq)
        return pushed

    def _remember(self, event: StoredEvent) -> None:
        """Watchers read from the store what falls out of the ring."""
        self.ring.append(event)
        self.ring_bytes += len(event.body)
        while len(self.ring) > MAX_RING_EVENTS or self.ring_bytes > MAX_RING_BYTES:
            self.ring_bytes -= len(self.ring.popleft().body)
        self._messages.clear()  # they end before this event, so no watcher needs them again

    def _measure(self, last: int) -> None:
        """Records, once per event, how long after its commit it was first sent."""
        now = time.monotonic()
        for seq in range(max(self._delivered, self.oldest), last + 1):
            committed_at = self.ring[seq - self.oldest].committed_at
            if committed_at is not None:
                self._delivery_seconds.observe(now - committed_at)
        self._delivered = last + 1

    def message_from(self, first: int, viewer: Viewer) -> Message:
        """Everything from `first` on as one message, joined once for all watchers at the same position."""
        key = (first, self.next, viewer)
        if key not in self._messages:
            start = first - self.oldest
            texts = [self.ring[i].text(viewer) for i in range(start, len(self.ring))]
            text = texts[0] if len(texts) == 1 else f'{{"events":[{",".join(texts)}]}}'
            self._messages[key] = message = Message(text, first, self.next - 1, self.over)
            if self._delivered < self.next:
                self._measure(self.next - 1)
            cached = self._messages
            while len(cached) > MAX_CACHED_MESSAGES or (
                len(cached) > 1 and sum(len(one.text) for one in cached.values()) > MAX_RING_BYTES
            ):
                cached.popitem(last=False)
            return message
        return self._messages[key]


class Hub:
    """Channels by episode."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.channels: dict[str, Channel] = {}
        self.newest: str | None = None  # the episode shown to a watcher that names none
        self.watchers = 0
        self.sent = 0  # events sent, counted once for each watcher
        self.resyncs = 0
        self.delivery_seconds = Histogram(
            "kibitz_delivery_seconds", "From an event's commit until this server first sent it to watchers",
            buckets=DELAY_SECONDS, registry=None,
        )  # fmt: skip
        self.closing = False
        self._waiting: set[asyncio.Event] = set()  # watchers without an episode
        self._tasks: set[asyncio.Task[None]] = set()

    def auto_batch(self) -> float:
        """Seconds to gather for clients that named none: with many watchers the number of frames decides the cost."""
        return 0.0 if self.watchers <= 600 else 0.1 if self.watchers <= 1200 else 0.25

    def open(self, row: Row) -> Channel:
        """The channel of an episode. Each watcher of a finished episode has its own and reads from the store."""
        if row.status != "running":
            return Channel(row, self.delivery_seconds)
        channel = self.channels.get(row.episode_id)
        if channel is None:
            channel = self.channels[row.episode_id] = Channel(row, self.delivery_seconds)
            self._choose_newest()
        return channel

    def _choose_newest(self) -> None:
        newest = max(self.channels.values(), key=lambda channel: channel.row.started_at, default=None)
        before, self.newest = self.newest, None if newest is None else newest.row.episode_id
        if self.newest is not None and self.newest != before:
            self._wake_waiting()

    def _wake_waiting(self) -> None:
        for waiting in self._waiting:
            waiting.set()

    async def join(self, row: Row) -> Channel:
        """The channel for a watcher. The row may be stale: an episode that ended since then is shown to its end."""
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
        return channel

    def deliver(self, event: StoredEvent, row: Row | None = None) -> None:
        """A committed event, from this server or another. Drops duplicates; fills gaps from the store."""
        channel = self.channels.get(event.episode_id)
        if channel is None and row is not None:
            channel = self.open(row)
        if channel is None or event.seq > channel.next:
            self._start(self._deliver_from_store(event))
        elif event.seq == channel.next:
            self.sent += channel.add(event, self.auto_batch())
            self._forget_if_over(channel)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _deliver_from_store(self, event: StoredEvent) -> None:
        channel = self.channels.get(event.episode_id)
        while channel is None and not self.closing:
            try:
                row = await asyncio.to_thread(self.store.episode, event.episode_id)
            except StoreUnavailable:
                await asyncio.sleep(STORE_RETRY_SECONDS)
            else:
                if row is None:
                    return
                channel = self.open(row)
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
                gather = watcher.batch or self.auto_batch()
                if gather and not (channel.over or self.closing):
                    await asyncio.sleep(gather)
        finally:
            self.watchers -= 1
            channel.watchers.discard(watcher)

    async def _next_message(self, channel: Channel, watcher: Watcher) -> Message:
        if watcher.live and not channel.over and self._lags(channel, watcher):
            last = watcher.cursor - 1 if watcher.acked is None else min(watcher.acked, watcher.cursor - 1)
            watcher.skip_to(channel.next)
            self.resyncs += 1
            return Message(f'{{"resync":{last}}}')
        first, viewer = watcher.cursor, watcher.viewer
        if first >= channel.oldest:
            message = channel.message_from(first, viewer)
        else:
            bodies = await asyncio.to_thread(self.store.events, channel.row.episode_id, first - 1, READ_EVENTS)
            # private values are public once the episode is over
            events = [StoredEvent.decode(body, channel.row.open_table or channel.over) for body in bodies]
            text = f'{{"events":[{",".join(event.text(viewer) for event in events)}]}}'
            last = first + len(events) - 1
            message = Message(text, first, last, channel.over and last + 1 >= channel.next)
        watcher.cursor = message.last + 1
        self.sent += message.last + 1 - first
        return message

    @staticmethod
    def _lags(channel: Channel, watcher: Watcher) -> bool:
        """The kernel buffers megabytes before a stuck socket shows; missing acknowledgements show it sooner."""
        unacked = 0 if watcher.acked is None else watcher.cursor - 1 - watcher.acked
        return unacked > MAX_UNACKED_EVENTS or channel.next - watcher.cursor > MAX_LAG_EVENTS
