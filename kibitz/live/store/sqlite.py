"""Episodes in one SQLite file, in WAL mode: one thread writes, any thread reads."""

from __future__ import annotations

import fcntl
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from kibitz.core.errors import BadInput
from kibitz.live.store.base import MAX_READ_BYTES, Row, StoreUnavailable
from kibitz.live.store.sql import Store, run_jobs

BUSY_SECONDS = 1.0  # that SQLite itself waits for another process's lock
SCHEMA = """
create table if not exists episodes (
  id text primary key, game text not null, player0 text not null, player1 text not null, status text not null,
  origin text not null, owner text not null, open integer not null, started_at real not null, ended_at real,
  return0 real, return1 real, text text not null default '', about text not null, secret text not null
) without rowid;
create index if not exists episodes_by_start on episodes (started_at desc, id);
create index if not exists episodes_by_status on episodes (status);
create table if not exists events (
  episode_id text not null, seq integer not null, body blob not null, primary key (episode_id, seq)
) without rowid;
"""


class SqliteStore(Store):
    """`synchronous=NORMAL`: a returned commit is in the file, even if the process is killed next."""

    name = "sqlite"
    shared = False

    def __init__(self, path: Path, store_timeout: float = 10.0) -> None:
        self._path = path
        self._lock_file = _lock(path)
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._guard = threading.Lock()
        try:
            self._db = self._connect()
            self._db.executescript(SCHEMA)
        except sqlite3.Error as error:
            self._lock_file.close()
            raise BadInput(f"The store {path} cannot be opened: {error}.") from None
        super().__init__(store_timeout, (sqlite3.OperationalError,))

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        db.execute("pragma journal_mode=wal")
        db.execute("pragma synchronous=normal")
        with self._guard:
            self._connections.append(db)
        return db

    def _cursor(self, query: str, values: tuple[Any, ...]) -> sqlite3.Cursor:
        """On this thread's own connection."""
        if not hasattr(self._local, "db"):
            self._local.db = self._connect()
        cursor: sqlite3.Cursor = self._local.db.execute(query, values)
        return cursor

    def _read(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        try:
            return self._cursor(query, values).fetchall()
        except sqlite3.OperationalError as error:
            raise StoreUnavailable(f"The store cannot be read: {error}") from None

    def _transact(self, jobs: list[Callable[[sqlite3.Connection], Any]]) -> list[Any]:
        db = self._db
        try:
            db.execute("begin immediate")
            results = run_jobs(db, jobs)
            db.execute("commit")
        except BaseException:
            if db.in_transaction:
                db.execute("rollback")
            raise
        return results

    def events(self, episode_id: str, since: int, limit: int = 1000) -> list[bytes]:
        query = "select body from events where episode_id = ? and seq > ? order by seq limit ?"
        bodies: list[bytes] = []
        size = 0
        try:
            for (body,) in self._cursor(query, (episode_id, since, limit)):
                bodies.append(body)
                size += len(body)
                if size >= MAX_READ_BYTES:
                    break
        except sqlite3.OperationalError as error:
            raise StoreUnavailable(f"The store cannot be read: {error}") from None
        return bodies

    def orphaned(self) -> list[Row]:
        return self._rows("where status = 'running' and origin = 'server' and owner != ?", (self.owner,))

    def heartbeat(self) -> None:
        """Not needed: the lock file admits only one server."""

    def close(self) -> None:
        self.writer.close()
        with self._guard:
            for db in self._connections:
                db.close()
        self._lock_file.close()


def _lock(path: Path) -> IO[str]:
    """Stays open and locked as long as the store: a second server would take running episodes for orphans."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock_file = open(path.with_name(path.name + ".lock"), "w")  # noqa: SIM115
    except OSError as error:
        raise BadInput(f"The store {path} cannot be opened: {error.strerror}.") from None
    try:
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock_file.close()
        raise BadInput(f"Another server uses the store {path}; give this server a different --store.") from None
    return lock_file
