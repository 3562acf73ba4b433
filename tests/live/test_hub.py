"""Watchers that lag are resynchronised, miss nothing and do not delay the others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kibitz.live.config import LiveConfig
from kibitz.live.http.security import Guard
from kibitz.live.http.watch import WatchSession, _watch
from kibitz.live.store.base import StoreUnavailable, open_store
from kibitz.live.store.stored_event import StoredEvent
from kibitz.live.stream import channel as channel_module
from kibitz.live.stream import hub as hub_module
from kibitz.live.stream.bus import Bus
from kibitz.live.stream.channel import MAX_LAG_EVENTS, MAX_RING_EVENTS, MAX_UNACKED_EVENTS, Watcher
from kibitz.live.stream.hub import Hub
from tests.live.record import row, stored_events


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Bus]:
    store = open_store(str(tmp_path / "a.db"))
    yield Bus(store)
    store.close()


async def _begin(bus: Bus, steps: int) -> tuple[Hub, list[Any]]:
    bus.attach(asyncio.get_running_loop())
    await asyncio.to_thread(bus.begin, row())
    return bus.hub, stored_events(steps=steps)


async def _publish(bus: Bus, events: list[Any]) -> None:
    def send() -> None:
        for one in events:
            bus.publish(one)

    await asyncio.to_thread(send)
    await asyncio.sleep(0)


def _seqs(texts: list[str]) -> list[int]:
    messages = [json.loads(text) for text in texts]
    return [event["seq"] for message in messages for event in message.get("events", [message]) if "seq" in event]


def test_a_watcher_that_does_not_read_gets_a_resync_and_the_others_get_everything(bus: Bus) -> None:
    async def play() -> tuple[list[str], list[str]]:
        hub, sent = await _begin(bus, MAX_LAG_EVENTS + 100)
        channel = hub.channels["ep-1"]
        quick, slow, go = [], [], asyncio.Event()

        async def read_quickly() -> None:
            async for part in hub.follow(channel, Watcher()):
                quick.append(part.text)

        async def read_slowly() -> None:
            async for part in hub.follow(channel, Watcher()):
                slow.append(part.text)
                if len(slow) == 2:
                    await go.wait()

        tasks = [asyncio.create_task(read_quickly()), asyncio.create_task(read_slowly())]
        for first in range(0, len(sent) - 1, 10):
            await _publish(bus, sent[:-1][first : first + 10])
            await asyncio.sleep(0.02 if first < 30 else 0)
        go.set()
        await asyncio.sleep(0.05)
        await _publish(bus, sent[-1:])
        await asyncio.gather(*tasks)
        return quick, slow

    quick, slow = asyncio.run(play())
    assert _seqs(quick) == list(range(MAX_LAG_EVENTS + 102))
    resync = [json.loads(text)["resync"] for text in slow if "resync" in text]
    assert len(resync) == 1
    assert _seqs(slow)[:1] == [0]
    assert max(seq for seq in _seqs(slow) if seq <= resync[0]) == resync[0]
    assert bus.hub.resyncs == 1


def test_a_watcher_that_stops_acknowledging_pauses_until_its_next_acknowledgement(bus: Bus) -> None:
    async def play() -> list[str]:
        hub, sent = await _begin(bus, MAX_UNACKED_EVENTS + 100)
        watcher, texts = Watcher(), []

        async def read() -> None:
            async for part in hub.follow(hub.channels["ep-1"], watcher):
                texts.append(part.text)

        task = asyncio.create_task(read())
        await _publish(bus, sent[:5])
        await asyncio.sleep(0.02)
        watcher.ack(3)
        for first in range(5, len(sent) - 1, 5):
            await _publish(bus, sent[:-1][first : first + 5])
            await asyncio.sleep(0)
        assert watcher.paused
        before = len(_seqs(texts))
        watcher.ack(before - 1)
        await asyncio.sleep(0.02)
        await _publish(bus, sent[-1:])
        await task
        return texts

    texts = asyncio.run(play())
    assert any("resync" in text for text in texts)
    assert _seqs(texts) == list(range(MAX_UNACKED_EVENTS + 102)), "nothing is missing after the pause"


def test_large_events_leave_memory_early_and_still_reach_every_watcher_in_order(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watcher that keeps up, one that pauses, one that joins late, one that is pushed to; a giant event between."""
    monkeypatch.setattr(channel_module, "MAX_RING_BYTES", 50_000)
    sizes = [70_000 if seq == 60 else 4_000 for seq in range(122)]
    order: list[int] = []

    async def play() -> tuple[list[list[str]], list[bytes], int]:
        hub, sent = await _begin(bus, 120)
        sent = [
            StoredEvent(replace(one.event, payload={**one.event.payload, "pad": "x" * size}))
            for one, size in zip(sent, sizes, strict=True)
        ]
        channel, go, reads = hub.channels["ep-1"], asyncio.Event(), 0
        texts: list[list[str]] = [[], [], []]
        frames: list[bytes] = []
        events = bus.store.events

        def counted(*values: Any) -> list[bytes]:
            nonlocal reads
            reads += 1
            return events(*values)

        monkeypatch.setattr(bus.store, "events", counted)

        async def read(place: int, watcher: Watcher) -> None:
            async for part in hub.follow(channel, watcher):
                texts[place].append(part.text)
                order.extend(_seqs([part.text]) if place == 2 else [])
                if place == 1 and len(texts[1]) == 2:
                    await go.wait()

        def push(frame: bytes) -> bool:
            frames.append(frame)
            order.append(json.loads(frame[10 if frame[1] == 127 else 4 :])["seq"])
            return True

        tasks = [asyncio.create_task(read(0, Watcher())), asyncio.create_task(read(1, Watcher()))]
        pushed = Watcher(push=push)
        tasks.append(asyncio.create_task(read(2, pushed)))
        await asyncio.sleep(0.01)
        for number, one in enumerate(sent):
            if number == 100:
                go.set()
                late = Watcher()
                texts.append([])
                tasks.append(asyncio.create_task(read(3, late)))
            await _publish(bus, [one])
            await asyncio.sleep(0.002)
            assert channel.ring_bytes == sum(len(kept.body) for kept in channel.ring) <= 50_000
            assert sum(len(part.text) for part in channel._messages.values()) <= 75_000, "cached messages, too"
        await asyncio.gather(*tasks)
        return texts, frames, reads

    texts, frames, reads = asyncio.run(play())
    assert reads >= 2, "the paused and the late watcher read from the store"
    assert len(frames) > 100
    assert bus.hub.resyncs == 0
    for place in (0, 1, 3):
        assert _seqs(texts[place]) == list(range(122))
        events = [event for text in texts[place] for event in json.loads(text).get("events", [json.loads(text)])]
        assert [len(event["payload"]["pad"]) for event in events] == sizes
    assert order == list(range(122)), "one that is pushed to reads what memory cannot hold from the store"


def test_an_idle_watcher_gets_pushed_frames_without_being_woken(bus: Bus) -> None:
    async def play() -> tuple[list[bytes], int]:
        hub, sent = await _begin(bus, 20)
        pushed: list[bytes] = []
        full = False

        def push(frame: bytes) -> bool:
            if not full:
                pushed.append(frame)
            return not full

        watcher, parts = Watcher(push=push), 0
        channel = hub.channels["ep-1"]

        async def read() -> None:
            nonlocal parts
            async for _ in hub.follow(channel, watcher):
                parts += 1

        task = asyncio.create_task(read())
        await asyncio.sleep(0.01)
        for one in sent[:-1]:
            await _publish(bus, [one])
        full = True
        await _publish(bus, sent[-1:])
        await task
        return pushed, parts

    pushed, parts = asyncio.run(play())
    assert len(pushed) == 21 and parts == 1
    assert all(frame[0] == 0x81 for frame in pushed)
    assert json.loads(pushed[0][4:])["seq"] == 0


def test_many_watchers_get_more_events_per_frame_while_the_server_is_busy(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events that arrive while a round is under way join the frames of the rest; no timer delays a quiet server."""
    monkeypatch.setattr(hub_module, "PUSH_WATCHERS", 10)

    async def play() -> tuple[list[list[int]], list[int]]:
        hub, sent = await _begin(bus, 20)
        channel = hub.channels["ep-1"]
        got: list[list[int]] = [[] for _ in range(100)]
        sizes: list[int] = []

        def push_to(place: int) -> Callable[[bytes], bool]:
            def push(frame: bytes) -> bool:
                received = json.loads(frame[{126: 4, 127: 10}.get(frame[1], 2) :])
                seqs = [event["seq"] for event in received.get("events", [received])]
                got[place] += seqs
                sizes.append(len(seqs))
                return True

            return push

        async def read(place: int) -> None:
            async for part in hub.follow(channel, Watcher(push=push_to(place))):
                got[place] += _seqs([part.text])

        tasks = [asyncio.create_task(read(place)) for place in range(100)]
        await asyncio.sleep(0.01)
        hub.deliver(sent[0])
        while any(len(seen) < 1 for seen in got):
            await asyncio.sleep(0)
        assert set(sizes) == {1}, "alone, an event is sent at once and by itself"
        for event in sent[1:-1]:  # one in every turn of the loop; a round takes ten
            hub.deliver(event)
            await asyncio.sleep(0)
        hub.deliver(sent[-1])
        await asyncio.gather(*tasks)
        return got, sizes

    got, sizes = asyncio.run(play())
    assert all(seen == list(range(22)) for seen in got), "every event once and in order"
    assert max(sizes) > 5, "a busy server sends several at once"


def test_duplicate_and_early_events_are_shown_once_and_in_order(bus: Bus) -> None:
    async def play() -> list[str]:
        hub, sent = await _begin(bus, 10)
        texts: list[str] = []

        async def read() -> None:
            async for part in hub.follow(hub.channels["ep-1"], Watcher()):
                texts.append(part.text)

        task = asyncio.create_task(read())
        for one in sent:
            await asyncio.to_thread(bus.store.append, one)
        for i in (0, 0, 5, 2, 11, 3):  # another server's messages, duplicated and out of order
            hub.deliver(sent[i])
            await asyncio.sleep(0.01)
        await task
        return texts

    assert _seqs(asyncio.run(play())) == list(range(12))


def _connection(bus: Bus, *running: str) -> Any:
    """What a watcher needs of a connection and its server."""
    state = SimpleNamespace(bus=bus, runner=SimpleNamespace(running=running), guard=Guard(None, LiveConfig()))
    return SimpleNamespace(app=SimpleNamespace(state=state), scope={})


@pytest.mark.parametrize("since", [-1, 3])
def test_a_watcher_that_joins_during_the_last_event_still_gets_the_end(bus: Bus, since: int) -> None:
    """The last event may be delivered after the watcher read the row and before it joined."""

    async def play() -> list[str]:
        hub, sent = await _begin(bus, 10)
        await _publish(bus, sent[:5])
        sessions = [WatchSession(_connection(bus), {"episode_id": "ep-1", "since": str(since)}) for _ in range(2)]
        for session in sessions:
            await session.find_episode()
        await _publish(bus, sent[5:])
        assert not hub.channels
        async with asyncio.timeout(60):
            parts = await asyncio.gather(*map(_all, sessions))
        assert not hub.channels and hub.newest is None
        assert parts[0][1:] == parts[1][1:]
        return [part.text for part in parts[0]]

    async def _all(session: WatchSession) -> list[Any]:
        return [part async for part in session.messages()]

    assert _seqs(asyncio.run(play())) == list(range(since + 1, 12))


def test_catching_up_finds_events_that_were_committed_and_never_shown(bus: Bus) -> None:
    """The server that committed them may have died before it showed them."""

    async def play() -> list[str]:
        hub, sent = await _begin(bus, 3)
        await _publish(bus, sent[:-1])
        watching = asyncio.create_task(_texts(hub))
        await asyncio.to_thread(bus.store.append, sent[-1])
        await hub.catch_up_all(60.0)
        assert hub.channels, "its last event is recent"
        await hub.catch_up_all(0.0)
        async with asyncio.timeout(60):
            return await watching

    async def _texts(hub: Hub) -> list[str]:
        return [part.text async for part in hub.follow(hub.channels["ep-1"], Watcher())]

    assert _seqs(asyncio.run(play())) == list(range(5))


def test_a_watcher_that_another_server_showed_more_gets_no_event_twice(bus: Bus) -> None:
    """After a failover the server that takes over may not have read the latest events yet."""

    async def play() -> list[str]:
        _, sent = await _begin(bus, 6)
        await _publish(bus, sent[:2])
        for one in sent[2:4]:  # another server has committed and shown them
            await asyncio.to_thread(bus.store.append, one)
        session = WatchSession(_connection(bus), {"episode_id": "ep-1", "since": "3"})
        await session.find_episode()
        texts = asyncio.create_task(_texts(session))
        await asyncio.sleep(0)
        await _publish(bus, sent[4:])
        async with asyncio.timeout(60):
            return await texts

    async def _texts(session: WatchSession) -> list[str]:
        return [part.text async for part in session.messages()]

    assert _seqs(asyncio.run(play())) == list(range(4, 8))


def test_opening_an_old_episode_does_not_make_it_the_newest(bus: Bus) -> None:
    async def play() -> list[str | None]:
        hub = bus.hub
        now, old = row("ep-now"), replace(row("ep-old"), started_at=1.0)
        for one in (now, old):
            await asyncio.to_thread(bus.store.begin, one)
        found = []
        for one in (now, old):
            await hub.join(one)
            found.append(hub.newest)
        hub.deliver(stored_events("ep-now")[0])
        for one in stored_events("ep-now")[1:]:
            hub.deliver(one)
        return [*found, hub.newest]

    assert asyncio.run(play()) == ["ep-now", "ep-now", "ep-old"]


def test_events_with_an_invalid_frame_are_still_shown_to_the_end(bus: Bus) -> None:
    async def play() -> list[str]:
        hub, sent = await _begin(bus, 3)
        for place in (1, -1):
            sent[place] = StoredEvent(replace(sent[place].event, payload={**sent[place].event.payload, "frame": 5}))
        watching = asyncio.create_task(_texts(hub))
        await _publish(bus, sent)
        async with asyncio.timeout(60):
            return await watching

    async def _texts(hub: Hub) -> list[str]:
        return [part.text async for part in hub.follow(hub.channels["ep-1"], Watcher())]

    assert _seqs(asyncio.run(play())) == list(range(5))


def test_a_watcher_waits_for_an_episode_whose_players_are_still_loading(bus: Bus) -> None:
    """Loading may compile for seconds; the id is known, but the store has no row yet."""

    async def play() -> list[str]:
        bus.attach(asyncio.get_running_loop())
        session = WatchSession(_connection(bus, "ep-1"), {"episode_id": "ep-1"})
        finding = asyncio.create_task(session.find_episode())
        await asyncio.sleep(0.1)
        assert not finding.done()
        await asyncio.to_thread(bus.begin, row())
        await finding
        watching = asyncio.create_task(_all(session))
        await _publish(bus, stored_events())
        async with asyncio.timeout(60):
            return await watching

    async def _all(session: WatchSession) -> list[str]:
        return [message.text async for message in session.messages()]

    assert _seqs(asyncio.run(play())) == list(range(7))


class FakeWebSocket:
    """What `_watch` needs of a WebSocket; records how it was closed."""

    def __init__(self, bus: Bus, message: str = "") -> None:
        self.app = _connection(bus).app
        self.query_params, self.scope, self.message, self.closed = (
            {"episode_id": "ep-1"},
            dict[str, Any](),
            message,
            (0, ""),
        )

    async def accept(self) -> None: ...

    async def send(self, message: Any) -> None: ...

    async def receive(self) -> dict[str, Any]:
        if self.message:
            text, self.message = self.message, ""
            return {"type": "websocket.receive", "text": text}
        await asyncio.sleep(60)
        raise AssertionError("the socket was not closed")

    async def close(self, code: int, reason: str) -> None:
        self.closed = code, reason


def test_an_unreadable_record_closes_the_watcher_with_try_again_later(bus: Bus) -> None:
    async def play() -> tuple[int, str]:
        _, sent = await _begin(bus, MAX_RING_EVENTS + 10)
        await _publish(bus, sent[:-1])

        def away(*values: Any) -> list[bytes]:
            raise StoreUnavailable("gone")

        bus.store.events = away  # type: ignore[method-assign]
        socket = FakeWebSocket(bus)
        async with asyncio.timeout(60):
            await _watch(cast(Any, socket))
        return socket.closed

    assert asyncio.run(play()) == (1013, StoreUnavailable.public)


def test_an_invalid_acknowledgement_ends_the_connection(bus: Bus) -> None:
    async def play() -> tuple[int, str]:
        await _begin(bus, 3)
        socket = FakeWebSocket(bus, '{"ack": -2}')
        async with asyncio.timeout(60):
            await _watch(cast(Any, socket))
        return socket.closed

    assert asyncio.run(play())[0] == 1008


def test_a_watcher_that_joins_while_the_store_is_unavailable_gets_everything_later(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "STORE_RETRY_SECONDS", 0.01)

    async def play() -> list[str]:
        hub, sent = await _begin(bus, 10)
        old = hub.channels["ep-1"].row
        await _publish(bus, sent)
        events, failures = bus.store.events, iter([StoreUnavailable("briefly")])

        def away(*values: Any) -> list[bytes]:
            for failure in failures:
                raise failure
            return events(*values)

        bus.store.events = away  # type: ignore[method-assign]
        async with asyncio.timeout(60):
            channel = await hub.join(old)
            return [part.text async for part in hub.follow(channel, Watcher())]

    assert _seqs(asyncio.run(play())) == list(range(12))
