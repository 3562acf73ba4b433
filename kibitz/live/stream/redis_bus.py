"""Redis Streams between servers that share a store. Needs the extra `scale`.

Redis is only a fast messenger: an entry says which event was committed, and other servers read it from the store.
So an outage of Redis loses nothing, an entry cannot show an event that the store does not have, and reading the entries
reveals no private value. `calls` carries what a person at another server asks and does in a seat.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from kibitz.core.errors import BadInput
from kibitz.live.store.base import StoreUnavailable
from kibitz.live.store.stored_event import ID, StoredEvent
from kibitz.live.stream.calls import Calls

if TYPE_CHECKING:
    from kibitz.live.stream.bus import Link
    from kibitz.live.stream.hub import Hub

log = logging.getLogger("kibitz.live")
STREAM = "kibitz:events"
MAX_STREAM_EVENTS = 20_000  # approximately
MAX_QUEUED_EVENTS = 10_000  # while Redis is unreachable; other servers read older events from the store
MAX_SEND_EVENTS = 200
RETRY_SECONDS = 0.25
COUNT_SECONDS = 3.0  # between two announcements of this server's audience
FORGET_SECONDS = 4 * COUNT_SECONDS  # after which a silent server's audience counts no more


def open_link(url: str) -> Link | None:
    return RedisLink(url) if url else None


class RedisLink:
    """Sends the events that this server commits and receives the other servers'."""

    name = "redis"

    def __init__(self, url: str) -> None:
        try:
            import redis.asyncio
        except ImportError:
            raise BadInput("Redis needs the extra `scale`: pip install 'kibitz[scale]'.") from None
        try:
            self._redis: Any = redis.asyncio.Redis.from_url(
                url, socket_connect_timeout=5, socket_timeout=5, socket_keepalive=True, health_check_interval=10
            )
        except ValueError:
            raise BadInput(f"The bus {url.split('@')[-1]!r} is not a Redis URL; give redis://HOST:PORT.") from None
        self._error: type[Exception] = redis.exceptions.RedisError
        self._me = secrets.token_hex(8).encode()
        self._queue: deque[StoredEvent] = deque()
        self._guard = threading.Lock()
        self._overflowed = False  # the queue has dropped events since it was last empty
        self.left_out = 0  # events dropped since the start
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.away = True
        self._logged_away: bool | None = None
        self.calls = Calls(self._redis, self._error)
        self.calls.heard = self._hear
        self._audiences: dict[str, tuple[float, dict[str, int]]] = {}  # by server: when it was heard, and its counts

    def send(self, event: StoredEvent) -> None:
        with self._guard:
            full = len(self._queue) >= MAX_QUEUED_EVENTS
            first_drop = full and not self._overflowed
            if full:
                self._queue.popleft()
                self.left_out += 1
                self._overflowed = True
            self._queue.append(event)
        if first_drop:
            log.warning(
                "%d events are queued for the bus; other servers read older ones from the store", MAX_QUEUED_EVENTS
            )
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    async def run(self, hub: Hub) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake.set()  # events may have been queued before
        try:
            await asyncio.gather(
                self._send_all(), self._receive_all(hub), self._count_all(hub), self.calls.run(hub.store.owner)
            )
        finally:
            await self._redis.aclose()

    def close(self) -> None:
        """`run` has closed the connection."""

    def watching(self) -> Counter[str]:
        late = time.monotonic() - FORGET_SECONDS
        return sum((Counter(counts) for heard_at, counts in self._audiences.values() if heard_at > late), Counter())

    def _hear(self, server: str, news: dict[str, Any]) -> None:
        if not (watching := news["watching"]):
            self._audiences.pop(server, None)
        else:
            self._audiences[server] = (time.monotonic(), watching)

    async def _count_all(self, hub: Hub) -> None:
        """Tells the other servers how many watchers each episode has here, as long as any episode has one."""
        announced: Counter[str] = Counter()
        while True:
            watching = hub.watching()
            if watching or announced:
                await self.calls.tell({"watching": watching})
            announced = watching
            await asyncio.sleep(COUNT_SECONDS)

    async def _send_all(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                with self._guard:
                    batch = [self._queue[i] for i in range(min(MAX_SEND_EVENTS, len(self._queue)))]
                try:
                    pipe = self._redis.pipeline(transaction=False)
                    for event in batch:
                        fields = {"episode": event.episode_id, "seq": event.seq, "from": self._me}
                        pipe.xadd(STREAM, fields, maxlen=MAX_STREAM_EVENTS, approximate=True)
                    await pipe.execute()
                except (self._error, OSError) as error:
                    self._note(True, error)
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                with self._guard:
                    for event in batch:
                        if self._queue and self._queue[0] is event:  # a full queue may have dropped it meanwhile
                            self._queue.popleft()
                    self._overflowed = self._overflowed and bool(self._queue)

    async def _receive_all(self, hub: Hub) -> None:
        last: bytes | None = None
        while True:
            try:
                if last is None:
                    newest = await self._redis.xrevrange(STREAM, count=1)
                    last = newest[0][0] if newest else b"0-0"
                if self.away:
                    await hub.catch_up_all()
                    self._note(False)
                for _, entries in await self._redis.xread({STREAM: last}, count=500, block=2000) or []:
                    for entry_id, fields in entries:
                        last = entry_id
                        episode_id = fields.get(b"episode", b"").decode("ascii", "replace")
                        if fields.get(b"from") != self._me and ID.fullmatch(episode_id):
                            hub.read(episode_id)
            except (self._error, OSError, StoreUnavailable) as error:  # `catch_up_all` reads what is missed now
                self._note(True, error)
                await asyncio.sleep(RETRY_SECONDS)
            except Exception:
                log.exception("cannot show another server's event")
                self.away = True
                await asyncio.sleep(RETRY_SECONDS)

    def _note(self, away: bool, error: object = "") -> None:
        """Logs each change once."""
        if away and not self._logged_away:
            log.warning("the bus is unreachable: %s", error)
        elif not away and self._logged_away is not False:
            log.info("the bus is connected")
        self.away = self._logged_away = away
