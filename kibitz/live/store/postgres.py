"""Episodes in PostgreSQL, for several servers. Needs the extra `scale`."""

# mypy must also pass where that extra is not installed
# mypy: disallow-subclassing-any=False

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Generator, Iterable
from typing import Any

from kibitz.core.errors import BadInput
from kibitz.live.store.base import MAX_READ_BYTES, Row, StoreDamaged, StoreUnavailable
from kibitz.live.store.schema import WrongVersion, migrate
from kibitz.live.store.sql import Store, run_jobs

try:
    import psycopg
except ImportError:  # pragma: no cover  (the extra is not installed)
    raise BadInput("PostgreSQL needs the extra `scale`: pip install 'kibitz[scale]'.") from None

MAX_STATEMENT_SECONDS = 10.0  # includes waiting for locks; PostgreSQL itself cancels the statement
SILENCE_SECONDS = 2.0  # beyond the statement's limit, before the server counts as frozen
CONNECT_SECONDS = 5
LIVENESS_LOCK = 0x6B696269  # first key of the advisory locks that running servers hold
SCHEMA_LOCK = 0x6B69626A  # advisory lock: `create table if not exists` fails if two servers run it at once
# PostgreSQL notices within half a minute that a server's machine is gone
KEEPALIVES = ("set tcp_keepalives_idle = 10", "set tcp_keepalives_interval = 5", "set tcp_keepalives_count = 3")
DIALECT = {"id": 'text collate "C"', "real": "double precision", "bytes": "bytea", "options": ""}
# at least one event, then as many as fit; the others do not leave PostgreSQL
SELECT_EVENTS = """
select body from (
  select seq, body, sum(length(body)) over (order by seq) - length(body) as before from (
    select seq, body from events where episode_id = ? and seq > ? order by seq limit ?) as next) as counted
where before < ? order by seq
"""


class ServerUnresponsive(psycopg.OperationalError):
    """PostgreSQL has sent nothing for so long that it cannot even cancel its own statement."""


UNAVAILABLE = (psycopg.OperationalError, psycopg.InterfaceError)
DAMAGED = (psycopg.ProgrammingError, psycopg.InternalError)  # no such table, no permission, a damaged index
TIMEOUTS = (
    ServerUnresponsive,
    psycopg.errors.QueryCanceled,
    psycopg.errors.ConnectionTimeout,
)  # a retry would take as long


class Cursor(psycopg.Cursor[tuple[Any, ...]]):
    """Takes SQLite's placeholder `?`, which our statements use."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        return super().execute(query.replace("?", "%s"), params, **options)

    def executemany(self, query: Any, params_seq: Iterable[Any], **options: Any) -> None:
        super().executemany(query.replace("?", "%s"), params_seq, **options)


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """Gives up on a frozen server. Its kernel still answers, so TCP timeouts never fire."""

    silence_seconds = MAX_STATEMENT_SECONDS + SILENCE_SECONDS

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **options: Any) -> Any:
        return super().wait(self._limited(gen), *args, **options)

    def _limited(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """psycopg's own generator, which it polls ten times a second, with a limit on silence."""
        heard = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    heard = time.monotonic()
                elif time.monotonic() - heard > self.silence_seconds:
                    self.close()
                    raise ServerUnresponsive(f"PostgreSQL has not responded for {self.silence_seconds:g} s")
                wanted = gen.send(ready)
        except StopIteration as done:
            return done.value


class PostgresStore(Store):
    """Each server holds an advisory lock while it runs; a server that can take another's lock knows it is gone.

    The lock belongs to the session. When PostgreSQL restarts, the lock is free until the next `heartbeat` takes it
    again, so finding it free once proves nothing.
    """

    name = "postgresql"
    shared = True
    row_lock = "for update"  # two servers must not both append the next event
    select_columns = """
        select attname from pg_attribute where attrelid = to_regclass(?) and attnum > 0 and not attisdropped"""

    def __init__(self, url: str, store_timeout: float = 10.0) -> None:
        self._url, self._statement_seconds = url, min(max(store_timeout, 1.0), MAX_STATEMENT_SECONDS)
        self._local = threading.local()
        self._connections: list[Connection] = []
        self._guard = threading.Lock()
        self._db: Connection | None = None
        super().__init__(store_timeout, UNAVAILABLE)
        try:
            self.migrated = self._transact([self._migrate])[0]
            self.check()
        except (psycopg.Error, StoreUnavailable) as error:
            self.close()
            if isinstance(error, WrongVersion):
                raise BadInput(str(error)) from None
            raise BadInput(f"The store cannot be opened: {_first_line(error)}") from None
        self.log_migration()

    def _migrate(self, db: Connection) -> tuple[int, int]:
        db.execute("select pg_advisory_xact_lock(?)", (SCHEMA_LOCK,))
        return migrate(db, DIALECT, self.select_columns)

    def _connect(self) -> Connection:
        db: Connection = Connection.connect(
            self._url, autocommit=True, connect_timeout=CONNECT_SECONDS, cursor_factory=Cursor
        )
        db.silence_seconds = self._statement_seconds + SILENCE_SECONDS
        db.execute("select set_config('statement_timeout', ?, false)", (f"{1000 * self._statement_seconds:.0f}",))
        with self._guard:
            self._connections = [known for known in self._connections if not known.closed] + [db]
        return db

    def _writing(self) -> Connection:
        if self._db is None or self._db.closed or self._db.broken:
            db = self._connect()
            # shared, because the session of a broken connection may hold the lock for a while
            db.execute("select pg_advisory_lock_shared(?, ?)", (LIVENESS_LOCK, _lock_key(self.owner)))
            for setting in KEEPALIVES:
                db.execute(setting)
            self._db = db
        return self._db

    def _transact(self, jobs: list[Callable[[Connection], Any]]) -> list[Any]:
        db = self._writing()
        try:
            with db.transaction():
                return run_jobs(db, jobs)
        except UNAVAILABLE:
            db.close()
            raise
        except DAMAGED as error:
            raise StoreDamaged(f"The store cannot be written: {_first_line(error)}") from None

    def _read(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """On this thread's own connection. Retries once on a new one, since PostgreSQL may have restarted.

        psycopg_pool would need the same retry and the same Connection, and after a restart its reconnect delay held
        reads up for 1.0 to 1.6 s, measured, instead of 0.05 to 0.3 s.
        """
        for attempt in (0, 1):
            try:
                if getattr(self._local, "db", None) is None or self._local.db.closed:
                    self._local.db = self._connect()
                return list(self._local.db.execute(query, values).fetchall())
            except UNAVAILABLE as error:
                if getattr(self._local, "db", None) is not None:
                    self._local.db.close()
                if attempt or isinstance(error, TIMEOUTS):
                    raise StoreUnavailable(f"The store cannot be read: {_first_line(error)}") from None
            except DAMAGED as error:
                raise StoreDamaged(f"The store cannot be read: {_first_line(error)}") from None
        raise AssertionError("unreachable")

    def events(self, episode_id: str, since: int, limit: int = 1000, max_bytes: int = MAX_READ_BYTES) -> list[bytes]:
        found = self._read(SELECT_EVENTS, (episode_id, since, limit, max_bytes))
        return [bytes(body) for (body,) in found]

    def orphaned(self) -> list[Row]:
        others = self._rows("where status = 'running' and origin = 'server' and owner != ?", (self.owner,))
        gone = {owner for owner in {row.owner for row in others} if not self._is_alive(owner)}
        return [row for row in others if row.owner in gone]

    def heartbeat(self) -> None:
        self.writer.run(lambda db: None)

    def _is_alive(self, owner: str) -> bool:
        taken = self._read("select pg_try_advisory_lock(?, ?)", (LIVENESS_LOCK, _lock_key(owner)))[0][0]
        if taken:
            self._read("select pg_advisory_unlock(?, ?)", (LIVENESS_LOCK, _lock_key(owner)))
        return not taken

    def close(self) -> None:
        self.writer.close()
        with self._guard:
            for db in self._connections:
                db.close()


def _lock_key(owner: str) -> int:
    """A signed 32-bit number, as advisory locks require."""
    return zlib.crc32(owner.encode()) - 2**31


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
