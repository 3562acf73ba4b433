"""What a store of episodes promises. Commit, then show: nothing reaches a watcher before `append` returns.

A commit survives `kill -9` of the server. A power cut is not promised: the last commits may then be
gone, though never the middle of an episode.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kibitz.core.errors import BadInput
from kibitz.core.paths import named
from kibitz.live.store.stored_event import StoredEvent

READ = 8 << 20  # bytes of events that are read at once: a driver's event may have a megabyte
STATUSES = ("running", "ended", "failed", "interrupted")


class StoreUnavailable(Exception):
    """The store cannot be written (locked, full, gone) and patience has run out. The sentence says why."""


class SequenceGap(Exception):
    """An event came that is not the next one; `expected` is the next."""

    def __init__(self, expected: int) -> None:
        super().__init__(f"The next event of this episode has seq {expected}.")
        self.expected = expected


class EpisodeClosed(Exception):
    """The episode has ended, or its id is taken by another one; nothing can be added."""


@dataclass(frozen=True)
class Row:
    """One episode. `secret` (seed and number) is for branching and is never shown before the end."""

    episode_id: str
    game: str
    players: tuple[str, str]
    started_at: float
    status: str = "running"
    origin: str = "server"  # who plays: this `server`, a `driver` elsewhere, or an `import`
    owner: str = ""  # the server that plays it
    open_table: bool = False
    ended_at: float | None = None
    last_seq: int = -1
    returns: tuple[float, float] | None = None
    text: str = ""  # the closing line
    about: Mapping[str, Any] = field(default_factory=dict)
    secret: Mapping[str, Any] = field(default_factory=dict)

    def shown(self) -> dict[str, Any]:
        """Without what is nobody's business."""
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
        }


@dataclass(frozen=True)
class Query:
    """Which episodes; `before` is the `started_at` and id after which the last page ended."""

    game: str | None = None
    status: str | None = None
    player: str | None = None
    limit: int = 50
    before: tuple[float, str] | None = None


class Store(Protocol):
    """Blocking calls, from any thread."""

    name: str
    owner: str  # this server's mark on the episodes it plays
    shared: bool  # other servers may write here too
    writer: Any  # counts commits and retries

    def begin(self, row: Row) -> None:
        """A new episode; the same id again with nothing in it is allowed, anything else is `EpisodeClosed`."""

    def append(self, event: StoredEvent) -> bool:
        """Committed when it returns. False: it was there already. `SequenceGap` and `EpisodeClosed` refuse."""

    def load(self, row: Row, events: Iterable[StoredEvent]) -> None:
        """A whole episode at once, or nothing of it."""

    def events(self, episode_id: str, since: int, limit: int = 1000) -> list[bytes]:
        """Bodies with seq above `since`, in order: fewer than `limit` if they are large, none only if there is none."""

    def episode(self, episode_id: str) -> Row | None: ...

    def episodes(self, query: Query) -> list[Row]: ...

    def orphaned(self) -> list[Row]:
        """Episodes that say `running` and whose server seems gone; never this server's own."""

    def heartbeat(self) -> None:
        """Says so to the servers that share the store; to be called every few seconds."""

    def leaderboard(self) -> list[dict[str, Any]]:
        """By game and player: episodes, mean return, wins, draws."""

    def close(self) -> None: ...


def outcome(event: StoredEvent) -> tuple[str, tuple[float, float] | None, str]:
    """Status, returns and closing line that a last event brings."""
    payload = event.event.payload
    if event.event.type == "episode.ended":
        mine, theirs = payload["returns"]
        return "ended", (float(mine), float(theirs)), str(payload.get("text", "")).replace("\0", "")
    status = "interrupted" if payload.get("kind") == "interrupted" else "failed"
    return status, None, str(payload.get("reason", "")).replace("\0", "")


def open_store(url: str, patience: float = 10.0) -> Store:
    """`postgresql://...`, or a file of SQLite (`:memory:` is refused: several threads read)."""
    if url.startswith(("postgresql://", "postgres://")):
        from kibitz.live.store.postgres import PostgresStore

        return PostgresStore(url, patience)
    if "://" in url:
        raise BadInput(f"The store {url.split('://')[0]}:// is not known; give a file, or postgresql://USER@HOST/NAME.")
    from kibitz.live.store.sqlite import SqliteStore

    return SqliteStore(named(url), patience)
