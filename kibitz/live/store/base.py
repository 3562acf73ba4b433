"""What every store shares: an episode's row, queries, errors, and `open_store`."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kibitz.core.errors import BadInput
from kibitz.core.system.paths import named

if TYPE_CHECKING:
    from kibitz.live.store.sql import Store

log = logging.getLogger("kibitz.live")
LOG_SECONDS = 60.0  # between two lines about an outage
MAX_READ_BYTES = 8 << 20  # of events in one read: a foreign driver's event may have a megabyte
POSTGRES = ("postgresql://", "postgres://")
STATUSES = ("running", "ended", "failed", "interrupted")


class StoreUnavailable(Exception):
    """The store is locked, full or unreachable, and the timeout has passed. The message is for the log."""

    public = "The store is unavailable; try again in a few seconds."


class OutageLog:
    """Logs an outage once a minute, with the details that no client learns: addresses, paths, the driver's words."""

    def __init__(self) -> None:
        self._last: float | None = None

    def note(self, error: StoreUnavailable) -> None:
        now = time.monotonic()
        if self._last is None or now - self._last >= LOG_SECONDS:
            self._last = now
            log.warning("requests fail because the store is unavailable: %s", error)


class StoreDamaged(StoreUnavailable):
    """The store was deleted, replaced or damaged, or has another schema: to wait does not help, a person must.

    The reason names no host and no path, so anyone may read it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.public = reason


class SequenceGap(Exception):
    """The event is not the next one of its episode; `expected` is the seq of the next."""

    def __init__(self, expected: int) -> None:
        super().__init__(f"The next event of this episode has seq {expected}.")
        self.expected = expected


class EpisodeClosed(Exception):
    """The episode has ended, or another episode has its id; it accepts no events."""


@dataclass(frozen=True)
class Row:
    """One episode. `secret` holds seed and number, for branching, which the server shows only after the end, or the
    digest of its driver's key."""

    episode_id: str
    game: str
    players: tuple[str, str]
    started_at: float
    status: str = "running"
    origin: str = "server"  # played by a `server`, by a `driver` elsewhere, or loaded by an `import`
    owner: str = ""  # the server that plays it
    open_table: bool = False
    ended_at: float | None = None
    last_seq: int = -1
    returns: tuple[float, float] | None = None
    text: str = ""  # the closing line
    about: Mapping[str, Any] = field(default_factory=dict)
    secret: Mapping[str, Any] = field(default_factory=dict)
    verified: bool = False  # played by a server, or a replay has confirmed its result

    def shown(self) -> dict[str, Any]:
        """The public fields."""
        return {
            "episode_id": self.episode_id,
            "game": self.game,
            "players": list(self.players),
            "status": self.status,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "last_seq": self.last_seq,
            "returns": None if self.returns is None else list(self.returns),
            "text": self.text,
            "open": self.open_table,
            "origin": self.origin,
            "verified": self.verified,
        }


@dataclass(frozen=True)
class Query:
    """Selects episodes; `before` is the `started_at` and id of the previous page's last row."""

    game: str | None = None
    status: str | None = None
    player: str | None = None
    limit: int = 50
    before: tuple[float, str] | None = None


def open_store(url: str, store_timeout: float = 10.0) -> Store:
    """Opens `postgresql://...`, or an SQLite file by its path or as `sqlite:///PATH`; migrates an older schema.

    `store_timeout`: seconds to retry while the store is unavailable.
    """
    if url.startswith(POSTGRES):
        from kibitz.live.store.postgres import PostgresStore

        return PostgresStore(url, store_timeout)
    from kibitz.live.store.sqlite import SqliteStore

    return SqliteStore(named(sqlite_path(url)), store_timeout)


def sqlite_path(url: str) -> str:
    """The file that a store's name means."""
    path = url.removeprefix("sqlite:///")  # sqlite:////srv/a.db is absolute, sqlite:///a.db is not
    if "://" in path or not path:
        known = "a file name, sqlite:///FILE or postgresql://USER@HOST/NAME"
        raise BadInput(f"The store {url.split('@')[-1]!r} is of no known kind; give {known}.")
    return path
