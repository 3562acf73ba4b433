"""Roles and their tokens, the limit on wrong ones, and the audit log."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from kibitz.core.errors import BadInput
from kibitz.live.access import roles
from kibitz.live.access.control import WRONG_SECONDS, WRONG_TOKENS
from kibitz.live.access.limits import RateLimit
from kibitz.live.access.roles import ROLES, Principal, Tokens
from kibitz.live.app import create_app
from kibitz.live.config import LiveConfig
from kibitz.live.episodes.peers import Peers
from kibitz.live.http import routes_episodes
from kibitz.live.http.security import Guard
from kibitz.live.stream.calls import PeerUnavailable
from tests.live import record
from tests.live.conftest import Served, start_server
from tests.live.machines import wait_until
from tests.live.openenv_server import serving

HOLDERS = {"watch": "wanda", "play": "peter", "start": "stella", "drive": "doris", "administer": "ada"}
TOKENS = {role: f"secret-of-{name}" for role, name in HOLDERS.items()}
LONG = {
    "game": "deal_or_no_deal", "players": ["partner:stubborn"] * 2, "pace": 5.0, "seed": 1,
    "options": {"max_turns": 40, "disagree_ends": False},
}  # fmt: skip


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    """A server that only token holders may watch, and its audit log."""
    folder = tmp_path_factory.mktemp("roles")
    lines = [f"{role} {name} {TOKENS[role]}" for role, name in HOLDERS.items()]
    write(folder / "tokens", *lines, "# somebody else who may start", "start steve secret-of-steve")
    words = ["--tokens", str(folder / "tokens"), "--audit", str(folder / "audit.jsonl"), "--max-episodes", "4"]
    one = start_server(folder / "a.db", "--no-warm", *words)
    yield one, folder / "audit.jsonl"
    assert one.stop() == 0


def write(file: Path, *lines: str) -> None:
    file.write_text("\n".join(lines), encoding="utf-8")


# the permission that each request needs; a holder of it gets another error, or nothing happens
REQUESTS = [
    ("watch", "GET", "/episodes"),
    ("watch", "GET", "/custom/status"),
    ("watch", "GET", "/leaderboard.json"),
    ("watch", "GET", "/tournaments.json"),
    ("watch", "GET", "/metrics"),
    ("play", "POST", "/envs/deal_or_no_deal/step"),
    ("play", "DELETE", "/mcp"),
    ("start", "POST", "/custom/start_episode"),
    ("start", "POST", "/custom/stop_episode"),
    ("start", "POST", "/episodes/ep-none/branch"),
    ("drive", "POST", "/custom/events"),
    ("drive", "POST", "/episodes"),
    ("administer", "POST", "/custom/anything_new"),
    ("administer", "DELETE", "/episodes/ep-none"),
]


@pytest.mark.parametrize("role", ["", *ROLES])
def test_a_role_may_do_what_the_table_says_and_nothing_else(guarded: tuple[Served, Path], role: str) -> None:
    served, _ = guarded
    headers = bearer(TOKENS[role]) if role else {}
    permissions = ROLES.get(role, set())
    with httpx.Client(base_url=served.url, headers=headers) as client:
        for needed, method, path in REQUESTS:
            answer = client.request(method, path, content=b"nonsense" if method == "POST" else None)
            refused = answer.status_code if answer.status_code in (401, 403) else None
            assert refused == (None if needed in permissions else 403 if role else 401), (path, answer.text)
            assert "secret-of" not in answer.text
            if method == "POST":
                # the router would ignore the line break and import with the role of another path
                assert client.post(f"{path}%0A", content=b"nonsense").status_code == 404
        for path in ("/custom", "/e/ep-none", "/lobby", "/static/app.js", "/health", "/ready"):
            assert client.get(path).status_code == 200, "the page has to load before it can ask for a token"
    for needed, path in (("watch", "/custom/ws"), ("play", "/envs/deal_or_no_deal/ws")):
        refused = None
        try:
            with connect(served.url.replace("http", "ws", 1) + path, additional_headers=headers):
                pass
        except InvalidStatus as problem:
            refused = problem.response.status_code
        assert refused == (None if needed in permissions else 403 if role else 401), path


def test_a_sockets_token_may_come_in_the_query_but_not_a_changes(guarded: tuple[Served, Path]) -> None:
    """Browsers cannot send headers with a socket."""
    served, _ = guarded
    with connect(f"{served.ws}?token={TOKENS['watch']}") as socket:
        assert "idle" in json.loads(socket.recv(60))
    start = httpx.post(f"{served.url}/custom/start_episode", params={"token": TOKENS["start"]}, json={})
    assert start.status_code == 401


def test_only_who_started_an_episode_or_an_administrator_may_stop_it(guarded: tuple[Served, Path]) -> None:
    served, _ = guarded
    with httpx.Client(base_url=served.url, timeout=60) as client:
        for allowed in ("start", "administer"):
            started = client.post("/custom/start_episode", json=LONG, headers=bearer(TOKENS["start"]))
            assert started.status_code == 202, started.text
            one = {"episode_id": started.json()["episode_id"]}
            refused = client.post("/custom/stop_episode", json=one, headers=bearer("secret-of-steve"))
            assert refused.status_code == 403 and "Someone else" in refused.json()["error"]
            assert client.post("/custom/stop_episode", json=one, headers=bearer(TOKENS[allowed])).status_code == 200


def test_a_seats_link_is_enough_to_watch_and_play_its_own_episode_and_no_other(guarded: tuple[Served, Path]) -> None:
    served, _ = guarded
    asked = {"game": "deal_or_no_deal", "players": ["human", "heuristic"], "options": {"agent_starts": True}, "pace": 0}
    with httpx.Client(base_url=served.url, timeout=60) as client:
        one, other = (
            client.post("/custom/start_episode", json=asked, headers=bearer(TOKENS["start"])).json() for _ in range(2)
        )
        mine, seat = f"/episodes/{one['episode_id']}", {"seat_token": one["seat_token"]}
        wait_until(lambda: client.get(f"{mine}/turn", params=seat).json()["your_turn"])
        assert client.get(mine, params=seat).status_code == 200
        assert client.get(f"{mine}/events", params=seat).status_code == 200
        watched = f"{served.ws}?episode_id={one['episode_id']}&seat_token={one['seat_token']}"
        with connect(watched) as socket:
            assert json.loads(socket.recv(60))["hello"]["episode_id"] == one["episode_id"]
        with pytest.raises(InvalidStatus), connect(f"{watched}&episode_id="):  # would follow any episode
            pass
        for path in (f"/episodes/{other['episode_id']}", "/episodes", "/custom/status", "/leaderboard.json"):
            assert client.get(path, params=seat | {"episode_id": one["episode_id"]}).status_code == 401
        for wrong in ({"seat_token": other["seat_token"]}, {}):
            assert client.post(f"{mine}/act", json=wrong | {"text": "disagree"}).status_code == 404
        assert client.post(f"{mine}/act", json=seat | {"text": "disagree"}).status_code == 200
        for left in (one, other):
            stop = {"episode_id": left["episode_id"]}
            client.post("/custom/stop_episode", json=stop, headers=bearer(TOKENS["administer"]))


def test_a_browser_without_a_token_gets_a_page_at_an_unknown_address(guarded: tuple[Served, Path]) -> None:
    served, _ = guarded
    browser = {"accept": "text/html,*/*"}
    with httpx.Client(base_url=served.url, timeout=60) as client:
        page = client.get("/nothing-here", headers=browser)
        assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert client.get("/nothing-here").status_code == 401, "programs learn nothing"
        assert client.get("/episodes", headers=browser).status_code == 401


def test_the_audit_log_says_who_did_what_and_contains_no_secret(guarded: tuple[Served, Path]) -> None:
    served, audit = guarded

    def entries() -> list[dict[str, Any]]:
        return [json.loads(line) for line in audit.read_text(encoding="utf-8").splitlines()]

    people = {"game": "deal_or_no_deal", "players": ["human", "human"]}
    with httpx.Client(base_url=served.url, timeout=60) as client:
        started = client.post("/custom/start_episode", json=people, headers=bearer(TOKENS["start"])).json()
        one, secret = {"episode_id": started["episode_id"]}, started["seat_token"]
        client.get(f"/episodes/{one['episode_id']}/events", params={"seat_token": secret})  # reading is no change
        client.post(f"/episodes/{one['episode_id']}/act", json={"seat_token": secret})
        for token in (TOKENS["administer"], "an-unknown-secret", TOKENS["watch"]):
            client.post("/custom/stop_episode", json=one, headers=bearer(token))
        driven = record.events("ep-audit", steps=4)
        for part in (driven[:2], driven[2:4], driven[4:]):
            sent = client.post(
                "/custom/events", content=record.lines(part), headers=bearer(TOKENS["drive"]) | record.KEY
            )
            assert sent.is_success
        client.post("/custom/events", content=record.lines(driven), headers=bearer(TOKENS["drive"]))
    episode_id = started["episode_id"]
    expected = [
        ("stella", "start", "POST /custom/start_episode", 202, episode_id),
        ("seat 0", "play", f"POST /episodes/{episode_id}/act", 422, None),
        ("ada", "administer", "POST /custom/stop_episode", 200, episode_id),
        ("", "watch", "POST /custom/stop_episode", 401, None),
        ("wanda", "watch", "POST /custom/stop_episode", 403, None),
        ("doris", "drive", "POST /custom/events", 200, "ep-audit"),  # its beginning
        ("doris", "drive", "POST /custom/events", 200, "ep-audit"),  # its end
        ("doris", "drive", "POST /custom/events", 403, "ep-audit"),  # without the key
    ]
    wait_until(lambda: entries()[-1]["status"] == 403 and entries()[-1]["who"] == "doris", what="the last line")
    found = entries()[-len(expected) :]
    assert [(x["who"], x["role"], x["what"], x["status"], x.get("episode_id")) for x in found] == expected
    assert all(line["address"] == "127.0.0.1" and line["time"].endswith("+00:00") for line in found)
    text = audit.read_text(encoding="utf-8")
    assert not [word for word in (secret, record.KEY["episode-key"], "secret") if word in text]


def test_tokens_are_rotated_without_a_gap_and_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(roles, "REREAD_SECONDS", 0.0)
    file, lab = tmp_path / "tokens", Principal("lab", "drive")
    write(file, "drive lab first-secret")
    tokens = Tokens("the-operators-own", file)
    assert tokens.find("first-secret") == lab and tokens.find("second-secret") is None
    write(file, "drive lab first-secret", "drive lab second-secret")
    assert tokens.find("first-secret") == tokens.find("second-secret") == lab
    write(file, "drive lab second-secret")
    assert tokens.find("first-secret") is None and tokens.find("second-secret") == lab
    assert tokens.find("the-operators-own") == Principal("token", "administer")
    write(file, "drive lab third-secret", "nonsense")
    assert tokens.find("third-secret") is None and tokens.find("second-secret") == lab
    file.unlink()
    assert tokens.find("second-secret") == lab
    assert caplog.text.count("the tokens read before stay valid") == 1, "logged once"
    write(file, "drive lab third-secret")
    assert tokens.find("third-secret") == lab and tokens.find("second-secret") is None
    assert "secret" not in caplog.text


def test_watching_stays_private_when_the_last_watchers_token_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roles, "REREAD_SECONDS", 0.0)
    file = tmp_path / "tokens"
    write(file, "start stella a-long-secret")
    tokens = Tokens(file=file)
    assert not tokens.private
    write(file, "start stella a-long-secret", "watch wanda another-secret")
    assert tokens.private
    write(file, "start stella a-long-secret")
    assert tokens.private


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (
            ["# a comment", "", "boss ada a-long-secret"],
            "Line 3 of .* should be ROLE NAME TOKEN; the roles are watch, ",
        ),
        (["start a-long-secret"], "Line 1 of .* should be"),
        (["start stella a-long-secret more"], "Line 1 of .* should be"),
        (["start stella secret"], "The token in line 1 of .* is too weak"),
        (["start stella a-long-secret", "drive stella a-long-secret"], "Line 2 of .* repeats a token"),
        ([], "cannot be read: No such file"),
    ],
)
def test_a_malformed_file_of_tokens_is_refused_without_showing_them(
    tmp_path: Path, lines: list[str], sentence: str
) -> None:
    if lines:
        write(tmp_path / "tokens", *lines)
    with pytest.raises(BadInput, match=sentence) as refused:
        Tokens(file=tmp_path / "tokens")
    assert "secret" not in str(refused.value)


def test_the_audit_log_has_a_change_that_failed_halfway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, listed = tmp_path / "audit.jsonl", record.lines(record.events("ep-1"))
    app = create_app(LiveConfig(store=str(tmp_path / "a.db"), token=TOKENS["administer"], audit=file))
    monkeypatch.setattr(routes_episodes, "verify", lambda store, episode_id: 1 // 0)

    async def import_and_read() -> tuple[int, int]:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        headers = bearer(TOKENS["administer"])
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
            imported = await client.post("/episodes", content=listed)
            return imported.status_code, (await client.get("/episodes/ep-1")).status_code

    assert asyncio.run(import_and_read()) == (500, 200), "it was imported, and then something failed"
    app.state.guard.access.audit.close()
    app.state.bus.store.close()
    (line,) = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert line.items() > {"who": "token", "what": "POST /episodes", "status": 500}.items()


def test_an_audit_log_that_cannot_be_written_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="give a different --audit"):
        Guard(None, LiveConfig(audit=tmp_path / "nowhere" / "audit.jsonl"))


def test_wrong_tokens_are_limited_per_address_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "kibitz.live")
    passed = 0.0
    monkeypatch.setattr(time, "monotonic", lambda known=time.monotonic: known() + passed)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    guard = Guard(app, LiveConfig(token="the-right-token"))

    def status(token: str, peer: str = "198.51.100.7") -> int:
        headers = [(b"host", b"x"), (b"authorization", f"Bearer {token}".encode())]
        scope = {"type": "http", "method": "POST", "path": "/custom/stop_episode", "headers": headers}
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(guard(scope | {"client": (peer, 1)}, None, send))  # type: ignore[arg-type]
        return int(sent[0]["status"])

    assert [status("a-wrong-token") for _ in range(WRONG_TOKENS)] == [401] * WRONG_TOKENS
    assert status("a-wrong-token") == status("the-right-token") == 429, "no answer says whether a guess was right"
    assert status("the-right-token", "198.51.100.8") == 200, "other addresses are not affected"
    assert caplog.text.count("wrong token from 198.51.100.7 for /custom/stop_episode") == WRONG_TOKENS
    assert "right-token" not in caplog.text and "a-wrong-token" not in caplog.text
    passed = WRONG_SECONDS
    assert status("the-right-token") == 200


def test_wrong_seat_tokens_and_keys_count_for_readers_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "kibitz.live")
    app = create_app(LiveConfig(store=str(tmp_path / "a.db"), warm=False, token="the-right-token"))
    app.state.guard.access._wrong = RateLimit(0, WRONG_TOKENS)  # none expires while this test waits for a processor
    app.state.bus.begin(record.row("ep-1"))
    app.state.bus.begin(record.row("ep-2", origin="driver"))
    app.state.runner.running["ep-1"] = SimpleNamespace(seats={"0-right": (0, SimpleNamespace(join=lambda: None))})
    wrong = {"seat_token": "0-wrong", "episode_id": "ep-1"}

    def logged() -> list[str]:
        lines = [line.getMessage() for line in caplog.records if "wrong token" in line.getMessage()]
        return [line.rpartition(" ")[2] for line in lines]

    try:
        with serving(app) as base, httpx.Client(base_url=base, timeout=60) as client:
            assert client.get("/episodes/ep-1/turn", params=wrong).status_code == 404
            assert client.get("/episodes/ep-1/events", params=wrong).status_code == 200
            assert client.get("/episodes/ep-1/stream", params=wrong).status_code == 200
            assert client.get("/episodes/ep-2/events", headers=record.KEY).status_code == 200
            with client.stream("GET", "/custom/ws", params=wrong, headers={"accept": "text/event-stream"}) as stream:
                assert "hello" in next(stream.iter_lines())
            with connect(f"{base.replace('http', 'ws')}/custom/ws?{httpx.QueryParams(wrong)}") as socket:
                assert "hello" in json.loads(socket.recv(60))
            read = [f"/episodes/{one}" for one in ("ep-1/turn", "ep-1/events", "ep-1/stream", "ep-2/events")]
            assert logged() == [*read, "/custom/ws", "/custom/ws"]
            for harmless in ({"seat_token": "0-right"}, {"seat_token": ""}, {}):
                assert client.get("/episodes/ep-1/events", params=harmless).status_code == 200
            client.get("/episodes/ep-1/turn")
            assert len(logged()) == 6
            for _ in range(WRONG_TOKENS - 6):
                assert client.get("/episodes/ep-1/events", params=wrong).status_code == 200
            for params, headers in (({"seat_token": "0-right"}, {}), ({}, record.KEY)):
                limited = client.get("/episodes/ep-1/events", params=params, headers=headers)
                assert limited.status_code == 429, "no answer says whether a guess was right"
            assert client.get("/episodes/ep-1/events").status_code == 200
    finally:
        app.state.runner.running.clear()
        app.state.bus.store.close()


def test_a_seat_that_cannot_be_checked_is_answered_with_503_and_no_invalid_id_is_looked_up(tmp_path: Path) -> None:
    """Only the server that plays an episode knows its seats' tokens, and it may be gone."""
    write(tmp_path / "tokens", "watch wanda secret-of-wanda")
    asked: list[str] = []
    runner = SimpleNamespace(running={}, bus=SimpleNamespace(link=None, store=SimpleNamespace(owner="here")))
    peers = Peers(cast(Any, runner))

    async def call(owner: str, request: Any) -> Any:
        raise PeerUnavailable

    def episode(episode_id: str) -> Any:
        asked.append(episode_id)
        return SimpleNamespace(status="running", origin="server", owner="there")

    runner.bus.link, runner.bus.store.episode = SimpleNamespace(calls=SimpleNamespace(call=call)), episode
    guard = Guard(None, LiveConfig(tokens=tmp_path / "tokens"))
    guard.access.join = peers.join

    def status(episode_id: bytes) -> int:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http", "method": "GET", "path": "/custom/ws", "headers": [(b"host", b"x")],
            "query_string": b"seat_token=0-x&episode_id=" + episode_id, "client": ("198.51.100.7", 1),
        }  # fmt: skip
        asyncio.run(guard(scope, None, send))  # type: ignore[arg-type]
        return int(sent[0]["status"])

    assert status(b"ep-1") == 503
    assert status(b"%00") == status(b"..%2F") == 401
    assert asked == ["ep-1"], "PostgreSQL refuses some text"
