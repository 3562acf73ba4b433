"""Bytes that wait in this server for readers. A reader that does not read must cost little, and be dropped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from kibitz.live.store.sql import Store
from kibitz.live.store.stored_event import StoredEvent, Viewer

PAGE_EVENTS = 500
PAGE_BYTES = 256 << 10  # read from the store at once for one reader; a single event may be larger
MAX_BACKLOG_BYTES = 256 << 20  # of all readers
POLL_SECONDS = 0.1


class Backlog:
    """Counts pages that have been read but not written, and the contents of sockets that are full."""

    def __init__(self, max_bytes: int = MAX_BACKLOG_BYTES) -> None:
        self.max_bytes = max_bytes
        self.dropped = 0  # connections closed because their reader did not read
        self._page_bytes = 0
        self._sockets: set[asyncio.Transport] = set()

    @property
    def bytes(self) -> int:
        return self._page_bytes + sum(socket.get_write_buffer_size() for socket in self._sockets)

    @property
    def full(self) -> bool:
        return self.bytes >= self.max_bytes

    async def room(self) -> None:
        """Waits while the backlog is full: readers that read empty it, and the others are dropped."""
        while self.full:
            await asyncio.sleep(POLL_SECONDS)

    @contextmanager
    def page(self, size: int) -> Iterator[None]:
        """Counts a page as long as someone holds it."""
        self._page_bytes += size
        try:
            yield
        finally:
            self._page_bytes -= size

    def add(self, socket: asyncio.Transport) -> None:
        self._sockets.add(socket)

    def discard(self, socket: asyncio.Transport) -> None:
        self._sockets.discard(socket)

    def drop(self, socket: asyncio.Transport) -> None:
        self.dropped += 1
        socket.abort()

    def drop_all(self) -> None:
        """For a server that closes and cannot wait for readers that do not read."""
        for socket in list(self._sockets):
            self.drop(socket)


class StreamedPages(StreamingResponse):
    """Releases its page as soon as its reader has left or was dropped, not when Python collects the generator."""

    def __init__(self, pages: AsyncGenerator[bytes, None], **more: Any) -> None:
        super().__init__(pages, **more)
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._pages):
            await super().__call__(scope, receive, send)


def read_page(
    store: Store, episode_id: str, since: int, viewer: Viewer, everything: bool, max_bytes: int = PAGE_BYTES
) -> list[bytes]:
    """The next events as this viewer may see them. Blocks, and decodes events unless `everything` may be seen."""
    bodies = store.events(episode_id, since, PAGE_EVENTS, max_bytes)
    return bodies if everything else [StoredEvent.decode(body, False).text(viewer).encode() for body in bodies]


async def file_pages(backlog: Backlog, path: Path) -> AsyncGenerator[bytes, None]:
    """A file, a page at a time, while there is room for it."""
    with await asyncio.to_thread(path.open, "rb") as file:
        while True:
            await backlog.room()
            content = await asyncio.to_thread(file.read, PAGE_BYTES)
            if not content:
                return
            with backlog.page(len(content)):
                yield content
