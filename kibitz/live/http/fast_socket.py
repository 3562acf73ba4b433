"""uvicorn's WebSocket with a shortcut for frames that every watcher gets.

A server does not mask its frames, so one event is the same bytes for all watchers. The hub encodes it once and writes
it to every socket, past the layers that would encode it again for each.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from kibitz.live.http.stalled import DropsStalledReaders
from kibitz.live.stream.backlog import Backlog

PUSH = "kibitz.push"  # key in the ASGI scope's extensions
MAX_BUFFER_BYTES = 1 << 16  # waiting in a socket; beyond this the caller must use the slow path, which waits


class FastSocket(DropsStalledReaders, WebSocketsSansIOProtocol):
    async def run_asgi(self) -> None:
        extensions: Any = self.scope["extensions"]
        extensions[PUSH] = self.push
        await super().run_asgi()

    def push(self, frame: bytes) -> bool:
        """Writes a complete frame at once. False: the socket is full or closing."""
        transport: Any = self.transport
        if self.close_sent or transport.is_closing() or transport.get_write_buffer_size() > MAX_BUFFER_BYTES:
            return False
        transport.write(frame)
        return True

    def keepalive_timeout(self) -> None:
        """A peer that neither answers pings nor reads would keep the socket open forever."""
        super().keepalive_timeout()
        if self.transport.get_write_buffer_size():
            self.transport.abort()


def fast_socket(backlog: Backlog) -> type[FastSocket]:
    return type("FastSocket", (FastSocket,), {"backlog": backlog})
