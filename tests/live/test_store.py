"""SQLite and PostgreSQL pass the same tests, even when locked, frozen or full."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from kibitz.core.errors import BadInput
from kibitz.live.store import sqlite
from kibitz.live.store.base import EpisodeClosed, Query, Row, SequenceGap, StoreDamaged, StoreUnavailable, open_store
from kibitz.live.store.readiness import Readiness
from kibitz.live.store.sql import Store
from kibitz.live.store.stored_event import StoredEvent
from tests.live.machines import Postgres, missing, wait_until
from tests.live.record import row, stored_events

Open = Callable[..., Store]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.conformance)])
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the same store; may be called again."""
    postgres: Postgres = request.getfixturevalue("postgres") if request.param == "postgresql" else None
    url = postgres.fresh() if postgres else str(tmp_path / "a.db")
    opened: list[Store] = []

    def run(store_timeout: float = 20.0) -> Store:
        opened.append(open_store(url, store_timeout))
        return opened[-1]

    yield run
    for store in opened:
        store.close()


def test_events_come_back_byte_for_byte_and_in_order(open_again: Open) -> None:
    store = open_again()
    store.begin(row())
    sent = stored_events()
    for one in sent:
        assert store.append(one)
    assert store.events("ep-1", -1) == [one.body for one in sent]
    assert store.events("ep-1", 2, limit=2) == [one.body for one in sent[3:5]]
    found = store.episode("ep-1")
    assert found is not None
    assert (found.status, found.returns, found.text, found.last_seq) == ("ended", (3.0, 1.0), "It is over.", 6)


def test_large_events_are_read_in_several_parts(open_again: Open) -> None:
    store = open_again()
    store.begin(row())
    first, second, *_ = stored_events()
    big = replace(second.event, payload={**second.event.payload, "text": "x" * 3_000_000})
    sent = [first, *(StoredEvent(replace(big, seq=seq)) for seq in range(1, 8))]
    for one in sent:
        store.append(one)
    found: list[bytes] = []
    parts = []
    while bodies := store.events("ep-1", len(found) - 1):
        found += bodies
        parts.append(len(bodies))
    assert found == [one.body for one in sent]
    assert parts == [4, 3, 1], "as many as begin within 8 MiB"


def test_duplicates_are_ignored_and_a_gap_names_the_expected_seq(open_again: Open) -> None:
    store = open_again()
    store.begin(row())
    sent = stored_events()
    assert store.append(sent[0])
    assert not store.append(sent[0])
    with pytest.raises(SequenceGap) as gap:
        store.append(sent[2])
    assert gap.value.expected == 1


def test_an_episode_that_is_over_or_unknown_accepts_no_events(open_again: Open) -> None:
    store = open_again()
    with pytest.raises(EpisodeClosed):
        store.append(stored_events()[0])
    store.load(row(), stored_events())
    last = stored_events(steps=6)[-1]
    with pytest.raises(EpisodeClosed):
        store.append(last)
    with pytest.raises(EpisodeClosed):
        store.begin(row())
    with pytest.raises(EpisodeClosed):
        store.load(row(), stored_events())


def test_concurrent_appends_keep_every_episode_complete(open_again: Open) -> None:
    store = open_again()

    def play(name: str) -> None:
        store.begin(row(name))
        for one in stored_events(name, steps=40):
            store.append(one)

    threads = [threading.Thread(target=play, args=(f"ep-{i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(len(store.events(f"ep-{i}", -1)) == 42 for i in range(8))
    assert store.writer.commits < 8 * 43, "commits of several threads were never grouped"


def test_episodes_are_listed_newest_first_in_pages_and_by_filter(open_again: Open) -> None:
    store = open_again()
    for i in range(7):
        store.begin(Row(f"ep-{i}", "cricket" if i % 2 else "deal_or_no_deal", ("bayes", "human"), float(i)))
    names: list[str] = []
    before = None
    while page := store.episodes(Query(limit=3, before=before)):
        names += [one.episode_id for one in page]
        before = (page[-1].started_at, page[-1].episode_id)
    assert names == [f"ep-{i}" for i in reversed(range(7))]
    assert {one.episode_id for one in store.episodes(Query(game="cricket"))} == {"ep-1", "ep-3", "ep-5"}
    assert store.episodes(Query(player="human", status="ended")) == []
    assert len(store.episodes(Query(player="human", status="running"))) == 7


def test_an_import_never_fills_an_episode_that_has_begun(open_again: Open) -> None:
    """Its id is public before its first event; the import would pass for what the server itself played."""
    store = open_again()
    store.begin(row())
    with pytest.raises(EpisodeClosed, match="already"):
        store.load(row(origin="import"), stored_events())
    assert store.leaderboard() == []
    for event in stored_events():
        assert store.append(event)


def test_the_leaderboard_counts_finished_episodes_of_both_seats(open_again: Open) -> None:
    store = open_again()
    for i in range(3):
        store.load(row(f"ep-{i}"), stored_events(f"ep-{i}"))
    store.begin(row("ep-running"))
    assert store.leaderboard() == [
        {
            "game": "deal_or_no_deal",
            "player": "bayes",
            "episodes": 3,
            "mean_return": 3.0,
            "wins": 3,
            "draws": 0,
            "fallback_episodes": 0,
        },
        {
            "game": "deal_or_no_deal",
            "player": "heuristic",
            "episodes": 3,
            "mean_return": 1.0,
            "wins": 0,
            "draws": 0,
            "fallback_episodes": 0,
        },
    ]


def test_a_player_that_the_fallback_played_for_does_not_lead_the_leaderboard(open_again: Open) -> None:
    store = open_again()
    for i, failing in enumerate(([], [0], [0, 0], [0, 0, 0])):
        name = f"ep-{i}"
        first, *_, last = (event.event for event in stored_events(name))
        kinds = [(0, "x") for _ in failing] + [(0, "")] * (3 - len(failing)) + [(1, "")]
        turns = [
            replace(first, seq=seq, type="decision", payload={"seat": seat, "fallback": why})
            for seq, (seat, why) in enumerate(kinds, 1)
        ]
        listed = [first, *turns, replace(last, seq=5)]
        players = ("llm:down", "bayes") if len(failing) == 3 else ("llm:shaky", "bayes")
        store.load(replace(row(name), players=players), [StoredEvent(event) for event in listed])
    found = {line["player"]: line for line in store.leaderboard()}
    assert list(found)[-1] == "llm:down"
    assert found["llm:down"]["episodes"] == 0 and found["llm:down"]["mean_return"] is None
    assert found["llm:down"]["fallback_episodes"] == 1
    assert found["llm:shaky"]["episodes"] == 2 and found["llm:shaky"]["fallback_episodes"] == 1
    assert found["bayes"]["episodes"] == 4 and found["bayes"]["fallback_episodes"] == 0
    against = {one["opponent"]: one for one in store.opponents("bayes")}
    assert against["llm:shaky"]["episodes"] == 3 and sum(one["episodes"] for one in against.values()) == 4


def test_an_episode_from_elsewhere_counts_once_it_is_verified(open_again: Open) -> None:
    store = open_again()
    for origin in ("import", "driver"):
        store.load(row(f"ep-{origin}", origin=origin), stored_events(f"ep-{origin}"))
    assert store.leaderboard() == []
    for _ in range(2):  # marking twice changes nothing
        store.mark_verified("ep-import")
    assert [line["episodes"] for line in store.leaderboard()] == [1, 1]
    found = {one.episode_id: one.verified for one in store.episodes(Query())}
    assert found == {"ep-import": True, "ep-driver": False}


def test_a_dead_servers_episodes_are_orphaned_and_a_drivers_are_not(open_again: Open) -> None:
    store = open_again()
    store.begin(row("ep-mine", owner=store.owner))
    store.begin(row("ep-elsewhere", origin="driver"))
    assert store.orphaned() == [], "its server is alive"
    store.close()
    again = open_again()
    wait_until(lambda: [one.episode_id for one in again.orphaned()] == ["ep-mine"])


@pytest.mark.conformance
def test_a_living_servers_episodes_are_not_orphaned(postgres: Postgres) -> None:
    url = postgres.fresh()
    first, second = open_store(url), open_store(url)
    try:
        first.begin(row("ep-first", owner=first.owner))
        assert second.orphaned() == []
        first.close()
        # PostgreSQL releases the lock once it notices
        wait_until(lambda: [one.episode_id for one in second.orphaned()] == ["ep-first"])
    finally:
        second.close()


@pytest.mark.conformance
def test_a_lock_in_postgresql_ends_in_an_error_within_the_timeout(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    from kibitz.live.store.postgres import Cursor

    tried: list[str] = []
    execute = Cursor.execute

    def counted(cursor: Cursor, query: Any, *more: Any, **options: Any) -> Any:
        tried.append(query)
        return execute(cursor, query, *more, **options)

    url = postgres.fresh()
    store = open_store(url, store_timeout=1.0)
    store.begin(row())
    with psycopg.connect(url) as other:
        other.execute("select 1 from episodes where id = 'ep-1' for update")
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"cannot be written: .*statement timeout"):
            store.append(stored_events()[0])
        assert time.monotonic() - began < 30
        other.execute("lock table episodes in access exclusive mode")
        monkeypatch.setattr(Cursor, "execute", counted)
        with pytest.raises(StoreUnavailable, match=r"cannot be read: .*statement timeout"):
            store.episode("ep-1")
        assert len(tried) == 1, "a timeout is not retried"
        other.rollback()
    assert store.append(stored_events()[0])
    store.close()


@pytest.mark.conformance
def test_a_frozen_postgresql_ends_in_errors_and_recovers_without_loss(own_postgres: Postgres) -> None:
    store = open_store(own_postgres.fresh(), store_timeout=1.0)
    store.begin(row())
    sent = stored_events()
    store.append(sent[0])
    assert store.episode("ep-1") is not None
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("read: PostgreSQL has not responded", lambda: store.episode("ep-1")),
        ("read: connection timeout", lambda: store.episode("ep-1")),
        ("written: .*(has not responded|timeout)", lambda: store.append(sent[1])),
        ("written: connection timeout", lambda: store.load(row("ep-2"), stored_events("ep-2"))),
    ]
    with own_postgres.frozen():
        for why, call in calls:
            began = time.monotonic()
            with pytest.raises(StoreUnavailable, match=why):
                call()
            assert time.monotonic() - began < 30, why

    def stored(job: Callable[[], Any]) -> bool:  # a busy server may need more than a second at first
        with suppress(StoreUnavailable):
            job()
            return True
        return False

    for one in sent:
        wait_until(partial(stored, partial(store.append, one)))
    wait_until(partial(stored, lambda: store.load(row("ep-2"), stored_events("ep-2"))))
    assert store.events("ep-1", -1) == [one.body for one in sent]
    store.close()


def test_a_failing_job_does_not_fail_the_others_in_its_commit(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "a.db"))
    good, bad = stored_events(), stored_events("ep-2", steps=1)
    for name in ("ep-1", "ep-2"):
        store.begin(row(name))
    lock = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    lock.execute("begin immediate")  # until all jobs are queued
    payload = {key: value for key, value in bad[-1].event.payload.items() if key != "returns"}
    last = StoredEvent(replace(bad[-1].event, seq=0, payload=payload))
    raised: list[BaseException] = []

    def append_bad() -> None:
        try:
            store.append(last)
        except KeyError as error:
            raised.append(error)

    jobs = [threading.Thread(target=store.append, args=[good[0]]), threading.Thread(target=append_bad)]
    jobs += [threading.Thread(target=store.append, args=[one]) for one in good[1:2]]
    for job in jobs:
        job.start()
        time.sleep(0.05)
    lock.execute("rollback")
    for job in jobs:
        job.join(60)
    assert len(raised) == 1
    assert store.events("ep-1", -1) == [one.body for one in good[:2]]
    assert store.events("ep-2", -1) == []
    lock.close()
    store.close()


def test_a_second_server_cannot_open_the_same_file(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "a.db"))
    with pytest.raises(BadInput, match="Another server"):
        open_store(str(tmp_path / "a.db"))
    store.close()


@pytest.mark.parametrize("written", ["sqlite:///a.db", "sqlite:////{folder}/a.db", "a.db"])
def test_a_store_may_be_named_by_a_url_or_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.chdir(tmp_path)
    open_store(written.format(folder=str(tmp_path)[1:])).close()
    assert (tmp_path / "a.db").is_file()


@pytest.mark.conformance
def test_servers_that_start_at_once_on_an_empty_postgresql_all_start(postgres: Postgres) -> None:
    for _ in range(4):  # without the lock, eight starts collide in every round
        url, together = postgres.fresh(), threading.Barrier(8)

        def start(url: str = url, together: threading.Barrier = together) -> Store:
            together.wait()
            return open_store(url)

        with ThreadPoolExecutor(8) as pool:
            for started in [pool.submit(start) for _ in range(8)]:
                started.result().close()


@pytest.mark.parametrize(
    "url", ["mysql://x/y", "sqlite://a.db", "sqlite:///", "/proc/nowhere/a.db", "postgresql://nobody@127.0.0.1:1/x"]
)
def test_an_unusable_store_is_a_bad_input(url: str) -> None:
    with pytest.raises(BadInput):
        open_store(url)


def test_the_store_waits_for_a_locked_file(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "a.db"), store_timeout=20)
    store.begin(row())
    other = sqlite3.connect(tmp_path / "a.db", isolation_level=None, check_same_thread=False)
    other.execute("begin immediate")
    release = threading.Timer(0.3, lambda: other.execute("rollback"))
    release.start()
    assert store.append(stored_events()[0])
    release.join()
    other.close()
    store.close()


def test_a_file_that_stays_locked_ends_in_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.01)
    store = open_store(str(tmp_path / "a.db"), store_timeout=0.2)
    store.begin(row())
    other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    other.execute("begin immediate")
    with pytest.raises(StoreUnavailable, match="locked"):
        store.append(stored_events()[0])
    other.execute("rollback")
    other.close()
    assert store.append(stored_events()[0])
    store.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(place)]).returncode:
        missing("only root can mount a small file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_refuses_events_until_there_is_room(small_disk: Path) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 250_000)
    store = open_store(str(small_disk / "a.db"), store_timeout=0.2)
    store.begin(row())
    sent = stored_events(steps=2000, pad="x" * 300)
    kept = 0
    with suppress(StoreUnavailable):
        for one in sent:
            store.append(one)
            kept += 1
    assert 0 < kept < len(sent)
    with pytest.raises(StoreUnavailable, match="full"):
        store.append(sent[kept])
    filler.unlink()
    for one in sent[kept : kept + 20]:
        store.append(one)
    assert store.events("ep-1", -1, 10_000) == [one.body for one in sent[: kept + 20]]
    store.close()


def test_a_link_to_the_file_does_not_let_a_second_server_open_it(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "a.db"))
    (tmp_path / "folder").symlink_to(tmp_path)
    (tmp_path / "b.db").symlink_to(tmp_path / "a.db")
    for name in ("b.db", "folder/a.db", "folder/b.db"):
        with pytest.raises(BadInput, match="Another server"):
            open_store(str(tmp_path / name))
    store.close()
    os.link(tmp_path / "a.db", tmp_path / "c.db")
    with pytest.raises(BadInput, match="hard link"):
        open_store(str(tmp_path / "c.db"))


def _overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"x" * 8192)


def _drop(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("drop table events")


def _add_column(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("alter table episodes add column new text")


BREAK: dict[str, Callable[[Path], object]] = {
    "deleted": Path.unlink,
    "replaced": lambda path: path.rename(path.with_name("old")).with_name("a.db").touch(),
    "truncated": lambda path: os.truncate(path, 0),
    "overwritten": _overwrite,
    "without a table": _drop,
    "of another version": _add_column,
}


@pytest.mark.parametrize("how", BREAK)
def test_a_store_that_breaks_while_it_is_open_accepts_nothing_and_says_why(tmp_path: Path, how: str) -> None:
    store = open_store(str(tmp_path / "a.db"))
    readiness = Readiness(store)
    store.begin(row())
    store.append(stored_events()[0])
    readiness.check()
    assert readiness.problem == ""
    BREAK[how](tmp_path / "a.db")
    readiness.check()
    assert "store" in readiness.problem and str(tmp_path) not in readiness.problem
    for call in (
        lambda: store.append(stored_events()[1]),
        lambda: store.begin(row("ep-2")),
        lambda: store.load(row("ep-3"), stored_events("ep-3")),
    ):
        with pytest.raises(StoreDamaged):
            call()
    assert store.writer.retries == 0
    store.close()


def test_a_file_that_is_put_back_is_used_again(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "a.db"))
    store.begin(row())
    (tmp_path / "a.db").rename(tmp_path / "moved")
    with pytest.raises(StoreDamaged, match="deleted"):
        store.append(stored_events()[0])
    with pytest.raises(StoreDamaged, match="deleted"):
        store.episode("ep-1")
    assert not (tmp_path / "a.db").exists(), "reading creates no empty store"
    (tmp_path / "moved").rename(tmp_path / "a.db")
    store.check()
    assert store.append(stored_events()[0])
    store.close()


def test_a_damaged_page_is_found_at_the_start_and_while_reading(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = open_store(str(path))
    store.load(row(), stored_events(steps=400, pad="x" * 300))
    store.close()
    pages = path.stat().st_size // 4096
    with path.open("r+b") as file:
        for page in range(pages // 2, pages):
            file.seek(page * 4096)
            file.write(b"\xff" * 4096)
    with pytest.raises(BadInput, match="damaged"):
        open_store(str(path))
    with mock.patch.object(sqlite, "_check_integrity"):
        store = open_store(str(path))
    with pytest.raises(StoreDamaged, match="malformed"):
        store.events("ep-1", -1)
    with pytest.raises(StoreDamaged, match="malformed"):
        store.check()
    with pytest.raises(StoreDamaged, match="malformed"):
        store.begin(row("ep-2"))
    store.close()


def test_the_check_at_the_start_is_limited_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "a.db")
    open_store(path).close()
    with sqlite3.connect(path) as db:
        db.executemany("insert into events values ('ep-1', ?, zeroblob(1000))", ([seq] for seq in range(6000)))
    db.close()
    caplog.set_level("INFO")
    monkeypatch.setattr(sqlite, "INTEGRITY_SECONDS", 0.003)
    for _ in range(200):  # the timer may come too early or too late for so small a file
        open_store(path).close()
        if "checked a part" in caplog.text:
            return
    pytest.fail("the check was never interrupted")


@pytest.mark.conformance
def test_a_postgresql_without_its_tables_accepts_nothing(postgres: Postgres) -> None:
    import psycopg

    url = postgres.fresh()
    store = open_store(url)
    store.begin(row())
    with psycopg.connect(url) as other:
        other.execute("alter table events rename column body to text")
    with pytest.raises(StoreDamaged, match="table events"):
        store.check()
    with pytest.raises(StoreDamaged, match="table events"):
        store.append(stored_events()[0])
    with psycopg.connect(url) as other:
        other.execute("drop table events, episodes")
    with pytest.raises(StoreDamaged, match="does not exist"):
        store.episode("ep-1")
    store.close()
    with psycopg.connect(url) as other:
        other.execute("create table episodes (id text)")
    with pytest.raises(BadInput, match="cannot be opened"):
        open_store(url)
