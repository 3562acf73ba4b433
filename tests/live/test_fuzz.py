"""Hostile messages to every parser: a refusal with a reason, never a failure of the server.

hypothesis puts values that JSON allows but programs rarely expect into messages that are valid otherwise.
"""

from __future__ import annotations

import copy
import json
import logging
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from kibitz.live.app import create_app
from kibitz.live.config import LiveConfig
from kibitz.live.http.sockets.fast_socket import fast_socket
from kibitz.live.http.sockets.plain_socket import plain_socket
from kibitz.live.serve import MAX_MESSAGE_BYTES
from tests.live import record
from tests.live.openenv_server import NEGOTIATION, serving

try_out = partial(
    settings, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip
# text that Python's json module would not write, by the string that stands for it
LITERALS = {
    '"<huge>"': "7" * 5000,
    '"<long>"': "-" + "7" * 4000,
    '"<wide>"': "9" * 30,
    '"<overflow>"': "1e999",
    '"<deep>"': "[" * 2000 + "]" * 2000,
    '"<nested>"': "[" * 300 + "]" * 300,
    '"<nan>"': "NaN",
}
SCALARS = [
    None, True, False, 0, -1, 2**31, 2**53, 2**63, 2**64, -(2**70), 1e308, -0.0, 0.5, "", "\ud800", "\0", "\u202e",
    "é" * 300, "x" * 5000, *(name.strip('"') for name in LITERALS), [], {}, [[]], {"": {}}, [None],
]  # fmt: skip
HOSTILE = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["0", "a", "\ud800"]), inner, max_size=3)
    ),
    max_leaves=4,
).map(copy.deepcopy)


def written(value: Any) -> bytes:
    text = json.dumps(value)
    for stands_for, literal in LITERALS.items():
        text = text.replace(stands_for, literal)
    return text.encode()


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where a value can be replaced, the whole included."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in inner for found in places(item, (*path, key)))]


@st.composite
def spoiled(draw: st.DrawFn, valid: Any) -> Any:
    """A valid message with up to three hostile values, one of them perhaps under a new key."""
    holder = [copy.deepcopy(valid)]
    for _ in range(draw(st.integers(1, 3))):
        *way, last = (0, *draw(st.sampled_from(places(holder[0]))))
        at: Any = holder
        for key in way:
            at = at[key]
        if isinstance(at[last], dict) and draw(st.booleans()):
            at[last][draw(st.sampled_from(["extra", "seat", "options", "\ud800"]))] = draw(HOSTILE)
        else:
            at[last] = draw(HOSTILE)
    return holder[0]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("fuzz")
    app = create_app(LiveConfig(store=str(folder / "a.db"), starts=1e6, warm=False, runs=Path(folder), audio=folder))
    backlog = app.state.bus.hub.backlog
    parsers = {"http": plain_socket(math.inf, Counter(), backlog), "ws": fast_socket(backlog)}  # as `kibitz serve` has
    with serving(app, **parsers, ws_max_size=MAX_MESSAGE_BYTES, ws_per_message_deflate=False) as url:
        yield url
    app.state.bus.store.close()


@pytest.fixture(scope="module")
def client(base: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=base, timeout=60) as one:
        yield one


EPISODE = record.events("ep-fuzz", steps=1, speech=True)
EPISODE.insert(2, EPISODE[0] | {"type": "commentary", "payload": {"turn": 0, "text": "Words.", "audio": None}})
EPISODE.insert(
    2, EPISODE[0] | {"type": "decision", "payload": {"turn": 0, "seat": 0, "private": {"0": {"reason": "x"}}}}
)
for number, event in enumerate(EPISODE):
    event["seq"] = number


@pytest.mark.conformance
@pytest.mark.parametrize("path", ["/custom/events", "/episodes"])
@try_out(max_examples=60)
@given(st.data())
def test_hostile_events_are_stored_or_refused(client: httpx.Client, path: str, data: st.DataObject) -> None:
    """What is accepted can be read, too."""
    events = data.draw(spoiled(EPISODE))
    name = f"ep-{client.headers.setdefault('x-count', '0')}"
    client.headers["x-count"] = str(int(client.headers["x-count"]) + 1)
    lines = events if isinstance(events, list) else [events]
    body = b"\n".join(written(one) for one in lines).replace(b"ep-fuzz", name.encode())
    answer = client.post(path, content=body)
    assert answer.status_code in (200, 201, 409, 422), answer.text
    assert answer.status_code < 300 or answer.json()["error"]
    for read in (f"/episodes/{name}", f"/episodes/{name}/events", "/episodes?limit=1"):
        assert client.get(read).status_code in (200, 404), read


@pytest.mark.conformance
@try_out(max_examples=50)
@given(st.binary(max_size=200) | st.lists(HOSTILE, max_size=3).map(written))
def test_bytes_that_are_no_events_are_refused(client: httpx.Client, body: bytes) -> None:
    assert client.post("/custom/events", content=body).status_code == 422


CALLS = [
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}},
    {"jsonrpc": "2.0", "id": "a", "method": "openenv/session/close", "params": {"session_id": "x"}},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "look", "arguments": {}}},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "propose", "arguments": {"oA": [0, 1, 0]}}},
    {
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "new_episode", "arguments": {"options": {"seed": 1, "max_turns": 4}}},
    },
]  # fmt: skip


@pytest.mark.conformance
@try_out(max_examples=100)
@given(st.data())
def test_hostile_mcp_messages_get_an_answer(client: httpx.Client, data: st.DataObject) -> None:
    call = data.draw(spoiled(data.draw(st.sampled_from(CALLS))))
    path = data.draw(st.sampled_from([f"/envs/{NEGOTIATION}/mcp", "/mcp"]))
    answer = client.post(path, content=written(call))
    assert answer.status_code in (200, 202, 400, 429), answer.text
    if answer.status_code == 200:
        assert answer.json().get("error", {}).get("code") != -32603, answer.text
    if session := answer.headers.get("mcp-session-id"):
        client.delete(path, headers={"mcp-session-id": session})


@pytest.mark.conformance
@try_out(max_examples=100)
@given(st.data())
def test_hostile_requests_for_an_environment_are_refused(client: httpx.Client, data: st.DataObject) -> None:
    path, valid = data.draw(st.sampled_from([
        ("reset", {"seed": 1, "episode_id": "a", "options": {"max_turns": 4}}),
        ("step", {"action": {"act_type": 0, "oA": [1, 0, 0]}, "request_id": "a"}),
    ]))  # fmt: skip
    answer = client.post(f"/envs/{NEGOTIATION}/{path}", content=written(data.draw(spoiled(valid))))
    assert answer.status_code in (200, 404, 422, 429), answer.text
    if session := answer.headers.get("x-session-id"):
        client.delete(f"/envs/{NEGOTIATION}/mcp", headers={"mcp-session-id": session})


MESSAGES = [
    {"type": "reset", "data": {"seed": 1, "max_turns": 4}},
    {"type": "step", "data": {"act_type": 0, "oA": [1, 0, 0]}},
    {"type": "state"},
    {"type": "mcp", "data": CALLS[-1]},
]


@pytest.mark.conformance
@try_out(max_examples=100)
@given(st.lists(st.sampled_from(MESSAGES).flatmap(spoiled).map(written) | st.binary(max_size=50), max_size=4))
def test_hostile_messages_to_an_environments_socket_get_a_reply(base: str, messages: list[bytes]) -> None:
    with connect(base.replace("http", "ws") + f"/envs/{NEGOTIATION}/ws") as socket:
        for message in messages:
            socket.send(message)
            reply = socket.recv(60)
            assert "The environment failed" not in reply and "-32603" not in reply, reply


@pytest.mark.conformance
@try_out(max_examples=100)
@given(spoiled({"ack": 1}).map(written) | st.binary(max_size=50))
def test_hostile_messages_from_a_watcher_end_with_a_reason(base: str, message: bytes) -> None:
    with connect(base.replace("http", "ws") + "/custom/ws") as socket, suppress(ConnectionClosed):
        socket.send(message.decode("utf-8", "replace"))
        socket.send(b"the end")  # never valid
        while True:
            socket.recv(60)
    closed = socket.protocol.close_rcvd
    assert closed is not None and closed.code in (1003, 1008, 1009) and closed.reason


def frame(head: int, text: bytes, mask: bytes) -> bytes:
    """A short frame as a client sends it."""
    masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(text))
    return bytes((head, 0x80 | len(text))) + mask + masked


FRAMES = st.builds(
    frame,
    st.sampled_from([0x81, 0x01, 0x80, 0x00, 0x82, 0x88, 0x89, 0x8A, 0xC1, 0x83]),
    st.sampled_from([b'{"ack":0}', b'{"ack": 5}', b'{"ack":-1}', b'{"ack":00}', b"", b"\xff\xfe", b"\x03\xe8"]),
    st.sampled_from([b"\0\0\0\0", b"\x01\x02\x03\x04", b"\xff\xff\xff\xff"]),
)


@pytest.mark.conformance
@try_out(max_examples=100)
@given(st.lists(FRAMES | st.binary(max_size=20), max_size=6), st.integers(1, 40))
def test_hostile_frames_from_a_watcher_harm_no_one_else(
    base: str, client: httpx.Client, frames: list[bytes], size: int
) -> None:
    """Acknowledgements skip the parser, so frames come whole, in pieces and mixed with others."""
    sent = b"".join(frames)
    with connect(base.replace("http", "ws") + "/custom/ws", close_timeout=0) as socket:
        socket.recv(60)
        with suppress(OSError):  # the server has closed the connection
            for start in range(0, len(sent), size):
                socket.socket.sendall(sent[start : start + size])
    assert client.get("/health").status_code == 200


@pytest.fixture(autouse=True)
def failures(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The server logs a traceback for nothing that a caller can send."""
    with caplog.at_level(logging.ERROR):
        yield
    assert not caplog.records, caplog.text
