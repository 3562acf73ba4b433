"""MCP over POST /mcp and its socket, with a game's tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from kibitz.live.openenv.sessions import Sessions
from tests.live.machines import wait_until
from tests.live.openenv_server import NEGOTIATION, app, say, serving, talking


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with serving(app(Sessions(limit=8), [NEGOTIATION], NEGOTIATION)) as base, httpx.Client(base_url=base) as client:
        client.timeout = httpx.Timeout(60)
        yield client


def rpc(http: httpx.Client, method: str, session: str = "", **params: Any) -> httpx.Response:
    headers = {"Mcp-Session-Id": session} if session else {}
    return http.post("/mcp", json={"jsonrpc": "2.0", "id": 7, "method": method, "params": params}, headers=headers)


def call(http: httpx.Client, session: str, name: str, **arguments: Any) -> dict[str, Any]:
    result: dict[str, Any] = rpc(http, "tools/call", session, name=name, arguments=arguments).json()["result"]
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    return result


def test_a_client_can_initialize_list_tools_and_play_an_episode(http: httpx.Client) -> None:
    begun = rpc(http, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={})
    session = begun.headers["Mcp-Session-Id"]
    assert begun.json()["result"]["protocolVersion"] == "2025-06-18"
    notified = http.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (notified.status_code, notified.content) == (202, b"")
    listed = rpc(http, "tools/list", session).json()["result"]["tools"]
    assert [tool["name"] for tool in listed][:3] == ["new_episode", "look", "propose"]
    shown = call(http, session, "new_episode", options={"seed": 3})["structuredContent"]
    counts = dict(zip(("books", "hats", "balls"), shown["counts"], strict=True))
    refused = call(http, session, "propose", books=99, hats=0, balls=0)
    assert refused["isError"] and "illegal" in refused["structuredContent"]["error"]
    assert call(http, session, "look")["structuredContent"]["turns_remaining"] == shown["turns_remaining"]
    ended = call(http, session, "end", **counts)["structuredContent"]
    assert ended["done"] and ended["result"] is not None
    assert call(http, session, "agree")["isError"]  # the episode is over
    assert http.delete("/mcp", headers={"Mcp-Session-Id": session}).status_code == 204
    assert http.delete("/mcp").status_code == 422
    assert rpc(http, "tools/call", session, name="look").json()["error"]["code"] == -32602


def test_a_tool_called_without_a_session_begins_one(http: httpx.Client) -> None:
    first = rpc(http, "tools/call", name="propose", arguments={"books": 1, "hats": 0, "balls": 0})
    session = first.headers["Mcp-Session-Id"]
    history = call(http, session, "look")["structuredContent"]["history"]
    assert "You: PROPOSE: I keep 1 book" in history


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"[]", -32600),
        (b"{}", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"dance"}', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":[]}}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"session_id":"no"}}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"session_id":5}}', -32602),
    ],
)
def test_an_invalid_request_gets_a_json_rpc_error(http: httpx.Client, sent: bytes, code: int) -> None:
    reply = http.post("/mcp", content=sent)
    assert (reply.status_code, reply.json()["error"]["code"]) == (200, code)


@pytest.mark.parametrize(
    "sent",
    [
        b"{",
        b"\xff",
        b'{"jsonrpc":"2.0","id":%s,"method":"ping"}' % (b"7" * 5000),
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"propose","arguments":{"books":%s}}}'
        % (b"7" * 400),
        b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":%s%s}}' % (b"[" * 200, b"]" * 200),
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":%s' % (b'{"a":' * 10_000),
    ],
    ids=["half", "not text", "huge id", "huge argument", "surrogate", "deep", "deeper"],
)
def test_a_message_that_no_program_can_handle_is_a_parse_error(http: httpx.Client, sent: bytes) -> None:
    reply = http.post("/mcp", content=sent)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, -32700)
    with talking(str(http.base_url).rstrip("/"), "/mcp") as connection:
        connection.send(sent)
        assert json.loads(connection.recv(60))["error"]["code"] == -32700
        connection.send('{"jsonrpc":"2.0","id":1,"method":"ping"}')
        assert json.loads(connection.recv(60))["result"] == {}, "the connection goes on"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("dance", {}), ("propose", {"books": "one"}), ("agree", {"books": 1}), ("new_episode", {"options": {"x": 1}})],
)
def test_an_invalid_tool_call_gets_an_answer_that_a_model_can_read(
    http: httpx.Client, name: str, arguments: dict[str, Any]
) -> None:
    session = rpc(http, "initialize").headers["Mcp-Session-Id"]
    result = call(http, session, name, **arguments)
    assert result["isError"] and result["structuredContent"]["error"]
    http.delete("/mcp", headers={"Mcp-Session-Id": session})


def test_openenvs_own_session_methods_share_the_episode_with_a_socket(http: httpx.Client) -> None:
    session = rpc(http, "openenv/session/create").json()["result"]["session_id"]
    with talking(str(http.base_url).rstrip("/"), f"/ws?session_id={session}") as connection:
        shown = say(connection, "reset", {"seed": 4})["data"]["observation"]
        named = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "look", "session_id": session}}
        assert http.post("/mcp", json=named).json()["result"]["structuredContent"]["counts"] == shown["counts"]
        inside = say(connection, "mcp", {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "look"}})
        assert inside["data"]["result"]["structuredContent"]["counts"] == shown["counts"]
    closed = rpc(http, "openenv/session/close", session_id=session).json()["result"]
    assert closed == {"session_id": session, "closed": True}


@pytest.fixture
def few() -> Iterator[tuple[Sessions, httpx.Client, str]]:
    sessions = Sessions(limit=2, grace=0.0)
    with serving(app(sessions, [NEGOTIATION], NEGOTIATION)) as base, httpx.Client(base_url=base) as client:
        client.timeout = httpx.Timeout(60)
        yield sessions, client, base


@pytest.mark.parametrize("lent", [False, True])
@pytest.mark.parametrize("how", ["delete", "rpc"])
def test_a_session_with_a_socket_stays_until_the_socket_ends(
    few: tuple[Sessions, httpx.Client, str], lent: bool, how: str
) -> None:
    sessions, http, base = few
    name = rpc(http, "openenv/session/create").json()["result"]["session_id"] if lent else ""
    with talking(base, f"/ws?session_id={name}" if lent else "/ws") as connection:
        create = {"jsonrpc": "2.0", "id": 1, "method": "openenv/session/create", "params": {}}
        name = say(connection, "mcp", create)["data"]["result"]["session_id"]
        say(connection, "reset", {"seed": 4, "episode_id": "mine"})
        closing = {"session_id": name, "closed": False, "closing": True}
        for _ in range(2):  # a second request changes nothing
            if how == "delete":
                answer = http.delete("/mcp", headers={"Mcp-Session-Id": name})
                assert (answer.status_code, answer.json()) == (202, closing)
            else:
                assert rpc(http, "openenv/session/close", session_id=name).json()["result"] == closing
        assert len(sessions) == 1
        with talking(base, f"/ws?session_id={name}") as second:
            assert json.loads(second.recv(60))["data"]["code"] == "SESSION_ERROR", "it already has a socket"
        for _ in range(3):  # other sessions give way to each other, never this one
            assert http.post("/reset", json={}).status_code == 200
        assert len(sessions) == 2
        assert say(connection, "state")["data"]["episode_id"] == "mine"
        assert http.get("/state", params={"session_id": name}).json()["episode_id"] == "mine"
    wait_until(lambda: len(sessions) == 1, what="the end of the session")
    assert http.get("/state", params={"session_id": name}).status_code == 404


def test_an_invalid_reset_does_not_end_a_known_session(
    few: tuple[Sessions, httpx.Client, str],
) -> None:
    sessions, http, _ = few
    name = rpc(http, "initialize").headers["Mcp-Session-Id"]
    assert http.post("/reset", json={"colour": "red"}, headers={"X-Session-Id": name}).status_code == 422
    assert http.post("/reset", json={"colour": "red"}).status_code == 422
    assert len(sessions) == 1
    assert not call(http, name, "look")["isError"]


def test_the_mcp_socket_plays_too(http: httpx.Client) -> None:
    with talking(str(http.base_url).rstrip("/"), "/mcp") as connection:
        connection.send('{"jsonrpc":"2.0","method":"notifications/initialized"}')  # gets no answer
        connection.send('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"disagree"}}')
        assert json.loads(connection.recv(60))["result"]["structuredContent"]["done"]
