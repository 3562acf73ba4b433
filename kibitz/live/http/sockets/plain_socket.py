"""uvicorn's HTTP connection with limits: per address, on idle connections, and on readers that do not read.

A proxy could do this, but `kibitz serve --host 0.0.0.0 --token ...` is meant to face a network without one, and
docs/live.md promises these limits. uvicorn has none of them: its keep-alive timeout starts only after a first request.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, ClassVar

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from kibitz.live.http.sockets.client_address import UNKNOWN, limit_key
from kibitz.live.http.sockets.stalled import DropsStalledReaders
from kibitz.live.stream.backlog import Backlog

IDLE_SECONDS = 20.0  # without a complete request head
BODY = b'{"error":"There are too many connections from your address."}'
REFUSAL = (
    b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(BODY), BODY)
)
_Base: Any = AutoHTTPProtocol


class PlainSocket(DropsStalledReaders, _Base):  # type: ignore[misc]
    """A WebSocket leaves this class with its upgrade; `security.Guard` counts it from then on."""

    max_connections: ClassVar[float]  # from one address
    open_by_address: ClassVar[Counter[str]]
    refused: ClassVar[Counter[int]]  # by status, with those that `security.Guard` refuses

    def connection_made(self, transport: asyncio.Transport) -> None:
        peer = transport.get_extra_info("peername")
        self._address = limit_key(peer[0]) if peer else UNKNOWN
        self._counted = self.open_by_address[self._address] < self.max_connections
        self._last_cycle: Any = None
        self._timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._close_if_idle)
        if self._counted:
            self.open_by_address[self._address] += 1
        super().connection_made(transport)
        if not self._counted:
            self.refused[429] += 1
            transport.write(REFUSAL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._release()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._counted:
            super().data_received(data)

    def handle_websocket_upgrade(self, *values: Any) -> None:
        self._release()
        self._forget_stall()
        super().handle_websocket_upgrade(*values)

    def _release(self) -> None:
        self._timer.cancel()
        if self._counted:
            self.open_by_address[self._address] -= 1
            if not self.open_by_address[self._address]:
                del self.open_by_address[self._address]
        self._counted = False

    def _close_if_idle(self) -> None:
        """Aborts unless a request arrived since the last check or one is being answered."""
        answering = self.cycle is not None and not self.cycle.response_complete
        if not answering and self.cycle is self._last_cycle:
            self.transport.abort()
            return
        self._last_cycle = self.cycle
        self._timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._close_if_idle)


def plain_socket(max_connections: float, refused: Counter[int], backlog: Backlog) -> type[Any]:
    """A class with its own counters: uvicorn takes a class, not an instance."""
    counters = {"open_by_address": Counter(), "refused": refused, "backlog": backlog}
    return type("PlainSocket", (PlainSocket,), {"max_connections": max_connections, **counters})
