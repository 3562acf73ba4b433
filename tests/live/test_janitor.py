"""The janitors: orphaned episodes, undelivered events, and a shutdown that nothing delays."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from kibitz.live.app import create_app, lifespan
from kibitz.live.config import LiveConfig
from kibitz.live.episodes import janitor
from kibitz.live.episodes.janitor import OrphanSweeper, fail_episode
from kibitz.live.episodes.runner import Runner
from kibitz.live.store.base import StoreUnavailable, open_store
from kibitz.live.store.stored_event import StoredEvent, decode_event
from kibitz.live.stream.bus import Bus
from kibitz.live.stream.channel import Watcher
from tests.live.openenv_server import serving
from tests.live.record import row, stored_events


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Bus]:
    store = open_store(str(tmp_path / "a.db"), 0.3)
    yield Bus(store)
    store.close()


def _lose(bus: Bus, name: str) -> None:
    """An episode of this server that is marked `running` although no runner plays it."""
    bus.store.begin(row(name, owner=bus.store.owner))
    for one in stored_events(name, end=False):
        bus.store.append(one)


def _status(bus: Bus, name: str) -> str:
    found = bus.store.episode(name)
    assert found is not None
    return found.status


def test_an_episode_that_cannot_be_closed_is_logged_once_and_again_when_it_is_closed(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kibitz.live")
    sweeper = OrphanSweeper(bus, ())
    for name in ("ep-1", "ep-2"):
        _lose(bus, name)
    append, broken = bus.store.append, {"ep-1", "ep-2"}

    def failing(one: StoredEvent) -> bool:
        if one.episode_id in broken:
            raise TypeError("a bug of ours")
        return append(one)

    monkeypatch.setattr(bus.store, "append", failing)
    for _ in range(5):
        sweeper.sweep()
    traced = [line for line in caplog.records if line.exc_info]
    assert sorted(line.getMessage() for line in traced) == [f"episode ep-{i} cannot be closed" for i in (1, 2)]
    assert len(caplog.records) == 2
    assert bus.unclosed == {"ep-1": 5, "ep-2": 5}
    broken.remove("ep-1")
    for _ in range(2):
        sweeper.sweep()
    assert [line.getMessage() for line in caplog.records[2:]] == ["episode ep-1 is closed now, after 5 failed attempts"]
    assert _status(bus, "ep-1") == "failed"
    append(stored_events("ep-2")[-1])  # by another server
    sweeper.sweep()
    assert [line.getMessage() for line in caplog.records[3:]] == ["episode ep-2 is closed now, after 7 failed attempts"]
    assert not bus.unclosed


def test_an_orphan_that_cannot_be_closed_is_logged_once(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sweeper = OrphanSweeper(bus, ())
    bus.store.begin(row("ep-1", owner="gone"))

    def failing(one: StoredEvent) -> bool:
        raise TypeError("a bug of ours")

    monkeypatch.setattr(bus.store, "append", failing)
    for _ in range(5):
        sweeper.sweep()
    assert [line.getMessage() for line in caplog.records] == [
        "episode ep-1 was interrupted", "episode ep-1 cannot be closed",
    ]  # fmt: skip


def test_an_unavailable_store_is_logged_once_and_does_not_delay_shutdown(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _lose(bus, "ep-1")
    tried = threading.Semaphore(0)

    def away(one: StoredEvent) -> bool:
        tried.release()
        raise StoreUnavailable("gone")

    monkeypatch.setattr(bus.store, "append", away)
    closed: list[bool] = []
    work = threading.Thread(
        target=lambda: closed.append(fail_episode(bus, "ep-1", "error", "It could not be recorded.")), daemon=True
    )
    work.start()
    for _ in range(3):
        assert tried.acquire(timeout=60), "it retries while the server lives"
    bus.hub.close()
    work.join(60)
    assert closed == [False]
    assert [line.getMessage() for line in caplog.records] == [
        "cannot close episode ep-1 until the store is available: gone"
    ]


def test_a_server_starts_and_stops_quickly_although_an_orphan_cannot_be_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store can be read but not written, and an orphan is waiting to be closed."""
    monkeypatch.setattr(janitor, "SWEEP_SECONDS", 0.1)
    made = create_app(LiveConfig(store=str(tmp_path / "a.db"), warm=False, store_timeout=60.0))
    bus: Bus = made.state.bus
    _lose(bus, "ep-1")
    tried = threading.Event()

    def away(one: StoredEvent) -> bool:
        tried.set()
        raise StoreUnavailable("gone")

    monkeypatch.setattr(bus.store, "append", away)

    async def live() -> float:
        async with lifespan(made):
            await asyncio.to_thread(tried.wait, 60)
            return time.monotonic()

    began = asyncio.run(live())  # returns after its threads have ended
    assert tried.is_set()
    assert time.monotonic() - began < 8


def test_a_sweep_closes_lost_episodes_but_no_running_ones(bus: Bus) -> None:
    runner = Runner(bus, LiveConfig(max_episodes=2))
    live = runner.claim("deal_or_no_deal", ("bayes", "heuristic"))
    _lose(bus, live.episode_id)
    _lose(bus, "ep-lost")
    bus.store.begin(row("ep-driver", origin="driver"))
    OrphanSweeper(bus, runner.running).sweep()
    found = {name: _status(bus, name) for name in (live.episode_id, "ep-lost", "ep-driver")}
    assert found == {live.episode_id: "running", "ep-lost": "failed", "ep-driver": "running"}
    last = decode_event(bus.store.events("ep-lost", -1)[-1])
    assert (last.payload["kind"], last.payload["frame"]) == ("error", {"n": 5})


def test_a_crashed_episode_ends_with_the_private_values_of_its_last_step(bus: Bus) -> None:
    bus.store.begin(row("ep-1", owner=bus.store.owner))
    first, step, *_ = stored_events("ep-1", end=False)
    bus.store.append(first)
    changed = {"0": {"reward": 2.0, "budget": 3}, "1": {"reward": 0.0}}
    payload = {**step.event.payload, "private": changed}
    bus.store.append(StoredEvent(replace(step.event, payload=payload)))
    OrphanSweeper(bus, ()).sweep()
    last = decode_event(bus.store.events("ep-1", -1)[-1])
    known = first.event.payload["private"]
    assert last.payload["private"] == {"0": {**known["0"], "budget": 3}, "1": known["1"]}


def test_a_running_server_finds_lost_episodes_and_undelivered_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(janitor, "SWEEP_SECONDS", 0.1)
    made = create_app(LiveConfig(store=str(tmp_path / "a.db"), warm=False))
    bus: Bus = made.state.bus

    async def live() -> list[str]:
        async with lifespan(made), asyncio.timeout(60):
            driven = replace(row("ep-driven"), origin="driver")
            await asyncio.to_thread(bus.begin, driven)
            channel = await bus.hub.join(driven)
            following = asyncio.create_task(_texts(bus, channel))
            for one in stored_events("ep-driven"):
                await asyncio.to_thread(bus.store.append, one)  # committed, but not announced
            texts = await following
            # In one write: a sweep may come between two, and closes the episode.
            await asyncio.to_thread(bus.store.begin, row("ep-lost", owner=bus.store.owner))
            while await asyncio.to_thread(_status, bus, "ep-lost") == "running":
                await asyncio.sleep(0.02)
            return texts

    async def _texts(bus: Bus, channel: Any) -> list[str]:
        return [part.text async for part in bus.hub.follow(channel, Watcher())]

    texts = asyncio.run(live())
    assert "episode.ended" in texts[-1]


def test_exports_share_a_bounded_number_of_store_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every reading thread has its own connection, so there must be few threads, and they must stay."""
    made = create_app(LiveConfig(store=str(tmp_path / "a.db"), warm=False))
    store: Any = made.state.bus.store
    store.load(row("ep-1"), stored_events("ep-1", steps=2500))
    events, body = store.events, store.events("ep-1", 10, 1)[0]

    def slowly(*values: Any) -> list[bytes]:
        time.sleep(0.01)
        return list(events(*values))

    monkeypatch.setattr(store, "events", slowly)
    most = min(32, (os.cpu_count() or 1) + 4)  # threads of an event loop
    counts = []
    try:
        with serving(made) as base, httpx.Client(base_url=base, timeout=30) as http:
            for _ in range(2):
                with ThreadPoolExecutor(2 * most) as many:
                    answers = list(many.map(lambda _: http.get("/episodes/ep-1/events"), range(4 * most)))
                assert {answer.content.count(b"\n") for answer in answers} == {2502}
                with http.stream("GET", "/episodes/ep-1/events") as left:  # a client that disconnects midway
                    assert body in next(left.iter_bytes(1_000_000))
                counts.append(len(store._connections))
    finally:
        store.close()
    assert counts[-1] <= 2 + most, "one for the writer, one for the test and one per thread"
