"""uvicorn's HTTP connection for strangers: so many of one address, and none that stays without asking anything."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, ClassVar

from uvicorn.protocols.http.auto import AutoHTTPProtocol

SILENCE = 20.0  # seconds for the head of a request
FULL = b'{"error":"There are too many connections of your address."}'
REFUSAL = (
    b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(FULL), FULL)
)
_Base: Any = AutoHTTPProtocol


class PlainSocket(_Base):  # type: ignore[misc]
    """A WebSocket leaves it with the upgrade, and is counted elsewhere (`security.Guard`)."""

    most: ClassVar[int] = 400  # of one address
    held: ClassVar[Counter[str]]

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._address = (transport.get_extra_info("peername") or ("?",))[0]
        self._counted = self.held[self._address] < self.most
        self._looked_at: Any = None
        self._timer = asyncio.get_running_loop().call_later(SILENCE, self._look)
        if self._counted:
            self.held[self._address] += 1
        super().connection_made(transport)
        if not self._counted:
            transport.write(REFUSAL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_go()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._counted:
            super().data_received(data)

    def handle_websocket_upgrade(self, *values: Any) -> None:
        self._let_go()
        super().handle_websocket_upgrade(*values)

    def _let_go(self) -> None:
        self._timer.cancel()
        if self._counted:
            self.held[self._address] -= 1
            if not self.held[self._address]:
                del self.held[self._address]
        self._counted = False

    def _look(self) -> None:
        """Whoever has asked nothing since the last look, and waits for no answer, is let go."""
        waits = self.cycle is not None and not self.cycle.response_complete
        if not waits and self.cycle is self._looked_at:
            self.transport.abort()
            return
        self._looked_at = self.cycle
        self._timer = asyncio.get_running_loop().call_later(SILENCE, self._look)


def plain_socket(most: int) -> type[Any]:
    """A class with a count of its own, as uvicorn wants it."""
    return type("PlainSocket", (PlainSocket,), {"most": most, "held": Counter()})
