"""The audit log: who did what, when, and with which outcome, as JSON Lines. It holds no tokens and no queries."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from logging.handlers import QueueListener, WatchedFileHandler
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import orjson

from kibitz.core.errors import BadInput


class AuditLog:
    """Appends from a thread of its own, so that a slow disk delays no request. A moved file is begun anew."""

    def __init__(self, file: Path | None) -> None:
        self._queue: SimpleQueue[logging.LogRecord] = SimpleQueue()
        self._listener: QueueListener | None = None
        if file is None:
            return
        try:
            handler = WatchedFileHandler(file, encoding="utf-8")
        except OSError as error:
            reason = error.strerror
            raise BadInput(f"The audit log {file} cannot be written: {reason}; give a different --audit.") from None
        self._listener = QueueListener(self._queue, handler)
        self._listener.start()

    def write(self, **facts: Any) -> None:
        if self._listener is not None:
            line = orjson.dumps({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **facts}).decode()
            self._queue.put(logging.makeLogRecord({"msg": line}))

    def close(self) -> None:
        """Writes what is queued."""
        if self._listener is not None:
            self._listener.stop()
            for handler in self._listener.handlers:
                handler.close()
            self._listener = None
