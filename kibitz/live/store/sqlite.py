"""Episodes in one SQLite file (WAL): one thread writes, any thread reads."""

from __future__ import annotations

import fcntl
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

from kibitz.core.errors import BadInput
from kibitz.live.store.base import READ, EpisodeClosed, Query, Row, SequenceGap, StoreUnavailable, outcome
from kibitz.live.store.sql import COLUMNS, LAST_SEQ, LEADERBOARD, conditions, row_of, standings, values_of
from kibitz.live.store.stored_event import StoredEvent
from kibitz.live.store.writer import Writer

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


class SqliteStore:
    """`synchronous=NORMAL`: a commit is in the file when it returns, whatever becomes of the process."""

    name = "sqlite"
    shared = False

    def __init__(self, path: Path, patience: float = 10.0) -> None:
        self._path, self.owner = path, secrets.token_hex(4)
        self._claim = _claim(path)
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._guard = threading.Lock()
        try:
            self._db = self._connect()
            self._db.executescript(SCHEMA)
        except sqlite3.Error as error:
            self._claim.close()
            raise BadInput(f"The store {path} cannot be opened: {error}.") from None
        self.writer: Writer[sqlite3.Connection] = Writer(self._transact, (sqlite3.OperationalError,), patience)

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, timeout=1.0, isolation_level=None, check_same_thread=False)
        db.execute("pragma journal_mode=wal")
        db.execute("pragma synchronous=normal")
        with self._guard:
            self._opened.append(db)
        return db

    def _read(
        self, query: str, values: Iterable[Any] = (), keep: Callable[[Iterable[Any]], list[Any]] = list
    ) -> list[Any]:
        try:
            if not hasattr(self._local, "db"):
                self._local.db = self._connect()
            return keep(self._local.db.execute(query, tuple(values)))
        except sqlite3.OperationalError as error:
            raise StoreUnavailable(f"The store cannot be read: {error}") from None

    def _transact(self, jobs: list[Callable[[sqlite3.Connection], Any]]) -> list[Any]:
        db = self._db
        try:
            db.execute("begin immediate")
            results: list[Any] = []
            for job in jobs:
                try:
                    results.append(job(db))
                except (SequenceGap, EpisodeClosed) as refused:  # that job's business; it has written nothing
                    results.append(refused)
            db.execute("commit")
        except BaseException:
            if db.in_transaction:
                db.execute("rollback")
            raise
        return results

    def begin(self, row: Row) -> None:
        self.writer.run(lambda db: _begin(db, row))

    def append(self, event: StoredEvent) -> bool:
        _ = event.body  # serialised here, not in the one thread that all wait for
        added: bool = self.writer.run(lambda db: _append(db, event))
        return added

    def load(self, row: Row, events: Iterable[StoredEvent]) -> None:
        listed = list(events)

        def job(db: sqlite3.Connection) -> None:
            _begin(db, row)
            if _next(db, row.episode_id):
                raise EpisodeClosed(f"There is already an episode {row.episode_id}.")
            rows = [(row.episode_id, event.seq, event.body) for event in listed]
            db.executemany("insert into events values (?, ?, ?)", rows)
            _finish(db, listed[-1])

        self.writer.run(job)

    def events(self, episode_id: str, since: int, limit: int = 1000) -> list[bytes]:
        query = "select body from events where episode_id = ? and seq > ? order by seq limit ?"
        return self._read(query, (episode_id, since, limit), _not_too_many)

    def episode(self, episode_id: str) -> Row | None:
        found = self._read(f"select {COLUMNS}, {LAST_SEQ} from episodes where id = ?", (episode_id,))
        return row_of(found[0]) if found else None

    def episodes(self, query: Query) -> list[Row]:
        where, values = conditions(query, "?")
        found = self._read(
            f"select {COLUMNS}, {LAST_SEQ} from episodes {where} order by started_at desc, id limit ?",
            (*values, query.limit),
        )
        return [row_of(row) for row in found]

    def orphaned(self) -> list[Row]:
        found = self._read(
            f"select {COLUMNS}, {LAST_SEQ} from episodes where status = 'running' and origin = 'server' and owner != ?",
            (self.owner,),
        )
        return [row_of(row) for row in found]

    def heartbeat(self) -> None:
        """The claim on the file says so."""

    def leaderboard(self) -> list[dict[str, Any]]:
        return standings(self._read(LEADERBOARD))

    def close(self) -> None:
        self.writer.close()
        with self._guard:
            for db in self._opened:
                db.close()
        self._claim.close()


def _claim(path: Path) -> IO[str]:
    """Held open as long as the store: what another server finds running there would not be left over."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        claim = open(path.with_name(path.name + ".lock"), "w")  # noqa: SIM115
    except OSError as error:
        raise BadInput(f"The store {path} cannot be opened: {error.strerror}.") from None
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        claim.close()
        raise BadInput(f"Another server uses the store {path}; give this one a --store of its own.") from None
    return claim


def _next(db: sqlite3.Connection, episode_id: str) -> int:
    found = db.execute("select coalesce(max(seq), -1) + 1 from events where episode_id = ?", (episode_id,))
    return int(found.fetchone()[0])


def _begin(db: sqlite3.Connection, row: Row) -> None:
    marks = ", ".join("?" * 15)
    added = db.execute(f"insert or ignore into episodes ({COLUMNS}) values ({marks})", values_of(row))
    if not added.rowcount and _next(db, row.episode_id):
        raise EpisodeClosed(f"There is already an episode {row.episode_id}.")


def _append(db: sqlite3.Connection, event: StoredEvent) -> bool:
    expected = _next(db, event.episode_id)
    if event.seq < expected:
        return False
    if event.seq > expected:
        raise SequenceGap(expected)
    found = db.execute("select status from episodes where id = ?", (event.episode_id,)).fetchone()
    if found is None or found[0] != "running":
        raise EpisodeClosed(f"Episode {event.episode_id} is not running.")
    db.execute("insert into events values (?, ?, ?)", (event.episode_id, event.seq, event.body))
    if event.last:
        _finish(db, event)
    return True


def _finish(db: sqlite3.Connection, event: StoredEvent) -> None:
    status, returns, text = outcome(event)
    first, second = returns or (None, None)
    db.execute(
        "update episodes set status = ?, ended_at = ?, return0 = ?, return1 = ?, text = ? where id = ?",
        (status, event.event.ts, first, second, text, event.episode_id),
    )


def _not_too_many(rows: Iterable[tuple[bytes]]) -> list[bytes]:
    """As many as have place in memory; the others are not read at all."""
    bodies, held = [], 0
    for (body,) in rows:
        bodies.append(body)
        held += len(body)
        if held >= READ:
            break
    return bodies
