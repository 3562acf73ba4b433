"""Who is calling: without a token only this machine, and limits per client, behind proxies too."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kibitz.core.errors import BadInput
from kibitz.live.config import LiveConfig
from kibitz.live.http.security import Guard
from kibitz.live.http.sockets.client_address import client_address, limit_key
from tests.live.conftest import Serve
from tests.live.openenv_server import serving

TOKEN = "a-long-secret"


def scope(peer: str | None, *headers: tuple[str, str], **more: Any) -> dict[str, Any]:
    given = [(name.encode(), value.encode()) for name, value in (("host", "127.0.0.1"), *headers)]
    client = None if peer is None else (peer, 1)
    return {"type": "http", "method": "GET", "path": "/health", "client": client, "headers": given} | more


def status(guard: Guard, asked: dict[str, Any]) -> int:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(guard(asked, None, send))  # type: ignore[arg-type]
    return int(sent[0]["status"])


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})


@pytest.fixture
def openenv_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The app that openenv.yaml names, made afresh without a token."""
    monkeypatch.delenv("KIBITZ_TOKEN", raising=False)
    monkeypatch.setenv("KIBITZ_STORE", str(tmp_path / "a.db"))
    monkeypatch.delitem(sys.modules, "kibitz.live.openenv_app", raising=False)
    made = importlib.import_module("kibitz.live.openenv_app").app
    yield made
    made.state.bus.store.close()
    del sys.modules["kibitz.live.openenv_app"]


def test_openenvs_app_without_a_token_does_not_answer_the_network(openenv_app: Any) -> None:
    """Whatever the tool listens on, and whatever Host the caller claims."""

    async def statuses() -> list[tuple[int, str]]:
        network = httpx.ASGITransport(openenv_app, client=("192.0.2.7", 1))
        async with httpx.AsyncClient(transport=network, base_url="http://localhost") as caller:
            answers = [await caller.get(path) for path in ("/health", "/metadata", "/episodes")]
            answers.append(await caller.post("/reset"))
            return [(answer.status_code, answer.json()["error"]) for answer in answers]

    for status_code, error in asyncio.run(statuses()):
        assert status_code == 403 and "token" in error
    with serving(openenv_app) as base:
        assert httpx.get(f"{base}/health").status_code == 200
        for host in ("evil.example", "127.evil.example"):  # a name that was pointed at this machine
            assert httpx.get(f"{base}/health", headers={"host": host}).status_code == 403


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", None])
def test_without_a_token_this_machine_is_answered(peer: str | None) -> None:
    """None is a Unix socket, which no other machine can reach."""
    assert status(Guard(app, LiveConfig()), scope(peer)) == 200


@pytest.mark.parametrize("peer", ["10.0.0.7", "192.0.2.2", "fe80::1%eth0", "::ffff:10.0.0.7", "testclient", ""])
def test_without_a_token_no_other_machine_is_answered(peer: str) -> None:
    assert status(Guard(app, LiveConfig()), scope(peer)) == 403
    assert status(Guard(app, LiveConfig(token=TOKEN)), scope(peer)) == 200


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "x-real-ip"])
def test_without_a_token_a_proxy_on_this_machine_is_refused(header: str) -> None:
    """It asks for someone elsewhere, and a caller can write 127.0.0.1 there."""
    assert status(Guard(app, LiveConfig()), scope("127.0.0.1", (header, "127.0.0.1"))) == 403
    with pytest.raises(BadInput, match="--token"):
        LiveConfig(trusted_proxies=1).check()


@pytest.mark.parametrize(
    ("proxies", "forwarded", "client"),
    [
        (0, ["1.1.1.1"], "10.0.0.1"),  # not trusted: the client may have written it
        (1, ["1.1.1.1"], "1.1.1.1"),
        (1, ["6.6.6.6, 1.1.1.1"], "1.1.1.1"),  # the left part is the client's own
        (1, ["6.6.6.6", "1.1.1.1"], "1.1.1.1"),  # in two header lines
        (2, ["6.6.6.6, 1.1.1.1, 10.0.0.2"], "1.1.1.1"),
        (2, ["1.1.1.1"], "10.0.0.1"),  # did not pass both proxies
        (1, [], "10.0.0.1"),
        (1, ["unknown"], "10.0.0.1"),
        (1, ["1.1.1.1:4711"], "1.1.1.1"),
        (1, ["[2001:db8::1]:4711"], "2001:db8::/64"),
    ],
)
def test_the_client_is_the_entry_that_the_first_trusted_proxy_appended(
    proxies: int, forwarded: list[str], client: str
) -> None:
    asked = scope("10.0.0.1", *(("x-forwarded-for", line) for line in forwarded))
    assert client_address(asked, proxies) == client


def test_addresses_of_one_ipv6_network_count_together() -> None:
    assert limit_key("2001:db8:0:1::1") == limit_key("2001:db8:0:1:ffff::2") == "2001:db8:0:1::/64"
    assert limit_key("2001:db8:0:2::1") != limit_key("2001:db8:0:1::1")
    assert limit_key("::ffff:10.0.0.7") == limit_key("10.0.0.7") == "10.0.0.7"


def test_limits_count_each_client_behind_a_proxy(serve: Serve) -> None:
    served = serve("--no-warm", "--starts", "0.5", "--trusted-proxies", "1", env={"KIBITZ_TOKEN": TOKEN})

    def stop(client: str) -> int:
        headers = {"authorization": f"Bearer {TOKEN}", "x-forwarded-for": f"9.9.9.9, {client}"}
        return httpx.post(f"{served.url}/custom/stop_episode", headers=headers).status_code

    first = [stop("1.1.1.1") for _ in range(6)]
    assert first[0] == 404 and 429 in first
    assert stop("2.2.2.2") == 404, "another client"
    page = httpx.get(f"{served.url}/metrics").text
    assert 'kibitz_refused_total{status="429"}' in page
