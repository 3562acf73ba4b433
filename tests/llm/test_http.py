"""The HTTP client and servers that send unexpected responses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from kibitz.core.errors import BadInput
from kibitz.llm.providers.http import HttpClient, InvalidResponse, Response, ResponseTooLarge, redacted


def exchange(responses: list[bytes], times: int = 1, max_body_bytes: int = 1_000) -> tuple[list[Response], int]:
    """Send `times` requests to a server with these responses; returns the replies and the number of connections."""

    async def run() -> tuple[list[Response], int]:
        connections, rest = 0, list(responses)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            try:
                while rest:
                    await reader.readuntil(b"\r\n\r\n")
                    answer = rest.pop(0)
                    writer.write(answer.removesuffix(b"<close>"))
                    if answer.endswith(b"<close>"):
                        break
            except asyncio.IncompleteReadError:
                pass
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        post = HttpClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", max_body_bytes)
        try:
            async with asyncio.timeout(60):
                replies = [await post.send("GET", "/models", {}) for _ in range(times)]
            return replies, connections
        finally:
            await post.close()
            server.close()
            await asyncio.sleep(0.01)

    return asyncio.run(run())


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "response",
    [
        OK + b"Content-Length: 5\r\n\r\nhello",
        OK + b"CONTENT-LENGTH:5\r\nX-Odd\r\n\r\nhello",
        OK + b"Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nTrailer: 1\r\n\r\n",
        OK + b"\r\nhello<close>",
        OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello<close>",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 5\r\n\r\nhello",
        b"HTTP/1.0 200\r\nContent-Length: 5\r\n\r\nhello",
    ],
)
def test_a_body_is_read_in_every_encoding(response: bytes) -> None:
    (reply,), _ = exchange([response])
    assert (reply.status, reply.body) == (200, b"hello")


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (b"220 smtp ready\r\n\r\n<close>", InvalidResponse),
        (b"\x00\x01\x02<close>", EOFError),
        (b"<close>", EOFError),
        (OK + b"Content-Length: -5\r\n\r\n", InvalidResponse),
        (OK + b"Content-Length: five\r\n\r\n", InvalidResponse),
        (OK + b"Content-Length: 50\r\n\r\nhello<close>", EOFError),
        (OK + b"Content-Length: 5000\r\n\r\n", ResponseTooLarge),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", InvalidResponse),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nffffff\r\n", ResponseTooLarge),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel<close>", EOFError),
        (OK + b"Transfer-Encoding: gzip\r\n\r\n", InvalidResponse),
        (OK + b"\r\n" + b"x" * 5_000 + b"<close>", ResponseTooLarge),
        (OK + b"X: " + b"x" * 100_000, InvalidResponse),
    ],
)
def test_an_incomplete_or_invalid_response_is_an_error(response: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        exchange([response])


def test_an_idle_connection_that_the_server_closed_is_replaced() -> None:
    good = OK + b"Content-Length: 2\r\n\r\nok"
    replies, connections = exchange([good, good + b"<close>", good], times=3)
    assert [reply.body for reply in replies] == [b"ok"] * 3
    assert connections == 2


def test_a_request_that_crashes_the_server_is_repeated_once_not_on_every_idle_connection() -> None:
    received = 0

    async def run() -> None:
        crashing = False

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal received
            with suppress(asyncio.IncompleteReadError):
                while await reader.readuntil(b"\r\n\r\n"):
                    received += 1
                    if crashing:
                        break
                    await asyncio.sleep(0.02)  # so that each request needs its own connection
                    writer.write(OK + b"Content-Length: 2\r\n\r\nok")
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        post = HttpClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        await asyncio.gather(*(post.send("POST", "/x", {}) for _ in range(8)))
        assert len(post.idle) == received == 8
        crashing = True
        try:
            await post.send("POST", "/x", {})
        finally:
            assert post.idle == []
            server.close()
            await asyncio.sleep(0.01)

    with pytest.raises(EOFError):
        asyncio.run(run())
    assert received == 8 + 2


@pytest.mark.parametrize(
    "address", ["http://localhost:99999/v1", "http://localhost:80a/v1", "http://[::1/v1", "ftp://x/v1", "http:///v1"]
)
def test_an_invalid_address_is_bad_input(address: str) -> None:
    with pytest.raises(BadInput, match="must look like https://host/v1"):
        HttpClient(address)


def test_secrets_are_removed_from_an_address() -> None:
    assert redacted("https://user:password@host:8443/v1?key=secret#x") == "https://host:8443/v1"


def test_a_refusing_proxy_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    received = []

    async def run() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            received.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 407 no\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        monkeypatch.setenv("https_proxy", f"http://me:word@127.0.0.1:{server.sockets[0].getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        try:
            await HttpClient("https://api.example.com/v1").send("GET", "/models", {})
        finally:
            server.close()
            await asyncio.sleep(0.01)

    work: Callable[[], Awaitable[None]] = run
    with pytest.raises(OSError, match="proxy"):
        asyncio.run(work())  # type: ignore[arg-type]
    assert received[0].startswith(b"CONNECT api.example.com:443 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic bWU6d29yZA==" in received[0]
