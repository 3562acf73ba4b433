"""Drops readers that do not read, for uvicorn's connections of both kinds."""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from contextlib import suppress
from typing import Any, ClassVar

from kibitz.live.stream.backlog import Backlog

STALL_SECONDS = 20.0
MIN_READ_BYTES = 16 << 10  # that a reader has to take in STALL_SECONDS while its socket is full


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
