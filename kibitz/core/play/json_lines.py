"""A file of JSON objects, one per line, that grows by whole lines and survives `kill -9`."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from kibitz.core.errors import BadInput


class JsonLines:
    """Hands each line that the file already has to `take`, and cuts off one that a crash left incomplete."""

    def __init__(self, path: Path, take: Callable[[dict[str, Any]], None]) -> None:
        """BadInput if `take` cannot use a line: it raises ValueError, KeyError or TypeError."""
        self.path, self._take = path, take
        self._lock = threading.Lock()
        whole = self._read()
        self.file = path.open("ab")
        self.file.truncate(whole)

    def _read(self) -> int:
        """Returns the length of the whole lines."""
        if not self.path.exists():
            return 0
        whole = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                try:
                    self._take(json.loads(line))
                except (ValueError, KeyError, TypeError):
                    raise BadInput(f"{self.path} is damaged in line {number}; choose another --out.") from None
                whole += len(line)
        return whole

    def add(self, row: Mapping[str, Any]) -> None:
        """Returns once the row is on the disk. Safe to call from any thread."""
        line = json.dumps(row, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            self.file.write(line)
            self.file.flush()
            os.fsync(self.file.fileno())
            self._take(dict(row))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
