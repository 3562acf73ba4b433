"""One episode's recent events, and each watcher's position in them.

A watcher has a position, not a queue: events it has not received yet are in the channel's ring or, further back, in the
store. So a slow watcher uses no memory and delays no other.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

from prometheus_client import Histogram

from kibitz.live.store.base import Row
from kibitz.live.store.stored_event import StoredEvent, Viewer, encode_ws_text, fold
from kibitz.live.stream.backlog import PAGE_BYTES

MAX_RING_EVENTS = 512  # of a running episode
MAX_RING_BYTES = 8 << 20  # of stored bodies: a foreign driver's event may have megabytes
MAX_LAG_EVENTS = 256  # beyond this the watcher must fetch the rest itself
MAX_UNACKED_EVENTS = 2 * MAX_LAG_EVENTS  # for a watcher that acknowledges
MAX_CACHED_MESSAGES = 64  # many watchers ask for the same batch


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

    def lags(self, channel: Channel) -> bool:
        """The kernel buffers megabytes before a stuck socket shows; missing acknowledgements show it sooner."""
        unacked = 0 if self.acked is None else self.cursor - 1 - self.acked
        return unacked > MAX_UNACKED_EVENTS or channel.next - self.cursor > MAX_LAG_EVENTS

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
    page_bytes: int = 0  # of text and frame, held for this watcher alone; 0: shared with others

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

    def add(self, event: StoredEvent) -> None:
        """The next event; `push` or `Watcher.wake` sends it."""
        self._remember(event)
        self.next, self.last_event_at = event.seq + 1, time.monotonic()
        if event.seq == 0 or self.frame is not None:
            self.frame = fold(self.frame or {}, event.event)
        self.over = self.over or event.last

    def push(self, watchers: Iterable[Watcher]) -> int:
        """Writes all that is new to every idle watcher's socket, and wakes the others; returns the events sent."""
        sent = 0
        for watcher in watchers:
            first = watcher.cursor
            if first >= self.next and not self.over:
                continue  # another round has been here
            if (
                watcher.idle
                and watcher.push is not None
                and not (watcher.batch or self.over)
                and self.oldest <= first
                and (watcher.acked is None or self.next - 1 - watcher.acked <= MAX_UNACKED_EVENTS)
            ):
                last, frame = self._frame_from(first, watcher.viewer)
                if watcher.push(frame):
                    watcher.cursor = last + 1
                    sent += last + 1 - first
            if watcher.cursor < self.next or self.over:
                watcher.wake.set()
        if sent:
            self._measure(self.next - 1)
        return sent

    def _frame_from(self, first: int, viewer: Viewer) -> tuple[int, bytes]:
        """The events from `first` on as one WebSocket frame, and the last of them."""
        if first == self.next - 1:
            return first, self.ring[-1].frame(viewer)
        message = self.message_from(first, viewer)
        return message.last, message.frame

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
        """The events from `first` on, as many as fit, joined once for all watchers at the same position."""
        key = (first, self.next, viewer)
        if key not in self._messages:
            texts, size = list[str](), 0
            for event in islice(self.ring, first - self.oldest, None):
                texts.append(event.text(viewer))
                size += len(event.body)
                if size >= PAGE_BYTES:
                    break
            text = texts[0] if len(texts) == 1 else f'{{"events":[{",".join(texts)}]}}'
            last = first + len(texts) - 1
            self._messages[key] = message = Message(text, first, last, self.over and last + 1 == self.next)
            if self._delivered <= last:
                self._measure(last)
            cached = self._messages
            while len(cached) > MAX_CACHED_MESSAGES or (
                len(cached) > 1 and sum(len(one.text) for one in cached.values()) > MAX_RING_BYTES
            ):
                cached.popitem(last=False)
            return message
        return self._messages[key]
