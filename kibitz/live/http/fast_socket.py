"""uvicorn's WebSocket, with a short way for frames that are the same for everybody.

A server's frames are not masked, so one event is one string of bytes for all watchers: it is framed
once and written to every socket, past the layers that would frame it again for each.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

PUSH = "kibitz.push"  # in the scope's extensions
FULL = 1 << 16  # bytes that wait in a socket before the short way is closed


class FastSocket(WebSocketsSansIOProtocol):
    """`push(frame)` writes at once, or says that the socket is full and the long way has to wait for it."""

    async def run_asgi(self) -> None:
        extensions: Any = self.scope["extensions"]
        extensions[PUSH] = self.push
        await super().run_asgi()

    def push(self, frame: bytes) -> bool:
        transport: Any = self.transport
        if self.close_sent or transport.is_closing() or transport.get_write_buffer_size() > FULL:
            return False
        transport.write(frame)
        return True

    def keepalive_timeout(self) -> None:
        """One that answers no ping and takes nothing would be waited for until the end of days."""
        super().keepalive_timeout()
        if self.transport.get_write_buffer_size():
            self.transport.abort()
