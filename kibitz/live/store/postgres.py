"""Episodes in PostgreSQL, for several servers. Needs the extra `scale`."""

# types are checked without that extra, too
# mypy: disallow-subclassing-any=False

from __future__ import annotations

import secrets
import threading
import time
import zlib
from collections.abc import Callable, Generator, Iterable
from typing import Any

from kibitz.core.errors import BadInput
from kibitz.live.store.base import READ, EpisodeClosed, Query, Row, SequenceGap, StoreUnavailable, outcome
from kibitz.live.store.sql import COLUMNS, LAST_SEQ, LEADERBOARD, conditions, row_of, standings, values_of
from kibitz.live.store.stored_event import StoredEvent
from kibitz.live.store.writer import Writer

try:
    import psycopg
except ImportError:  # pragma: no cover  (the extra is not installed)
    raise BadInput("PostgreSQL needs the extra `scale`: pip install 'kibitz[scale]'.") from None

STATEMENT = 10.0  # seconds, at most, that PostgreSQL may take for one statement; waiting for a lock is part of it
SILENCE = 2.0  # seconds more until one that says nothing at all is taken for frozen
CONNECT = 5  # seconds to be let in


class Late(psycopg.OperationalError):
    """Nothing has come from PostgreSQL for too long: it cannot even end its own statement."""


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """One that does not wait for a frozen server: its kernel still answers, so TCP never notices."""

    patience = STATEMENT + SILENCE

    def wait(self, gen: Generator[Any, Any, Any], *more: Any, **named: Any) -> Any:
        return super().wait(self._heard(gen), *more, **named)

    def _heard(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """psycopg's own steps, for as long as something moves; it asks for the next ten times a second."""
        heard = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    heard = time.monotonic()
                elif time.monotonic() - heard > self.patience:
                    self.close()
                    raise Late(f"PostgreSQL has said nothing for {self.patience:g} s")
                wanted = gen.send(ready)
        except StopIteration as done:
            return done.value


AWAY = (psycopg.OperationalError, psycopg.InterfaceError)
SLOW = (Late, psycopg.errors.QueryCanceled, psycopg.errors.ConnectionTimeout)  # trying again would take as long
# events that have place in memory, and at least one; the others do not leave PostgreSQL
NOT_TOO_MANY = """
select body from (
  select seq, body, sum(length(body)) over (order by seq) - length(body) as before from (
    select seq, body from events where episode_id = %s and seq > %s order by seq limit %s) as next) as counted
where before < %s order by seq
"""
ALIVE = 0x6B696269  # first half of the advisory locks by which servers show that they live
# a server whose machine is gone says no goodbye: PostgreSQL notices within half a minute
NOTICED = ("set tcp_keepalives_idle = 10", "set tcp_keepalives_interval = 5", "set tcp_keepalives_count = 3")
SCHEMA = """
create table if not exists episodes (
  id text collate "C" primary key, game text not null, player0 text not null, player1 text not null,
  status text not null, origin text not null, owner text not null, open integer not null,
  started_at double precision not null, ended_at double precision, return0 double precision,
  return1 double precision, text text not null default '', about text not null, secret text not null
);
create index if not exists episodes_by_start on episodes (started_at desc, id);
create index if not exists episodes_by_status on episodes (status);
create table if not exists events (
  episode_id text collate "C" not null, seq integer not null, body bytea not null, primary key (episode_id, seq)
);
"""


class PostgresStore:
    """A server holds an advisory lock while it lives; whoever can take it knows that the server is gone.

    The lock goes with the session, so a PostgreSQL that restarts frees it until `heartbeat` takes it again:
    one look is no proof.
    """

    name = "postgresql"
    shared = True

    def __init__(self, url: str, patience: float = 10.0) -> None:
        self._url, self._statement = url, min(max(patience, 1.0), STATEMENT)
        self.owner = secrets.token_hex(4)
        self._local = threading.local()
        self._opened: list[Connection] = []
        self._guard = threading.Lock()
        self._db: Connection | None = None
        try:
            self._transact([lambda db: db.execute(SCHEMA)])
        except psycopg.Error as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise BadInput(f"The store cannot be opened: {reason}") from None
        self.writer: Writer[Connection] = Writer(self._transact, AWAY, patience)

    def _connect(self) -> Connection:
        db: Connection = Connection.connect(self._url, autocommit=True, connect_timeout=CONNECT)
        db.patience = self._statement + SILENCE
        db.execute("select set_config('statement_timeout', %s, false)", (f"{1000 * self._statement:.0f}",))
        with self._guard:
            self._opened = [known for known in self._opened if not known.closed] + [db]
        return db

    def _transact(self, jobs: list[Callable[[Connection], Any]]) -> list[Any]:
        if self._db is None or self._db.closed or self._db.broken:
            db = self._connect()
            # shared: after a broken connection the old session may hold it for a while
            db.execute("select pg_advisory_lock_shared(%s, %s)", (ALIVE, _mark(self.owner)))
            for limit in NOTICED:
                db.execute(limit)
            self._db = db
        db = self._db
        results: list[Any] = []
        try:
            with db.transaction():
                for job in jobs:
                    try:
                        results.append(job(db))
                    except (SequenceGap, EpisodeClosed) as refused:  # that job's business; it has written nothing
                        results.append(refused)
        except AWAY:
            db.close()
            raise
        return results

    def _read(self, query: str, values: Iterable[Any] = ()) -> list[Any]:
        """Tried again once on a fresh connection: the old one may have died with the last server. Not if it is slow."""
        for attempt in (0, 1):
            try:
                if getattr(self._local, "db", None) is None or self._local.db.closed:
                    self._local.db = self._connect()
                return list(self._local.db.execute(query, tuple(values)).fetchall())
            except AWAY as error:
                if getattr(self._local, "db", None) is not None:
                    self._local.db.close()
                if attempt or isinstance(error, SLOW):
                    reason = str(error).strip().splitlines()
                    raise StoreUnavailable(
                        f"The store cannot be read: {reason[0] if reason else 'it is gone'}"
                    ) from None
        raise AssertionError("unreachable")

    def begin(self, row: Row) -> None:
        self.writer.run(lambda db: _begin(db, row))

    def append(self, event: StoredEvent) -> bool:
        _ = event.body  # serialised here, not in the one thread that all wait for
        added: bool = self.writer.run(lambda db: _append(db, event))
        return added

    def load(self, row: Row, events: Iterable[StoredEvent]) -> None:
        listed = list(events)

        def job(db: Connection) -> None:
            _begin(db, row)
            if _next(db, row.episode_id):
                raise EpisodeClosed(f"There is already an episode {row.episode_id}.")
            with db.cursor() as cursor:
                rows = [(row.episode_id, event.seq, event.body) for event in listed]
                cursor.executemany("insert into events values (%s, %s, %s)", rows)
            _finish(db, listed[-1])

        self.writer.run(job)

    def events(self, episode_id: str, since: int, limit: int = 1000) -> list[bytes]:
        found = self._read(NOT_TOO_MANY, (episode_id, since, limit, READ))
        return [bytes(body) for (body,) in found]

    def episode(self, episode_id: str) -> Row | None:
        found = self._read(f"select {COLUMNS}, {LAST_SEQ} from episodes where id = %s", (episode_id,))
        return row_of(found[0]) if found else None

    def episodes(self, query: Query) -> list[Row]:
        where, values = conditions(query, "%s")
        found = self._read(
            f"select {COLUMNS}, {LAST_SEQ} from episodes {where} order by started_at desc, id limit %s",
            (*values, query.limit),
        )
        return [row_of(row) for row in found]

    def orphaned(self) -> list[Row]:
        found = self._read(f"select {COLUMNS}, {LAST_SEQ} from episodes where status = 'running' and origin = 'server'")
        others = [row for row in map(row_of, found) if row.owner != self.owner]
        gone = {owner for owner in {row.owner for row in others} if not self._lives(owner)}
        return [row for row in others if row.owner in gone]

    def heartbeat(self) -> None:
        self.writer.run(lambda db: None)

    def _lives(self, owner: str) -> bool:
        taken = self._read("select pg_try_advisory_lock(%s, %s)", (ALIVE, _mark(owner)))[0][0]
        if taken:
            self._read("select pg_advisory_unlock(%s, %s)", (ALIVE, _mark(owner)))
        return not taken

    def leaderboard(self) -> list[dict[str, Any]]:
        return standings(self._read(LEADERBOARD))

    def close(self) -> None:
        self.writer.close()
        with self._guard:
            for db in self._opened:
                db.close()


def _mark(owner: str) -> int:
    """A signed number of 32 bits, as advisory locks want it."""
    return zlib.crc32(owner.encode()) - 2**31


def _next(db: Connection, episode_id: str) -> int:
    found = db.execute("select coalesce(max(seq), -1) + 1 from events where episode_id = %s", (episode_id,)).fetchone()
    return int(found[0]) if found else 0


def _begin(db: Connection, row: Row) -> None:
    marks = ", ".join(["%s"] * 15)
    added = db.execute(f"insert into episodes ({COLUMNS}) values ({marks}) on conflict (id) do nothing", values_of(row))
    if not added.rowcount and _next(db, row.episode_id):
        raise EpisodeClosed(f"There is already an episode {row.episode_id}.")


def _append(db: Connection, event: StoredEvent) -> bool:
    # the row is locked, so that two servers cannot both add the next event of an episode
    found = db.execute("select status from episodes where id = %s for update", (event.episode_id,)).fetchone()
    expected = _next(db, event.episode_id)
    if event.seq < expected:
        return False
    if event.seq > expected:
        raise SequenceGap(expected)
    if found is None or found[0] != "running":
        raise EpisodeClosed(f"Episode {event.episode_id} is not running.")
    db.execute("insert into events values (%s, %s, %s)", (event.episode_id, event.seq, event.body))
    if event.last:
        _finish(db, event)
    return True


def _finish(db: Connection, event: StoredEvent) -> None:
    status, returns, text = outcome(event)
    first, second = returns or (None, None)
    db.execute(
        "update episodes set status = %s, ended_at = %s, return0 = %s, return1 = %s, text = %s where id = %s",
        (status, event.event.ts, first, second, text, event.episode_id),
    )
