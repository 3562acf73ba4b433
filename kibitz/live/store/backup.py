"""Backups: a store, as of one moment, in one SQLite file, while servers go on writing to it; and back.

A backup is itself a store, which `kibitz serve --store` opens. So it also moves a store from SQLite to PostgreSQL, and
back.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from kibitz.core.errors import BadInput
from kibitz.core.system import interrupt
from kibitz.core.system.paths import named
from kibitz.live.store.base import POSTGRES, StoreUnavailable, open_store, sqlite_path
from kibitz.live.store.schema import SELECT_VERSION, TABLES, check_version
from kibitz.live.store.sql import Store

CHUNK_ROWS = 1000  # copied at once
# an episode whose events are not 0, 1, 2, ...
INCOMPLETE = """
select episode_id from events left join episodes on id = episode_id
group by episode_id having min(seq) != 0 or max(seq) + 1 != count(*) or max(id) is null limit 1
"""
Copied = dict[str, Any]
Advance = Callable[[int], None]  # by a number of rows


def back_up(url: str, file: str, advance: Advance = lambda rows: None) -> Copied:
    """Writes a new file; BadInput if it exists or the store cannot be copied."""
    target = _new_file(file)
    with _folder(target) as folder:
        copy = _to_file(url, folder / "copy.db", advance)
        found = _complete(copy, url)
        copy.chmod(0o600)  # it holds private values and drivers' keys
        copy.rename(target)
    return {"store": _shown(url), "file": str(target), **found}


def restore(file: str, url: str, advance: Advance = lambda rows: None) -> Copied:
    """Fills a new or empty store from a backup, which an older kibitz may have written."""
    backup = named(file)
    shared = url.startswith(POSTGRES)
    with _folder(Path(tempfile.gettempdir(), "x") if shared else _new_file(sqlite_path(url))) as folder:
        copy = _to_file(str(backup), folder / "copy.db", advance)
        open_store(str(copy)).close()  # migrates it
        found = _complete(copy, file)
        if shared:
            _fill(url, copy, advance)
        else:
            copy.rename(_new_file(sqlite_path(url)))
    return {"file": str(backup), "store": _shown(url), **found}


def migrate(url: str) -> Copied:
    """Opens the store, which brings it to the current schema version."""
    if not url.startswith(POSTGRES) and not named(sqlite_path(url)).is_file():
        raise BadInput(f"There is no store {url}.")
    store = open_store(url)
    store.close()
    return {"store": _shown(url), "version_before": store.migrated[0], "version": store.migrated[1]}


def _shown(url: str) -> str:
    """Without user and password."""
    return url.split("@")[-1]


def _new_file(path: str) -> Path:
    target = named(path)
    if target.exists():
        raise BadInput(f"{path} exists already; give the name of a new file.")
    return target


@contextmanager
def _folder(beside: Path) -> Iterator[Path]:
    """A temporary folder on the same disk as the target, so that renaming completes it in one step."""
    try:
        with (
            tempfile.TemporaryDirectory(prefix=".kibitz-store-", dir=beside.parent) as folder,
            interrupt.rescue(lambda: shutil.rmtree(folder)),
        ):
            yield Path(folder)
    except OSError as error:
        raise BadInput(f"{beside} cannot be written: {error.strerror}; give another name.") from None
    except sqlite3.OperationalError as error:  # a full disk, for example
        raise BadInput(f"{beside} cannot be written: {error}; nothing was kept.") from None


def _to_file(url: str, copy: Path, advance: Advance) -> Path:
    """The whole store as of one moment."""
    if not url.startswith(POSTGRES):
        source = named(sqlite_path(url))
        if not source.is_file():
            raise BadInput(f"There is no store {url}.")
        with closing(_read_only(source)) as here, closing(sqlite3.connect(copy)) as there:
            try:
                here.backup(there)  # in one step: in several, a writer could make it begin anew each time
            except sqlite3.DatabaseError as error:
                raise BadInput(f"The store {url} cannot be copied: {error}.") from None
        return copy
    store = open_store(str(copy))
    try:
        with _postgres_snapshot(url) as rows:
            _insert(store, rows, advance)
    finally:
        store.close()
    return copy


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False
    )  # the writer reads it


@contextmanager
def _postgres_snapshot(url: str) -> Iterator[Callable[[str], Iterator[Any]]]:
    """The rows of a table, as of one moment for all tables."""
    from kibitz.live.store.postgres import Connection  # first: it says which extra is missing

    import psycopg  # isort: skip

    try:
        with Connection.connect(url) as db:
            db.isolation_level, db.read_only = psycopg.IsolationLevel.REPEATABLE_READ, True
            check_version(db.execute(SELECT_VERSION).fetchall()[0][0] or 0)

            def rows(table: str) -> Iterator[Any]:
                with db.cursor(name="backup") as cursor:  # in parts: a store may not fit into memory
                    cursor.itersize = CHUNK_ROWS
                    yield from cursor.execute(f"select {', '.join(TABLES[table])} from {table}")

            yield rows
    except psycopg.errors.UndefinedTable:
        raise BadInput("That database is no kibitz store, or an old one; run `kibitz store migrate`.") from None
    except (psycopg.Error, StoreUnavailable) as error:
        raise BadInput(f"The store cannot be copied: {str(error).strip().splitlines()[0]}") from None


def _fill(url: str, copy: Path, advance: Advance) -> None:
    store = open_store(url)
    try:
        with closing(_read_only(copy)) as db:
            _insert(store, lambda table: iter(db.execute(f"select {', '.join(TABLES[table])} from {table}")), advance)
    finally:
        store.close()


def _insert(store: Store, rows: Callable[[str], Iterator[Any]], advance: Advance) -> None:
    """In one transaction: all or nothing."""

    def job(db: Any) -> None:
        if held := db.execute("select count(*) from episodes").fetchone()[0]:
            raise BadInput(f"The store holds {held} episodes already; give an empty one.")
        for table, columns in TABLES.items():
            marks = ", ".join("?" * len(columns))
            source = rows(table)
            while chunk := list(islice(source, CHUNK_ROWS)):
                db.cursor().executemany(f"insert into {table} ({', '.join(columns)}) values ({marks})", chunk)
                advance(len(chunk))

    try:
        store.writer.run(job)
    except StoreUnavailable as error:
        raise BadInput(f"The store cannot be filled: {error}; nothing was kept.") from None


def _complete(copy: Path, url: str) -> Copied:
    """Counts what the copy holds. BadInput if an episode has a gap: the store itself was damaged."""
    with closing(sqlite3.connect(copy)) as db:
        try:
            if gap := db.execute(INCOMPLETE).fetchone():
                raise BadInput(f"The store {_shown(url)} is damaged: episode {gap[0]} has a gap. Nothing was kept.")
            counts = {
                table: db.execute(f"select count(*) from {table}").fetchone()[0] for table in ("episodes", "events")
            }
        except sqlite3.DatabaseError as error:
            raise BadInput(f"{_shown(url)} is no kibitz store: {error}.") from None
    return {**counts, "bytes": copy.stat().st_size}
