"""Stores of other versions, and backups: complete although they were taken under load."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from kibitz.core.errors import BadInput
from kibitz.live.episodes.janitor import OrphanSweeper
from kibitz.live.store.backup import back_up, migrate, restore
from kibitz.live.store.base import Query, StoreDamaged, open_store
from kibitz.live.store.schema import MIGRATIONS, VERSION
from kibitz.live.stream.bus import Bus
from tests.live.machines import Postgres
from tests.live.record import row, stored_events

FIRST_BUILD = Path(__file__).with_name("first_build.sql")
PLAYED, INTERRUPTED = "ep-26233327e822", "ep-61548328fd99"  # its episodes
STORES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.conformance)]
New = Callable[[str], str]


@pytest.fixture
def new(request: pytest.FixtureRequest, tmp_path: Path) -> New:
    """The URL of a new store of this kind."""
    count = 0

    def make(kind: str) -> str:
        nonlocal count
        count += 1
        if kind == "postgresql":
            postgres: Postgres = request.getfixturevalue("postgres")
            return postgres.fresh()
        return str(tmp_path / f"{count}.db")

    return make


def _first_build(path: str) -> str:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(FIRST_BUILD.read_text(encoding="utf-8"))
    return path


def _set_version(url: str, version: int) -> None:
    with closing(sqlite3.connect(url)) as db, db:
        db.execute("update store_version set version = ?", (version,))


def test_a_store_of_the_first_build_is_migrated_when_opened(tmp_path: Path) -> None:
    store = open_store(_first_build(str(tmp_path / "a.db")))
    assert store.migrated == (1, VERSION)
    found = store.episode(PLAYED)
    assert found is not None and (found.status, found.returns, found.last_seq) == ("ended", (15.0, 6.0), 20)
    assert {one["player"] for one in store.leaderboard()} == {"bayes", "partner:conceder"}
    OrphanSweeper(Bus(store), ()).sweep()
    closed = store.episode(INTERRUPTED)
    assert closed is not None and (closed.status, closed.last_seq) == ("interrupted", 2)
    store.mark_verified(PLAYED)  # needs a table of the second version
    store.close()
    again = open_store(str(tmp_path / "a.db"))
    assert again.migrated == (VERSION, VERSION)
    again.close()


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _first_build(str(tmp_path / "a.db"))
    monkeypatch.setattr("kibitz.live.store.schema.MIGRATIONS", (*MIGRATIONS, "create table new (x text); nonsense"))
    with pytest.raises(BadInput, match="cannot be opened"):
        open_store(path)
    monkeypatch.undo()
    with closing(sqlite3.connect(path)) as db:
        assert {name for (name,) in db.execute("select name from sqlite_master where type = 'table'")} == {
            "episodes", "events",
        }  # fmt: skip
    open_store(path).close()


def test_a_newer_store_is_refused_with_a_sentence_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    open_store(str(path)).close()
    _set_version(str(path), VERSION + 1)
    before = path.read_bytes()
    sentence = (
        f"The store has schema version {VERSION + 1}, but this kibitz knows only version {VERSION}; upgrade kibitz."
    )
    for use in (open_store, migrate):
        with pytest.raises(BadInput) as refused:
            use(str(path))
        assert str(refused.value) == sentence
    assert path.read_bytes() == before


def test_a_server_notices_that_another_version_has_migrated_its_store(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "a.db"))
    store.begin(row())
    _set_version(str(tmp_path / "a.db"), VERSION + 1)
    with pytest.raises(StoreDamaged, match="upgrade kibitz"):
        store.check()
    with pytest.raises(StoreDamaged, match="upgrade kibitz"):
        store.append(stored_events()[0])
    store.close()


@pytest.mark.conformance
def test_a_postgresql_store_of_the_first_build_is_migrated_and_a_newer_one_refused(postgres: Postgres) -> None:
    import psycopg

    from kibitz.live.store.postgres import DIALECT

    url = postgres.fresh()
    with psycopg.connect(url) as db:
        db.execute(MIGRATIONS[0].format(**DIALECT))  # type: ignore[call-overload]
    with pytest.raises(BadInput, match="kibitz store migrate"):
        back_up(url, "unused.db")
    assert migrate(url)["version_before"] == 1
    open_store(url).close()
    with psycopg.connect(url) as db:
        db.execute("update store_version set version = 99")
    with pytest.raises(BadInput, match="has schema version 99, but this kibitz"):
        open_store(url)


@pytest.mark.parametrize("kind", STORES)
def test_a_backup_taken_under_load_restores_to_a_complete_store(kind: str, new: New, tmp_path: Path) -> None:
    source, targets = new(kind), [new("sqlite"), new(kind)]
    store = open_store(source)
    store.load(row("ep-done"), stored_events("ep-done"))
    stop = threading.Event()
    committed = {f"ep-{i}": 0 for i in range(4)}

    def play(name: str) -> None:
        store.begin(row(name, owner=store.owner))
        for one in stored_events(name, steps=5000):
            store.append(one)
            committed[name] += 1
            if stop.is_set():
                return

    threads = [threading.Thread(target=play, args=(name,)) for name in committed]
    for thread in threads:
        thread.start()
    while min(committed.values()) < 5:
        threads[0].join(0.001)
    before = dict(committed)
    copied = back_up(source, str(tmp_path / "backup.db"))
    stop.set()
    for thread in threads:
        thread.join()
    assert (tmp_path / "backup.db").stat().st_mode & 0o777 == 0o600, "only its owner reads private values"
    assert copied["episodes"] == 5 and copied["events"] >= 7 + sum(before.values())
    for target in targets:
        assert restore(str(tmp_path / "backup.db"), target)["events"] == copied["events"]
        restored = open_store(target)
        assert restored.events("ep-done", -1) == store.events("ep-done", -1)
        sweeper = OrphanSweeper(Bus(restored), ())
        for _ in range(2):  # a shared store needs two sweeps
            sweeper.sweep()
        for name, least in before.items():
            bodies, original = restored.events(name, -1, 10_000), store.events(name, -1, 10_000)
            assert len(bodies) > least, "what was committed before the backup is in it"
            assert bodies[:-1] == original[: len(bodies) - 1], "and nothing is missing in between"
        assert {one.status for one in restored.episodes(Query())} == {"ended", "interrupted"}
        restored.close()
    store.close()
    assert {path.name for path in tmp_path.iterdir() if path.name.startswith(".")} == set(), "nothing is left over"


@pytest.mark.conformance
def test_a_backup_moves_a_store_from_sqlite_to_postgresql(postgres: Postgres, tmp_path: Path) -> None:
    url = postgres.fresh()
    back_up(_first_build(str(tmp_path / "a.db")), str(tmp_path / "backup.db"))
    assert restore(str(tmp_path / "backup.db"), url)["events"] == 23
    store = open_store(url)
    found = store.episode(PLAYED)
    assert found is not None and (found.returns, found.last_seq) == ((15.0, 6.0), 20)
    store.close()
    with pytest.raises(BadInput, match="holds 2 episodes already"):
        restore(str(tmp_path / "backup.db"), url)


def test_a_backup_never_replaces_a_file_and_refuses_what_is_no_store(tmp_path: Path) -> None:
    path, text = str(tmp_path / "a.db"), tmp_path / "notes.txt"
    open_store(path).close()
    text.write_text("not a database, but long enough to look like something\n" * 100)
    for name, call in {
        "exists already": lambda: back_up(path, str(text)),
        "There is no store": lambda: back_up(str(tmp_path / "b.db"), str(tmp_path / "c.db")),
        "cannot be copied": lambda: restore(str(text), str(tmp_path / "c.db")),
        "No such file": lambda: back_up(path, str(tmp_path / "none" / "c.db")),
    }.items():
        with pytest.raises(BadInput, match=name):
            call()
    with pytest.raises(BadInput, match="exists already"):
        restore(path, path)
    with pytest.raises(BadInput, match="There is no store"):
        migrate(str(tmp_path / "b.db"))
    assert {one.name for one in tmp_path.iterdir()} == {"a.db", "a.db.lock", "notes.txt"}
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("insert into events values ('ep-1', 3, x'00')")
    with pytest.raises(BadInput, match="ep-1 has a gap"):
        back_up(path, str(tmp_path / "c.db"))
