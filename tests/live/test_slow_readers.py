"""Readers that do not read: they cost little, are dropped, and cannot use up the server's memory together."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from kibitz.live.app import create_app
from kibitz.live.config import LiveConfig
from kibitz.live.http.sockets import stalled
from kibitz.live.http.sockets.fast_socket import fast_socket
from kibitz.live.http.sockets.plain_socket import plain_socket
from kibitz.live.store.base import open_store
from kibitz.live.store.stored_event import StoredEvent
from kibitz.live.stream.backlog import PAGE_BYTES, Backlog
from kibitz.live.stream.channel import Channel
from kibitz.live.stream.hub import Hub
from tests.live import record
from tests.live.conftest import Serve
from tests.live.machines import wait_until
from tests.live.openenv_server import serving

EVENTS, EVENT_BYTES = 40, 200_000  # more than the kernel keeps for one connection
SSE = "Accept: text/event-stream\r\n"
UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
KINDS = {
    "report": ("/reports/study.html", ""),
    "export": ("/episodes/ep-1/events", ""),
    "replay": ("/episodes/ep-1/stream?speed=1000000", SSE),
    "server-sent events": ("/custom/ws?episode_id=ep-1", SSE),
    "WebSocket": ("/custom/ws?episode_id=ep-1", UPGRADE + "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"),
}


def large(seq: int) -> StoredEvent:
    first = record.stored_events(steps=1)[1]
    return StoredEvent(replace(first.event, seq=seq, payload={**first.event.payload, "pad": "x" * EVENT_BYTES}))


@pytest.fixture(scope="module")
def slow_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastAPI]:
    """The app with one finished episode, one report and one page of 8 MB."""
    folder = tmp_path_factory.mktemp("slow")
    (folder / "study").mkdir()
    (folder / "study" / "report.html").write_bytes(b"x" * EVENTS * EVENT_BYTES)
    app = create_app(LiveConfig(store=str(folder / "a.db"), warm=False, runs=folder))
    first, *_, last = record.stored_events(steps=EVENTS)
    events = [first, *(large(seq) for seq in range(1, EVENTS + 1)), last]
    app.state.bus.store.load(record.row(), events)
    app.get("/large")(lambda: PlainTextResponse(b"x" * EVENTS * EVENT_BYTES))
    yield app
    app.state.bus.store.close()


@pytest.fixture(scope="module")
def served_here(slow_app: FastAPI) -> Iterator[tuple[str, Backlog]]:
    """A server as `kibitz serve` makes it, in this process; its URL and its backlog."""
    app, found = slow_app, slow_app.state.bus.hub.backlog
    app.state.guard.send_seconds = None
    with serving(app, http=plain_socket(100, Counter(), found), ws=fast_socket(found)) as url:
        wait_until(lambda: httpx.get(f"{url}/health").status_code == 200)
        yield url, found


@pytest.fixture
def backlog(served_here: tuple[str, Backlog], monkeypatch: pytest.MonkeyPatch) -> tuple[str, Backlog]:
    """The server with an empty backlog and little patience."""
    monkeypatch.setattr(stalled, "STALL_SECONDS", 1.0)
    url, held = served_here
    wait_until(lambda: held.bytes == 0, 60, "an empty backlog")
    monkeypatch.setattr(held, "dropped", 0)
    monkeypatch.setattr(held, "max_bytes", held.max_bytes)
    return url, held


def ask(url: str, path: str, headers: str = "") -> socket.socket:
    """Sends a request and reads nothing."""
    host, port = url.removeprefix("http://").split(":")
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.connect((host, int(port)))
    one.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n".encode())
    return one


@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_that_does_not_read_holds_little_and_is_dropped(backlog: tuple[str, Backlog], kind: str) -> None:
    url, held = backlog
    most = 0

    def dropped() -> bool:
        nonlocal most
        most = max(most, held.bytes)
        return held.dropped == 1

    with ask(url, *KINDS[kind]):
        wait_until(dropped, 60, "the drop")
    assert 0 < most < 5 * (PAGE_BYTES + EVENT_BYTES)
    wait_until(lambda: held.bytes == 0, 60, "an empty backlog")


@pytest.mark.parametrize("kind", [*KINDS, "page"])
def test_another_asgi_server_drops_a_reader_that_does_not_read_too(
    slow_app: FastAPI, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `uvicorn kibitz.live.openenv_app:app` runs it, with uvicorn's own sockets."""
    monkeypatch.setattr(slow_app.state.guard, "send_seconds", 1.0)
    held = slow_app.state.bus.hub.backlog
    dropped = held.dropped
    with serving(slow_app, log_level="critical", ws_ping_timeout=600) as url:
        path, headers = KINDS.get(kind, ("/large", ""))
        with ask(url, path, headers) as one:
            wait_until(lambda: held.dropped == dropped + 1, 60, "the drop")
            wait_until(lambda: held.bytes == 0, 60, "an empty backlog")
            received = 0
            while piece := one.recv(1 << 20):
                received += len(piece)
        assert 0 < received < EVENTS * EVENT_BYTES, "the connection has ended early"
        monkeypatch.setattr(slow_app.state.guard, "send_seconds", 60.0)
        assert httpx.get(f"{url}/large", timeout=60).content == b"x" * EVENTS * EVENT_BYTES, "a reader gets all of it"


def test_a_replay_that_waits_for_its_next_event_holds_little(backlog: tuple[str, Backlog]) -> None:
    """Its reader reads, so nothing drops it: many of them must not fill the backlog."""
    url, held = backlog
    with ask(url, "/episodes/ep-1/stream?speed=0.000001"):
        wait_until(lambda: held.bytes > 0, 60, "the first page")
        assert held.bytes < 2 * EVENT_BYTES, "a page of a download has at least two of these events"
    wait_until(lambda: held.bytes == 0, 60, "an empty backlog")


def test_a_slow_reader_gets_the_whole_record(backlog: tuple[str, Backlog], monkeypatch: pytest.MonkeyPatch) -> None:
    url, held = backlog
    monkeypatch.setattr(stalled, "STALL_SECONDS", 2.0)  # this process may have to wait for a processor
    with ask(url, "/episodes/ep-1/events", "Connection: close\r\n") as one:
        received, began = 0, time.monotonic()
        while piece := one.recv(100_000):
            received += len(piece)
            time.sleep(0.01 if time.monotonic() - began < 3 else 0)  # slow for longer than STALL_SECONDS
    assert received > EVENTS * EVENT_BYTES
    assert held.dropped == 0


def test_streams_beyond_the_servers_backlog_are_refused_until_there_is_room(
    backlog: tuple[str, Backlog], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, held = backlog
    monkeypatch.setattr(stalled, "STALL_SECONDS", 0.2)
    least = stalled.MIN_READ_BYTES
    monkeypatch.setattr(stalled, "MIN_READ_BYTES", -(1 << 30))  # drops no reader yet
    held.max_bytes = 1
    with ask(url, "/episodes/ep-1/events"), httpx.Client(base_url=url, timeout=60) as http:
        wait_until(lambda: held.full, 60, "a full backlog")
        for path in ("/episodes/ep-1/events", "/episodes/ep-1/stream", "/custom/ws", "/reports/study.html"):
            answer = http.get(path)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        with pytest.raises(InvalidStatus) as refused, connect(f"{url.replace('http', 'ws')}/custom/ws"):
            pass
        assert refused.value.response.status_code == 503
        assert http.get("/episodes/ep-1").status_code == 200
        metrics = http.get("/metrics").text
        assert 'kibitz_refused_total{status="503"} 5.0' in metrics
        assert "kibitz_backlog_bytes 0.0" not in metrics
        monkeypatch.setattr(stalled, "MIN_READ_BYTES", least)
        wait_until(lambda: not held.full, 60, "room")
        assert http.get("/episodes/ep-1/events", params={"since": EVENTS}).status_code == 200
        assert "kibitz_readers_dropped_total 1.0" in http.get("/metrics").text


def test_watchers_who_join_late_get_the_recent_events_in_small_messages(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "a.db"))
    channel = Channel(record.row(), Hub(store).delivery_seconds)
    store.close()
    for seq in range(20):
        channel.add(large(seq))
    seen: list[int] = []
    while not seen or seen[-1] < channel.next - 1:
        message = channel.message_from(len(seen), None)
        assert len(message.text) < PAGE_BYTES + 2 * EVENT_BYTES
        seen += range(message.first, message.last + 1)
    assert seen == list(range(20))


@pytest.mark.conformance
@pytest.mark.timed
def test_sixty_readers_that_do_not_read_a_large_record_cost_less_than_a_megabyte_each(serve: Serve) -> None:
    served = serve("--no-warm")
    sent: list[dict[str, Any]] = record.events("ep-1", steps=100)
    for event in sent[1:-1]:
        event["payload"]["pad"] = "x" * 290_000
    assert httpx.post(f"{served.url}/episodes", content=record.lines(sent), timeout=60).status_code == 201
    before = served.memory()
    opened = [ask(served.url, "/episodes/ep-1/events") for _ in range(60)]
    wait_until(lambda: held_bytes(served.url) > 60 * PAGE_BYTES, 60, "sixty full sockets")
    assert served.memory() - before < 60e6
    began = time.monotonic()
    assert httpx.get(f"{served.url}/health").status_code == 200
    assert time.monotonic() - began < 2
    began = time.monotonic()
    assert served.stop() == 0
    assert time.monotonic() - began < 5, "the server does not wait for them when it ends"
    for one in opened:
        one.close()


def held_bytes(url: str) -> float:
    lines = httpx.get(f"{url}/metrics", timeout=30).text.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("kibitz_backlog_bytes ")))
