"""From committed events to watchers: a short memory of each running episode, and a place in it for every watcher.

Everything here runs on the server's event loop. A watcher has a position, not a queue: what it has
not got yet lies in the channel's ring, and further back in the store. So a slow one costs nothing
and holds nobody up.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kibitz.live.store.base import Row, Store, StoreUnavailable
from kibitz.live.store.stored_event import StoredEvent, Viewer, encode_ws_text, fold

RING = 512  # events of a running episode kept in memory
HELD = 8 << 20  # bytes of them as they are stored, at most: a driver's event may have megabytes
LAG = 256  # events a watcher may be behind before it is told to fetch the rest itself
WINDOW = 2 * LAG  # events that one who acknowledges may leave unacknowledged
CHUNK = 500  # events read from the store at once
JOINED = 64  # batches kept ready, because many watchers ask for the same one


@dataclass(eq=False)
class Watcher:
    """One that looks on. `acked` is None until it acknowledges for the first time."""

    viewer: Viewer = None
    batch: float = 0.0  # seconds to gather events before a message
    cursor: int = 0  # seq of the next event it is to get
    acked: int | None = None
    live: bool = False  # it has once been up to date
    paused: bool = False  # told to resync; goes on behind its next acknowledgement
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    push: Callable[[bytes], bool] | None = None  # the short way to its socket; False: it is full
    idle: bool = False  # nothing is on its way to it

    def ack(self, seq: int) -> None:
        """It has everything up to `seq`."""
        self.acked = seq
        if self.paused:
            self.paused, self.cursor = False, min(seq + 1, self.cursor)
            self.wake.set()

    def skip_to(self, seq: int) -> None:
        """The watcher must fetch the rest itself. It then waits for its next ack, or continues here."""
        if self.acked is None:
            self.cursor = seq
        else:
            self.paused = True


@dataclass(frozen=True)
class Part:
    """What goes out at once: events first..last as one message, or a word from the server."""

    text: str
    first: int = -1
    last: int = -1
    ended: bool = False

    @cached_property
    def frame(self) -> bytes:
        return encode_ws_text(self.text)


class Channel:
    """One episode as the hub knows it."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.ring: deque[StoredEvent] = deque()
        self.held = 0  # bytes in the ring
        self.next = row.last_seq + 1  # seq of the event to come
        self.over = row.status != "running"
        self.heard = time.monotonic()  # when the last event came
        self.frame: dict[str, Any] | None = None  # whole, once it is known
        self.watchers: set[Watcher] = set()
        self.ready: asyncio.Task[None] | None = None  # what came since the row was read is being looked for
        self._joined: OrderedDict[tuple[int, int, Viewer], Part] = OrderedDict()

    @property
    def oldest(self) -> int:
        return self.next - len(self.ring)

    def add(self, event: StoredEvent, gather: float = 0.0) -> int:
        """How many watchers have got it already; the others are woken."""
        self._keep(event)
        self.next, self.heard = event.seq + 1, time.monotonic()
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
                and (watcher.acked is None or event.seq - watcher.acked <= WINDOW)
                and watcher.push(event.frame(watcher.viewer))
            ):
                watcher.cursor += 1
                pushed += 1
            else:
                watcher.wake.set()
        return pushed

    def _keep(self, event: StoredEvent) -> None:
        """What falls out is read from the store by whoever still needs it."""
        self.ring.append(event)
        self.held += len(event.body)
        while len(self.ring) > RING or self.held > HELD:
            self.held -= len(self.ring.popleft().body)
        self._joined.clear()  # they end before this event: nobody asks for them again

    def between(self, first: int, viewer: Viewer) -> Part:
        """Everything from `first` on as one message, joined once for all who are at the same place."""
        key = (first, self.next, viewer)
        if key not in self._joined:
            start = first - self.oldest
            texts = [self.ring[i].text(viewer) for i in range(start, len(self.ring))]
            text = texts[0] if len(texts) == 1 else f'{{"events":[{",".join(texts)}]}}'
            self._joined[key] = part = Part(text, first, self.next - 1, self.over)
            ready = self._joined
            while len(ready) > JOINED or (len(ready) > 1 and sum(len(one.text) for one in ready.values()) > HELD):
                ready.popitem(last=False)
            return part
        return self._joined[key]


class Hub:
    """Channels by episode."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.channels: dict[str, Channel] = {}
        self.newest: str | None = None  # the episode that a watcher without a wish sees
        self.watchers = 0
        self.sent = 0  # events handed to watchers
        self.resyncs = 0
        self.closing = False
        self._idle: set[asyncio.Event] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def auto_batch(self) -> float:
        """Seconds to gather when the client named none: with many watchers the cost of a frame is what counts."""
        return 0.0 if self.watchers <= 600 else 0.1 if self.watchers <= 1200 else 0.25

    def open(self, row: Row) -> Channel:
        """The channel of an episode; one that is over is read from the store by each watcher alone."""
        if row.status != "running":
            return Channel(row)
        channel = self.channels.get(row.episode_id)
        if channel is None:
            channel = self.channels[row.episode_id] = Channel(row)
            self._choose_newest()
        return channel

    def _choose_newest(self) -> None:
        newest = max(self.channels.values(), key=lambda channel: channel.row.started_at, default=None)
        before, self.newest = self.newest, None if newest is None else newest.row.episode_id
        if self.newest is not None and self.newest != before:
            self._wake_idle()

    def _wake_idle(self) -> None:
        for waiting in self._idle:
            waiting.set()

    async def join(self, row: Row) -> Channel:
        """The channel for a watcher. Its row may be old: an episode that has ended since is told to the end, too."""
        channel = self.channels.get(row.episode_id)
        if channel is None:
            channel = self.open(row)
            channel.ready = None if channel.over else self._later(self._catch_up_late(channel))
        if channel.ready is not None:
            try:
                await asyncio.shield(channel.ready)
            except Exception:
                channel.ready = None  # the next one tries again
                raise
        return channel

    def deliver(self, event: StoredEvent, row: Row | None = None) -> None:
        """A committed event, from this server or another; doubles are dropped, gaps filled from the store."""
        channel = self.channels.get(event.episode_id)
        if channel is None and row is not None:
            channel = self.open(row)
        if channel is None or event.seq > channel.next:
            self._later(self._deliver_late(event))
        elif event.seq == channel.next:
            self.sent += channel.add(event, self.auto_batch())
            self._forget_if_over(channel)

    def _later(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _deliver_late(self, event: StoredEvent) -> None:
        channel = self.channels.get(event.episode_id)
        while channel is None and not self.closing:
            try:
                row = await asyncio.to_thread(self.store.episode, event.episode_id)
            except StoreUnavailable:
                await asyncio.sleep(0.5)
            else:
                if row is None:
                    return
                channel = self.open(row)
        if channel is not None:
            await self._catch_up_late(channel)

    async def _catch_up_late(self, channel: Channel) -> None:
        """Tried again while the store is away: nobody else may come to fill the gap."""
        while not self.closing:
            try:
                await self.catch_up(channel)
                break
            except StoreUnavailable:
                await asyncio.sleep(0.5)

    async def catch_up(self, channel: Channel) -> None:
        """Reads what the channel has missed."""
        while not channel.over:
            bodies = await asyncio.to_thread(self.store.events, channel.row.episode_id, channel.next - 1, CHUNK)
            for body in bodies:
                missed = StoredEvent.decode(body, channel.row.open_table)
                if missed.seq == channel.next:
                    channel.add(missed)
            if not bodies:
                break
        self._forget_if_over(channel)

    async def catch_up_all(self, silent: float = 0.0) -> None:
        """Whatever was committed and not shown here, of episodes that have been silent for so many seconds."""
        for channel in list(self.channels.values()):
            if time.monotonic() - channel.heard >= silent:
                await self.catch_up(channel)

    def _forget_if_over(self, channel: Channel) -> None:
        if channel.over:
            self.channels.pop(channel.row.episode_id, None)
            self._choose_newest()

    async def next_episode(self, seen: set[str]) -> str | None:
        """The newest running episode that is not in `seen`; waits for one. None: the server is closing."""
        waiting = asyncio.Event()
        self._idle.add(waiting)
        self.watchers += 1
        try:
            while not self.closing and (self.newest is None or self.newest in seen):
                await waiting.wait()
                waiting.clear()
        finally:
            self.watchers -= 1
            self._idle.discard(waiting)
        return None if self.closing else self.newest

    def close(self) -> None:
        """Everybody is told that it is over for today."""
        self.closing = True
        self._wake_idle()
        for channel in self.channels.values():
            for watcher in channel.watchers:
                watcher.wake.set()

    async def follow(self, channel: Channel, watcher: Watcher) -> AsyncIterator[Part]:
        """Everything from the watcher's cursor on, until the episode is over or the server closes."""
        channel.watchers.add(watcher)
        self.watchers += 1
        try:
            while True:
                watcher.wake.clear()
                if watcher.cursor < channel.next and (channel.over or not watcher.paused):
                    part = await self._part(channel, watcher)
                    yield part
                    if part.ended:
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

    async def _part(self, channel: Channel, watcher: Watcher) -> Part:
        if watcher.live and not channel.over and self._lags(channel, watcher):
            last = watcher.cursor - 1 if watcher.acked is None else min(watcher.acked, watcher.cursor - 1)
            watcher.skip_to(channel.next)
            self.resyncs += 1
            return Part(f'{{"resync":{last}}}')
        first, viewer = watcher.cursor, watcher.viewer
        if first >= channel.oldest:
            part = channel.between(first, viewer)
        else:
            bodies = await asyncio.to_thread(self.store.events, channel.row.episode_id, first - 1, CHUNK)
            # once it is over everything may be shown
            shown = [StoredEvent.decode(body, channel.row.open_table or channel.over) for body in bodies]
            text = f'{{"events":[{",".join(event.text(viewer) for event in shown)}]}}'
            last = first + len(shown) - 1
            part = Part(text, first, last, channel.over and last + 1 >= channel.next)
        watcher.cursor = part.last + 1
        self.sent += part.last + 1 - first
        return part

    @staticmethod
    def _lags(channel: Channel, watcher: Watcher) -> bool:
        """The kernel swallows megabytes before a stuck socket shows; acknowledgements tell earlier."""
        unseen = 0 if watcher.acked is None else watcher.cursor - 1 - watcher.acked
        return unseen > WINDOW or channel.next - watcher.cursor > LAG
