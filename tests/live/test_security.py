"""Requests that the server refuses: without a token, from other sites, too large, too many, too slow."""

from __future__ import annotations

import json
import os
import socket as sockets
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from kibitz.core.errors import BadInput
from kibitz.live.config import LiveConfig
from kibitz.live.stream.backlog import Backlog
from tests.live import record
from tests.live.conftest import Serve, Served
from tests.live.machines import wait_until
from tests.live.server_process import ROOT

TWICE = "^/custom/ws$|/stream$|^/envs/cricket/"  # two never end; cricket is also at the root
TOKEN = "a-long-secret"
MARKUP = '<script>alert(1)</script><img src=x onerror="alert(2)">'


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tests.live.conftest import start_server

    one = start_server(
        tmp_path_factory.mktemp("guarded") / "a.db", "--no-warm", "--connections", "20", env={"KIBITZ_TOKEN": TOKEN}
    )
    yield one
    one.stop()


def test_a_public_address_requires_a_token() -> None:
    with pytest.raises(BadInput, match="--token"):
        LiveConfig(host="0.0.0.0").check()
    LiveConfig(host="0.0.0.0", token=TOKEN).check()
    with pytest.raises(BadInput, match="8"):
        LiveConfig(token="short").check()


@pytest.mark.parametrize("path", ["/custom/start_episode", "/custom/stop_episode", "/custom/events", "/episodes"])
@pytest.mark.parametrize("given", [None, "Bearer wrong-secret", f"Basic {TOKEN}", "Bearer", f"Bearer {TOKEN}x"])
def test_every_changing_route_needs_the_token(guarded: Served, path: str, given: str | None) -> None:
    headers = {} if given is None else {"authorization": given}
    answer = httpx.post(guarded.url + path, json={}, headers=headers)
    assert answer.status_code == 401
    assert TOKEN not in answer.text
    assert answer.headers["www-authenticate"] == "Bearer"


def test_the_right_token_may_write_and_reading_needs_none(guarded: Served) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}
    sent = record.lines(record.events("ep-token"))
    assert httpx.post(f"{guarded.url}/custom/events", content=sent, headers=headers).status_code == 200
    assert guarded.get("/episodes/ep-token")["status"] == "ended"


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://localhost.evil.example", "http://["]
)
def test_another_sites_page_can_neither_open_a_socket_nor_write(served: Served, origin: str) -> None:
    with pytest.raises(InvalidStatus) as refused, connect(served.ws, origin=origin):  # type: ignore[arg-type]
        pass
    assert refused.value.response.status_code == 403
    for path in ("/ws", "/mcp", "/envs/cricket/ws", "/envs/deal_or_no_deal/mcp"):
        address = served.url.replace("http", "ws", 1) + path
        with pytest.raises(InvalidStatus) as refused, connect(address, origin=origin):  # type: ignore[arg-type]
            pass
        assert refused.value.response.status_code == 403, path
    answer = httpx.post(f"{served.url}/custom/start_episode", json={}, headers={"origin": origin})
    assert answer.status_code == 403
    with connect(served.ws, origin=served.url) as socket:  # type: ignore[arg-type]
        assert "idle" in json.loads(socket.recv(60))
    with connect(served.url.replace("http", "ws", 1) + "/ws", origin=served.url):  # type: ignore[arg-type]
        pass


def test_a_foreign_host_name_is_refused(served: Served) -> None:
    for name in ("evil.example:80", "127.evil.example:80", "localhost.evil.example"):
        assert httpx.get(f"{served.url}/episodes", headers={"host": name}).status_code == 403


def test_every_answer_has_the_security_headers(served: Served) -> None:
    for path in ("/custom", "/health", "/episodes", "/nothing"):
        headers = httpx.get(served.url + path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer", "queries may hold a seat's token"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers
    assert httpx.get(f"{served.url}/docs").status_code == 404


def test_large_bodies_are_refused_with_and_without_a_length(served: Served) -> None:
    big = b"x" * (1 << 20) + b"x"
    assert httpx.post(f"{served.url}/custom/start_episode", content=big).status_code == 413
    for accept in ("*/*", "text/event-stream"):
        headers = {"accept": accept}
        streamed = httpx.post(f"{served.url}/custom/start_episode", content=iter([big, big]), headers=headers)
        assert streamed.status_code == 413
        assert list(streamed.json()) == ["error"]


@pytest.mark.parametrize("message", ["x" * 5000, "[]", '{"ack": true}', '{"ack": "1"}', "nonsense", b"\0\1"])
def test_a_watcher_that_sends_anything_but_an_acknowledgement_is_disconnected(served: Served, message: Any) -> None:
    with connect(served.ws) as socket:
        socket.recv(60)
        socket.send(message)
        with pytest.raises(ConnectionClosed):
            socket.recv(60)
        assert socket.protocol.close_rcvd is not None
        code = socket.protocol.close_rcvd.code
        assert code in (1003, 1008, 1009)
    assert metric(served, f'kibitz_sockets_refused_total{{code="{code}"}}') >= 1


@pytest.mark.parametrize("name", ["../../etc/passwd", "..%2F..%2Fetc%2Fpasswd", "%00", "a" * 100, "-x", "x y"])
def test_ids_are_never_used_as_paths(served: Served, name: str) -> None:
    for path in (f"/episodes/{name}", f"/episodes/{name}/events", f"/runs/{name}.json", f"/episodes/{name}/stream"):
        answer = httpx.get(served.url + path)
        assert answer.status_code in (404, 422), path
        assert list(answer.json()) == ["error"]


def test_markup_in_events_is_served_as_json(served: Served) -> None:
    events = record.events("ep-markup", note=MARKUP)
    events[0]["payload"]["players"] = [MARKUP, MARKUP]
    events[-1]["payload"]["text"] = MARKUP
    assert httpx.post(f"{served.url}/custom/events", content=record.lines(events)).status_code == 200
    for path in ("/episodes", "/episodes/ep-markup", "/leaderboard.json", "/episodes/ep-markup/events"):
        answer = httpx.get(served.url + path)
        assert "json" in answer.headers["content-type"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert served.get("/episodes/ep-markup")["text"] == MARKUP
    page = httpx.get(f"{served.url}/custom").text
    assert MARKUP not in page and "innerHTML" not in page


def metric(served: Served, name: str) -> float:
    found = [line for line in httpx.get(f"{served.url}/metrics").text.splitlines() if line.startswith(f"{name} ")]
    return float(found[0].split()[-1]) if found else 0.0


def test_one_address_may_open_only_so_many_sockets(guarded: Served) -> None:
    """The limit is 20 here; the server refuses the rest at once and keeps answering."""
    host, port = guarded.url.removeprefix("http://").split(":")
    request = (
        f"GET /custom/ws HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()
    opened = []
    answers: dict[bytes, int] = {}
    try:
        for _ in range(1000):
            one = sockets.create_connection((host, int(port)), 10)
            one.sendall(request)
            opened.append(one)
        for one in opened:
            status = one.recv(12)[9:12]
            answers[status] = answers.get(status, 0) + 1
        assert answers == {b"101": 20, b"429": 980}
        assert guarded.get("/health")["status"] == "healthy"
    finally:
        for one in opened:
            one.close()


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nHost: 127."], ids=["nothing", "half a request"])
def test_idle_connections_count_towards_an_addresss_limit(guarded: Served, sent: bytes) -> None:
    """The limit is 40 here; other addresses are still served, and the server counts what it refuses."""
    refused_before = metric(guarded, 'kibitz_refused_total{status="429"}')
    host, port = guarded.url.removeprefix("http://").split(":")
    opened = []
    try:
        for _ in range(1000):
            opened.append(sockets.create_connection((host, int(port)), 10))
            opened[-1].sendall(sent)
        assert opened[-1].recv(12)[9:12] == b"429"
        elsewhere = httpx.HTTPTransport(local_address="127.0.0.2")
        with httpx.Client(transport=elsewhere) as client:
            assert client.get(f"{guarded.url}/health").status_code == 200
        folder = Path(f"/proc/{guarded.process.pid}/fd")
        wait_until(lambda: len(list(folder.iterdir())) < 100, what="the end of the refused connections")
    finally:
        for one in opened:
            one.close()
    wait_until(lambda: httpx.get(f"{guarded.url}/health").status_code == 200, what="a free connection")
    assert metric(guarded, 'kibitz_refused_total{status="429"}') >= refused_before + 900


@pytest.mark.parametrize("sent", [b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /hea"])
def test_an_idle_connection_is_closed(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    from kibitz.live.http.sockets import plain_socket
    from kibitz.live.openenv.sessions import Sessions
    from tests.live.openenv_server import NEGOTIATION, app, serving

    monkeypatch.setattr(plain_socket, "IDLE_SECONDS", 0.2)
    made = app(Sessions(), [NEGOTIATION], NEGOTIATION)
    with serving(made, http=plain_socket.plain_socket(10, Counter(), Backlog())) as base:
        host, port = base.removeprefix("http://").split(":")
        with sockets.create_connection((host, int(port)), 60) as one:
            one.settimeout(60)
            one.sendall(sent)
            received = b""
            with suppress(ConnectionResetError):
                while more := one.recv(1000):
                    received += more
            assert received[9:12] == (b"200" if sent.count(b"GET") == 2 else b"")


def test_a_body_that_never_arrives_is_a_timeout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from kibitz.live.app import create_app
    from kibitz.live.http import security
    from tests.live.openenv_server import serving

    monkeypatch.setattr(security, "BODY_SECONDS", 0.2)
    app = create_app(LiveConfig(store=str(tmp_path / "a.db"), warm=False))
    try:
        with serving(app) as base:
            host, port = base.removeprefix("http://").split(":")
            with sockets.create_connection((host, int(port)), 60) as one:
                one.sendall(b"POST /custom/stop_episode HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
                assert one.recv(1000)[9:12] == b"408"
    finally:
        app.state.bus.store.close()


def test_too_many_starts_are_refused(serve: Serve) -> None:
    served = serve("--no-warm")
    with httpx.Client() as client, ThreadPoolExecutor(8) as many:
        asked = [many.submit(client.post, f"{served.url}/custom/stop_episode", json={}) for _ in range(200)]
    codes = [one.result().status_code for one in asked]
    assert set(codes) == {404, 429}


@pytest.mark.conformance
def test_schemathesis_finds_nothing(serve: Serve, tmp_path: Path) -> None:
    """Every check over the complete OpenAPI; `fuzz_hooks` says what is omitted and why."""
    pytest.importorskip("schemathesis")
    served = serve("--no-warm", "--max-episodes", "64", "--starts", "1000", "--pace", "0", "--human-seconds", "0.1")
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{served.url}/openapi.json", "--max-examples", "10"]
    command += ["--rate-limit", "400/s", "--seed", "1", "--request-timeout", "60", "--exclude-path-regex", TWICE]
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "tests.live.fuzz_hooks", "PYTHONPATH": str(ROOT)}
    found = subprocess.run(command, capture_output=True, text=True, timeout=1100, cwd=tmp_path, env=environment)
    assert found.returncode == 0, found.stdout[-5000:] + found.stderr[-2000:]


def test_only_a_few_large_bodies_are_read_at_once(served: Served) -> None:
    host, _, port = served.url.removeprefix("http://").partition(":")
    slow = []
    for _ in range(4):
        one = sockets.create_connection((host, int(port)), 10)
        one.sendall(b"POST /episodes HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 20000000\r\n\r\n{")
        slow.append(one)
    lines = record.lines(record.events("ep-large", steps=1))
    with httpx.Client(base_url=served.url, timeout=30) as http:

        def refused() -> bool:
            answer = http.post("/episodes", content=iter([lines]))  # of unknown length
            return answer.status_code == 503 and int(answer.headers["retry-after"]) > 0

        wait_until(refused, 60, "a refusal")
        assert http.post("/custom/events", content=lines).status_code == 200, "small ones still are"
        for one in slow:
            one.close()
        wait_until(lambda: not refused(), 60, "a free slot")
