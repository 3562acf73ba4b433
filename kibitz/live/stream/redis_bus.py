"""Redis Streams between servers that share a store. Needs the extra `scale`.

Only a quick messenger: every event is committed before it is sent, and whoever finds a gap reads the
store. So Redis may come and go, and nothing is lost.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from kibitz.core.errors import BadInput
from kibitz.live.store.base import StoreUnavailable
from kibitz.live.store.stored_event import StoredEvent

if TYPE_CHECKING:
    from kibitz.live.stream.bus import Link
    from kibitz.live.stream.hub import Hub

log = logging.getLogger("kibitz.live")
STREAM = "kibitz:events"
KEPT = 20_000  # events in the stream, about
WAITING = 10_000  # events that wait while Redis is away; older ones the others read from the store


def open_link(url: str) -> Link | None:
    return RedisLink(url) if url else None


class RedisLink:
    """Sends what this server commits and brings what the others commit."""

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
        except ValueError as wrong:
            raise BadInput(f"The bus {url!r} is not an address of Redis: {wrong}.") from None
        self._error: type[Exception] = redis.exceptions.RedisError
        self._me = secrets.token_hex(8).encode()
        self._out: deque[StoredEvent] = deque()
        self._guard = threading.Lock()
        self._full = False  # something has been left out, and said so
        self.left_out = 0  # since the start
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.away = True
        self._noted: bool | None = None

    def send(self, event: StoredEvent) -> None:
        with self._guard:
            full, said = len(self._out) >= WAITING, self._full
            if full:
                self._out.popleft()
                self.left_out += 1
                self._full = True
            self._out.append(event)
        if full and not said:
            log.warning("%d events wait for the bus; older ones the other servers read from the store", WAITING)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    async def run(self, hub: Hub) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake.set()  # something may have been sent before
        try:
            await asyncio.gather(self._sending(), self._receiving(hub))
        finally:
            await self._redis.aclose()

    def close(self) -> None:
        """`run` has closed the connection."""

    async def _sending(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._out:
                with self._guard:
                    batch = [self._out[i] for i in range(min(200, len(self._out)))]
                try:
                    pipe = self._redis.pipeline(transaction=False)
                    for event in batch:
                        fields = {"body": event.body, "open": int(event.open_table), "from": self._me}
                        pipe.xadd(STREAM, fields, maxlen=KEPT, approximate=True)
                    await pipe.execute()
                except (self._error, OSError) as error:
                    self._note(True, error)
                    await asyncio.sleep(0.25)
                    continue
                with self._guard:
                    for event in batch:
                        if self._out and self._out[0] is event:  # a full queue has dropped its oldest by itself
                            self._out.popleft()
                    self._full = self._full and bool(self._out)

    async def _receiving(self, hub: Hub) -> None:
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
                    for mark, fields in entries:
                        last = mark
                        if fields[b"from"] != self._me:
                            hub.deliver(StoredEvent.decode(fields[b"body"], fields[b"open"] == b"1"))
            except (self._error, OSError, StoreUnavailable) as error:  # what is missed is caught up with
                self._note(True, error)
                await asyncio.sleep(0.25)
            except Exception:
                log.exception("an event of another server could not be shown")
                self.away = True
                await asyncio.sleep(0.25)

    def _note(self, away: bool, error: object = "") -> None:
        if away and not self._noted:
            log.warning("the bus is away: %s", error)
        elif not away and self._noted is not False:
            log.info("the bus is there")
        self.away = self._noted = away
