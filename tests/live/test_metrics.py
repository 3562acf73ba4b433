"""What Prometheus scrapes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

from prometheus_client.parser import text_string_to_metric_families

from kibitz.live.http.metrics import Metrics
from kibitz.live.openenv.sessions import Sessions
from kibitz.live.store.base import open_store
from kibitz.live.stream.bus import Bus
from kibitz.live.stream.channel import Watcher
from tests.live.record import row, stored_events

NAMES = {
    "kibitz_episodes_running",
    "kibitz_episodes_played_total",
    "kibitz_episodes_unclosed",
    "kibitz_events_committed_total",
    "kibitz_events_sent_total",
    "kibitz_store_commits_total",
    "kibitz_store_retries_total",
    "kibitz_watchers",
    "kibitz_backlog_bytes",
    "kibitz_readers_dropped_total",
    "kibitz_resyncs_total",
    "kibitz_bus_away",
    "kibitz_bus_left_out_total",
    "kibitz_refused_total",
    "kibitz_sessions",
    "kibitz_sessions_refused_total",
    "kibitz_sockets_refused_total",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
}


def _samples(metrics: Metrics) -> dict[str, float]:
    families = text_string_to_metric_families(metrics.page().decode())
    return {sample.name: sample.value for family in families for sample in family.samples if "le" not in sample.labels}


def test_names_stay_and_every_event_is_timed_once_from_commit_to_delivery(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "a.db"))
    bus = Bus(store)
    runner, guard = SimpleNamespace(running={}, played=2), SimpleNamespace(refused={429: 3})
    bus.hub.refused[1008] += 1
    metrics = Metrics(SimpleNamespace(bus=bus, runner=runner, guard=guard, sessions=Sessions()))
    events = stored_events(steps=20)

    async def play() -> None:
        bus.attach(asyncio.get_running_loop())
        await asyncio.to_thread(bus.begin, row())
        pushed, batched = Watcher(push=lambda frame: True), Watcher(batch=0.01)
        tasks = [asyncio.create_task(_follow(bus, watcher)) for watcher in (pushed, batched)]
        await asyncio.sleep(0)
        for event in events:
            await asyncio.to_thread(bus.publish, event)
        await asyncio.gather(*tasks)

    asyncio.run(play())
    found = _samples(metrics)
    store.close()
    assert set(found) >= NAMES
    assert (found["kibitz_refused_total"], found["kibitz_episodes_played_total"]) == (3, 2)
    assert found["kibitz_events_committed_total"] == found["kibitz_commit_seconds_count"] == len(events)
    assert found["kibitz_events_sent_total"] == 2 * len(events)
    assert found["kibitz_delivery_seconds_count"] == len(events)
    assert 0 < found["kibitz_delivery_seconds_sum"] < 10


async def _follow(bus: Bus, watcher: Watcher) -> None:
    async for _ in bus.hub.follow(bus.hub.channels["ep-1"], watcher):
        pass
