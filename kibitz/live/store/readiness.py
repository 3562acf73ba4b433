"""Whether the store can be used, for /ready."""

from __future__ import annotations

import logging
import time

from kibitz.live.store.base import StoreUnavailable
from kibitz.live.store.sql import Store

log = logging.getLogger("kibitz.live")
CHECK_SECONDS = 1.0  # between two checks
MAX_SILENCE_SECONDS = 5.0  # that a check may take before the store counts as away


class Readiness:
    """Remembers the last check, so that asking costs nothing and never blocks."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._found = ""
        self._checked_at = time.monotonic()

    def check(self) -> None:
        """Blocks while the store does. Logs when the answer changes."""
        before, details = self._found, ""
        try:
            self._store.check()
            self._found = ""
        except StoreUnavailable as error:
            self._found, details = error.public, str(error)
        self._checked_at = time.monotonic()
        if bool(before) != bool(self._found):
            log.warning("%s", details or "The store can be used again.")

    @property
    def problem(self) -> str:
        """Why the server cannot accept anything now; empty if it can."""
        silent = time.monotonic() - self._checked_at
        if silent > MAX_SILENCE_SECONDS:
            return f"The store has not answered for {silent:.0f} s."
        return self._found
