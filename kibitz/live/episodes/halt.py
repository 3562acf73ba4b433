"""How an episode is told to end."""

from __future__ import annotations

import threading


class Halt(threading.Event):
    """Set once, with the sentence and the kind that the episode's last event will carry."""

    reason = ""
    kind = "stopped"

    def stop(self, reason: str, kind: str = "stopped") -> None:
        self.reason, self.kind = reason, kind
        self.set()
