"""The bus between servers: what Redis may say, and what happens while it is unreachable."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kibitz.core.errors import BadInput
from kibitz.live.config import LiveConfig
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
            await _until(lambda upto=first + 40: not links[0]._queue and channel.next == upto)
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
        async with asyncio.timeout(60):
            while not holds():
                await asyncio.sleep(0.01)

    messages = [json.loads(text) for text in asyncio.run(asyncio.wait_for(play(), 120))]
    assert [event["seq"] for message in messages for event in message.get("events", [message])] == list(range(82))
    full = [one for one in caplog.records if "events are queued for the bus" in one.getMessage()]
    assert len(full) == 2, "once for each outage"
    store.close()


@pytest.mark.conformance
def test_events_queued_before_the_bus_runs_are_sent_once_it_does(redis: Redis, tmp_path: Path) -> None:
    """The server closes orphaned episodes at its start, before the bus runs."""
    import redis as client

    store = open_store(str(tmp_path / "a.db"))
    link = RedisLink(redis.url)
    bus = Bus(store, link)
    bus.begin(row("ep-early"))
    bus.publish(stored_events("ep-early")[0])

    async def run() -> None:
        running = asyncio.create_task(link.run(bus.hub))
        async with asyncio.timeout(60):
            while link._queue:
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())
    with client.Redis.from_url(redis.url) as raw:
        newest = raw.xrevrange(redis_bus.STREAM, count=1)[0][1]
    assert set(newest) == {b"episode", b"seq", b"from"}, "private values stay in the store"
    store.close()


@pytest.mark.conformance
def test_only_what_the_store_has_is_shown_whatever_redis_says(redis: Redis, tmp_path: Path) -> None:
    """Someone else writes to Redis; a second server commits to the store and tells Redis only the number."""
    import redis as client

    store = open_store(str(tmp_path / "a.db"))
    link = RedisLink(redis.url)
    bus, sent = Bus(store, link), stored_events("ep-shown", steps=5)
    store.begin(row("ep-shown"))
    raw = client.Redis.from_url(redis.url)

    def say(**fields: Any) -> None:
        raw.xadd(redis_bus.STREAM, {"from": "another", **fields})

    async def play() -> list[int]:
        bus.attach(asyncio.get_running_loop())
        running = asyncio.create_task(link.run(bus.hub))
        channel = await bus.hub.join(row("ep-shown"))
        watching = asyncio.create_task(_seqs(channel))
        async with asyncio.timeout(60):
            while link.away:
                await asyncio.sleep(0.01)
            say(body=sent[0].body, open=1)  # an event, but not committed
            say(episode="ep-shown", seq=10**9)
            say(episode="../../etc", seq="x")
            say(nonsense=b"\xff")
            for event in sent:
                assert await asyncio.to_thread(store.append, event)
                say(episode="ep-shown", seq=event.seq)
                while channel.next <= event.seq:
                    await asyncio.sleep(0.01)
            seqs = await watching
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return seqs

    async def _seqs(channel: Any) -> list[int]:
        texts = [json.loads(part.text) async for part in bus.hub.follow(channel, Watcher())]
        return [event["seq"] for text in texts for event in text.get("events", [text])]

    assert asyncio.run(play()) == list(range(len(sent)))
    raw.close()
    store.close()


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda: LiveConfig(bus="amqp://user:hunter2@host").check(), id="of another kind"),
        pytest.param(
            lambda: RedisLink("redis://user:hunter2@host:notaport"), id="invalid", marks=pytest.mark.conformance
        ),
    ],
)
def test_an_error_about_the_bus_does_not_show_its_password(use: Callable[[], object]) -> None:
    with pytest.raises(BadInput, match="redis://HOST:PORT") as refused:
        use()
    assert "hunter2" not in str(refused.value)
