"""uvicorn's WebSocket with two shortcuts, which together decide how many watchers one core serves.

A server does not mask its frames, so one event is the same bytes for all watchers. The hub encodes it once and writes
it to every socket, past the layers that would encode it again for each. In the other direction all watchers acknowledge
the same events at about the same time, so an acknowledgement skips the parser, the queue and the task behind them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

from kibitz.live.http.sockets.stalled import DropsStalledReaders
from kibitz.live.stream.backlog import Backlog

FAST = "kibitz.fast"  # key in the ASGI scope's extensions
MAX_BUFFER_BYTES = 1 << 16  # waiting in a socket; beyond this the caller must use the slow path, which waits
HEAD_BYTES = 6  # of a short frame from a client: two, and its mask
MAX_FRAGMENTS = 64  # of a message; the limit of bytes does not stop a client that sends empty ones
ACK = re.compile(rb'\{"ack": ?(0|[1-9]\d{0,8})\}')


class FastSocket(DropsStalledReaders, WebSocketsSansIOProtocol):
    on_ack: Callable[[int], None] | None = None  # what the application does with an acknowledgement
    _between_messages = True  # the next bytes begin a frame

    async def run_asgi(self) -> None:
        extensions: Any = self.scope["extensions"]
        extensions[FAST] = self
        await super().run_asgi()

    def push(self, frame: bytes) -> bool:
        """Writes a complete frame at once. False: the socket is full or closing."""
        transport: Any = self.transport
        if self.close_sent or transport.is_closing() or transport.get_write_buffer_size() > MAX_BUFFER_BYTES:
            return False
        transport.write(frame)
        return True

    def data_received(self, data: bytes) -> None:
        """A client that splits a message loses the shortcut for good: only the parser then knows where it is."""
        if self.handshake_initiated and self._between_messages:
            if self.on_ack is not None and (seq := ack_in(data)) is not None:
                self.on_ack(seq)
                return
            self._between_messages = whole_messages(data)
        super().data_received(data)

    def handle_ping(self) -> None:
        """A client that sends pings without reading the answers gets no more of them."""
        answers = b"".join(self.conn.data_to_send())
        if self.transport.get_write_buffer_size() <= MAX_BUFFER_BYTES:
            self.transport.write(answers)

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) < MAX_FRAGMENTS:
            super().handle_cont(event)
        elif not self.close_sent:
            self.conn.fail(CloseCode.MESSAGE_TOO_BIG, f"a message may have {MAX_FRAGMENTS} fragments")
            self.handle_parser_exception()

    def keepalive_timeout(self) -> None:
        """A peer that neither answers pings nor reads would keep the socket open forever."""
        super().keepalive_timeout()
        if self.transport.get_write_buffer_size():
            self.transport.abort()


def fast_socket(backlog: Backlog) -> type[FastSocket]:
    return type("FastSocket", (FastSocket,), {"backlog": backlog})


def ack_in(data: bytes) -> int | None:
    """The seq of `{"ack": seq}` if these bytes are one masked text frame with just that; None for anything else."""
    size = len(data) - HEAD_BYTES
    if not 0 < size < 126 or data[0] != 0x81 or data[1] != 0x80 | size:
        return None
    mask = int.from_bytes((data[2:6] * (size // 4 + 1))[:size])
    found = ACK.fullmatch((int.from_bytes(data[HEAD_BYTES:]) ^ mask).to_bytes(size))
    return None if found is None else int(found[1])


def whole_messages(data: bytes) -> bool:
    """Whether these bytes, which begin with a frame, end with one, and none is a fragment of a message."""
    at = 0
    while at + 2 <= len(data) and data[at] & 0x80:
        size, head = data[at + 1] & 0x7F, HEAD_BYTES
        if size > 125:
            wide = 2 if size == 126 else 8
            size, head = int.from_bytes(data[at + 2 : at + 2 + wide]), HEAD_BYTES + wide
        at += head + size
    return at == len(data)
