"""Drops readers that do not read: on uvicorn's connections of both kinds, and under any other ASGI server."""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, ClassVar

from kibitz.live.stream.backlog import Backlog

STALL_SECONDS = 20.0
MIN_READ_BYTES = 16 << 10  # that a reader has to take in STALL_SECONDS while its socket is full
SEND_SECONDS = 60.0  # for a message to leave, where the sockets are not ours
PIECE_BYTES = 64 << 10  # of a body, sent at once there: as much as asyncio accepts before it waits


class DropsStalledReaders:
    """A mixin: asyncio calls it when a socket's buffer exceeds 64 KiB, and when it has been emptied."""

    backlog: ClassVar[Backlog]
    transport: Any
    _stall_timer: asyncio.TimerHandle | None = None
    _unread = 0  # bytes at the last look

    def pause_writing(self) -> None:
        super().pause_writing()  # type: ignore[misc]
        self.backlog.add(self.transport)
        self._look_later()

    def resume_writing(self) -> None:
        super().resume_writing()  # type: ignore[misc]
        self._forget_stall()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_stall()
        super().connection_lost(exc)  # type: ignore[misc]

    def _look_later(self) -> None:
        self._unread = unread_bytes(self.transport)
        self._stall_timer = asyncio.get_running_loop().call_later(STALL_SECONDS, self._drop_if_stalled)

    def _drop_if_stalled(self) -> None:
        if self._unread - unread_bytes(self.transport) < MIN_READ_BYTES:
            self.backlog.drop(self.transport)
        else:
            self._look_later()

    def _forget_stall(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
            self.backlog.discard(self.transport)


def unread_bytes(transport: Any) -> int:
    """What the reader's machine has not accepted: in our buffer, and in the kernel, which takes more only in bulk."""
    queued = b"\0" * 4
    with suppress(OSError, AttributeError):  # already closed, or a system that does not tell
        queued = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, queued)
    return int(transport.get_write_buffer_size() + struct.unpack("i", queued)[0])


class ReaderStalled(OSError):
    """The reader did not read; as an OSError, which Starlette takes for a closed connection."""


class TimedSend:
    """ASGI's `send` with a time limit. Bodies go in pieces, so that the server holds no more than one after a stall."""

    def __init__(self, send: Callable[[Any], Awaitable[None]], seconds: float, backlog: Backlog) -> None:
        self._send, self._seconds, self._backlog = send, seconds, backlog
        self.stalled = False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        body = message.get("body", b"")
        for start in range(0, len(body) - PIECE_BYTES, PIECE_BYTES):
            await self._within_limit({**message, "body": body[start : start + PIECE_BYTES], "more_body": True})
        rest = (len(body) - 1) // PIECE_BYTES * PIECE_BYTES
        await self._within_limit(message if rest <= 0 else {**message, "body": body[rest:]})

    async def _within_limit(self, message: MutableMapping[str, Any]) -> None:
        if self.stalled:
            raise ReaderStalled
        try:
            async with asyncio.timeout(self._seconds):
                await self._send(message)
        except TimeoutError:
            self.stalled = True
            self._backlog.dropped += 1
            raise ReaderStalled from None
