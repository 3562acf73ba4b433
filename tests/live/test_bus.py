"""The bus between servers, when Redis is unreachable."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from kibitz.live.store.base import open_store
from kibitz.live.stream import redis_bus
from kibitz.live.stream.bus import Bus
from kibitz.live.stream.channel import Watcher
from kibitz.live.stream.redis_bus import RedisLink
from tests.live.machines import Redis
from tests.live.record import row, stored_events


@pytest.mark.conformance
def test_a_full_queue_drops_the_oldest_logs_once_and_other_servers_miss_nothing(
    own_redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Two servers on one store; Redis stops twice while one of them plays."""
    monkeypatch.setattr(redis_bus, "MAX_QUEUED_EVENTS", 10)
    caplog.set_level(logging.INFO, "kibitz.live")
    store = open_store(str(tmp_path / "a.db"))
    links = RedisLink(own_redis.url), RedisLink(own_redis.url)
    here, there = (Bus(store, link) for link in links)
    sent = stored_events(steps=80)

    async def play() -> list[str]:
        for bus in (here, there):
            bus.attach(asyncio.get_running_loop())
        runs = [asyncio.create_task(link.run(bus.hub)) for link, bus in zip(links, (here, there), strict=True)]
        await asyncio.to_thread(here.begin, row())
        channel = await there.hub.join(row())
        watching = asyncio.create_task(_texts(there, channel))
        await _until(lambda: not any(link.away for link in links))
        for first in (0, 40):
            await asyncio.to_thread(own_redis.stop)
            for one in sent[first : first + 30]:
                await asyncio.to_thread(here.publish, one)
            assert links[0].left_out == (20 if not first else 40)
            assert len(links[0]._queue) == 10
            await asyncio.to_thread(own_redis.start)
            await _until(lambda: not links[0]._queue and not any(link.away for link in links))
            for one in sent[first + 30 : first + 40]:
                await asyncio.to_thread(here.publish, one)
            await _until(lambda upto=first + 40: channel.next == upto)
        for one in sent[80:]:
            await asyncio.to_thread(here.publish, one)
        texts = await watching
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)
        return texts

    async def _texts(bus: Bus, channel: Any) -> list[str]:
        return [part.text async for part in bus.hub.follow(channel, Watcher())]

    async def _until(holds: Any) -> None:
        async with asyncio.timeout(20):
            while not holds():
                await asyncio.sleep(0.01)

    messages = [json.loads(text) for text in asyncio.run(asyncio.wait_for(play(), 60))]
    assert [event["seq"] for message in messages for event in message.get("events", [message])] == list(range(82))
    full = [one for one in caplog.records if "events are queued for the bus" in one.getMessage()]
    assert len(full) == 2, "once for each outage"
    store.close()


@pytest.mark.conformance
def test_events_queued_before_the_bus_runs_are_sent_once_it_does(redis: Redis, tmp_path: Path) -> None:
    """The server closes orphaned episodes at its start, before the bus runs."""
    store = open_store(str(tmp_path / "a.db"))
    link = RedisLink(redis.url)
    bus = Bus(store, link)
    bus.begin(row("ep-early"))
    bus.publish(stored_events("ep-early")[0])

    async def run() -> None:
        running = asyncio.create_task(link.run(bus.hub))
        async with asyncio.timeout(10):
            while link._queue:
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())
    store.close()
