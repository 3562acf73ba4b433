"""Episodes in one SQLite file, in WAL mode: one thread writes, any thread reads."""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from kibitz.core.errors import BadInput
from kibitz.live.store.base import MAX_READ_BYTES, Row, StoreDamaged, StoreUnavailable
from kibitz.live.store.schema import WrongVersion, migrate
from kibitz.live.store.sql import Store, run_jobs

log = logging.getLogger("kibitz.live")
BUSY_SECONDS = 1.0  # that SQLite itself waits for another process's lock
INTEGRITY_SECONDS = 2.0  # for the check at the start, which reads hundreds of megabytes in that time
MAGIC = b"SQLite format 3\0"  # begins every database file
GONE = "The store's file was deleted or replaced; put it back, or restart the server."
CORRUPT = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
DIALECT = {"id": "text", "real": "real", "bytes": "blob", "options": "without rowid"}


class SqliteStore(Store):
    """`synchronous=NORMAL`: a returned commit is in the file, even if the process is killed next."""

    name = "sqlite"
    shared = False
    select_columns = "select name from pragma_table_info(?)"

    def __init__(self, path: Path, store_timeout: float = 10.0) -> None:
        self._path = _resolved(path)
        self._lock_file = _lock(self._path)
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._guard = threading.Lock()
        self._file = -1
        self._corruption = ""  # reported by SQLite itself; only a restart with a repaired file clears it
        try:
            self._db = self._connect("rwc")
            # To close this while SQLite uses the file would release SQLite's own locks: it stays open to the end.
            self._file = os.open(self._path, os.O_RDONLY)
            opened = os.fstat(self._file)
            self._identity = opened.st_dev, opened.st_ino  # not reused while the file is open
            if opened.st_nlink > 1:
                raise StoreDamaged("it has a second name (a hard link), which SQLite does not support")
            _check_integrity(self._db)
            self.migrated = self._transact([lambda db: migrate(db, DIALECT, self.select_columns)])[0]
            self._check()
        except (sqlite3.Error, OSError, StoreUnavailable) as error:
            self._close_files()
            if isinstance(error, WrongVersion):
                raise BadInput(str(error)) from None
            reason = str(error).rstrip(".")
            raise BadInput(f"The store {path} cannot be opened: {reason}; give a different --store.") from None
        super().__init__(store_timeout, (sqlite3.OperationalError,))
        self.log_migration()

    def _connect(self, mode: str = "rw") -> sqlite3.Connection:
        """Without `c` in `mode`, a deleted file is not replaced by an empty one."""
        uri = f"{self._path.as_uri()}?mode={mode}"
        db = sqlite3.connect(uri, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=True)
        db.execute("pragma journal_mode=wal")
        db.execute("pragma synchronous=normal")
        with self._guard:
            self._connections.append(db)
        return db

    def _cursor(self, query: str, values: tuple[Any, ...]) -> sqlite3.Cursor:
        """On this thread's own connection."""
        self._check_file()
        if not hasattr(self._local, "db"):
            self._local.db = self._connect()
        cursor: sqlite3.Cursor = self._local.db.execute(query, values)
        return cursor

    def _read(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        try:
            return self._cursor(query, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise self._problem(error, "read") from None

    def _transact(self, jobs: list[Callable[[sqlite3.Connection], Any]]) -> list[Any]:
        self._check_file()
        db = self._db
        try:
            db.execute("begin immediate")
            results = run_jobs(db, jobs)
            db.execute("commit")
        except BaseException as error:
            if db.in_transaction:
                db.execute("rollback")
            if isinstance(error, sqlite3.DatabaseError) and _is_damage(error):
                raise self._problem(error, "written") from None
            raise
        return results

    def _check(self) -> None:
        """SQLite reads from its cache, so look at the file itself."""
        if self._corruption:
            raise StoreDamaged(self._corruption)
        self._check_file()
        if os.pread(self._file, len(MAGIC), 0) != MAGIC:
            raise StoreDamaged("The store's file is damaged: it does not begin as a SQLite file does.")
        super()._check()

    def _check_file(self) -> None:
        """Fails if writing would go to a file that has lost its name: SQLite itself would not notice."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            raise StoreDamaged(GONE) from None
        except OSError as error:
            raise StoreUnavailable(f"The store cannot be reached: {error.strerror}.") from None
        if (found.st_dev, found.st_ino) != self._identity:
            raise StoreDamaged(GONE)

    def _problem(self, error: sqlite3.DatabaseError, done: str) -> StoreUnavailable:
        sentence = f"The store cannot be {done}: {error}"
        if not _is_damage(error):
            return StoreUnavailable(sentence)
        if _code(error) in CORRUPT:
            self._corruption = sentence
        return StoreDamaged(sentence)

    def events(self, episode_id: str, since: int, limit: int = 1000, max_bytes: int = MAX_READ_BYTES) -> list[bytes]:
        query = "select body from events where episode_id = ? and seq > ? order by seq limit ?"
        bodies: list[bytes] = []
        size = 0
        try:
            for (body,) in self._cursor(query, (episode_id, since, limit)):
                bodies.append(body)
                size += len(body)
                if size >= max_bytes:
                    break
        except sqlite3.DatabaseError as error:
            raise self._problem(error, "read") from None
        return bodies

    def orphaned(self) -> list[Row]:
        return self._rows("where status = 'running' and origin = 'server' and owner != ?", (self.owner,))

    def heartbeat(self) -> None:
        """Not needed: the lock file admits only one server."""

    def close(self) -> None:
        self.writer.close()
        self._close_files()

    def _close_files(self) -> None:
        with self._guard:
            for db in self._connections:
                db.close()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._lock_file.close()


def _code(error: sqlite3.DatabaseError) -> int:
    """SQLite's primary error code; 0 if the error did not come from SQLite."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether waiting cannot help. SQLITE_ERROR: no such table or column."""
    return _code(error) in (*CORRUPT, sqlite3.SQLITE_ERROR)


def _check_integrity(db: sqlite3.Connection) -> None:
    """Looks for damaged pages; of a large file, as many as fit into INTEGRITY_SECONDS."""
    limit = threading.Timer(INTEGRITY_SECONDS, db.interrupt)
    limit.start()
    try:
        found = db.execute("pragma quick_check(1)").fetchone()[0]
    except sqlite3.OperationalError as error:
        if _code(error) != sqlite3.SQLITE_INTERRUPT:
            raise
        log.info("checked a part of the store, for %g s", INTEGRITY_SECONDS)
    else:
        if found != "ok":
            raise StoreDamaged(f"it is damaged ({' '.join(found.split())})")
    finally:
        limit.cancel()
        limit.join()


def _resolved(path: Path) -> Path:
    """The file itself, whatever links lead to it: the lock must be the same for all of them."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        raise BadInput(f"The store {path} cannot be opened: its links form a loop.") from None


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
