"""A small HTTP/1.1 client for many requests at once to one address.

Connections are kept and nothing is done that a chat request does not need: about 0.1 ms a request,
where httpx 0.28 costs 1 ms and, with 64 connections in one pool, 8 ms. No redirects are followed, so
a key never travels to another host.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from base64 import b64encode
from contextlib import suppress
from importlib import import_module
from typing import NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from kibitz.core.errors import BadInput

READ = 65_536
STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: |$)")


class Response(NamedTuple):
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes


class TooLarge(Exception):
    """The body is longer than anybody should read."""


class NotHTTP(Exception):
    """What came back is not HTTP, or not all of it."""


class Line(NamedTuple):
    """One open connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Post:
    """Sends requests to one base address; as many connections as there are requests under way."""

    def __init__(self, base_url: str, largest_body: int = 2_000_000) -> None:
        try:
            parts, port = urlsplit(base_url), urlsplit(base_url).port
        except ValueError:  # its text would show the address
            raise BadInput("The address of the model cannot be read; it should look like https://host/v1.") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(f"The address {shown(base_url)!r} should look like https://host/v1.")
        self.secure = parts.scheme == "https"
        self.host = parts.hostname
        self.port = port or (443 if self.secure else 80)
        self.path = parts.path.rstrip("/")
        self.largest_body = largest_body
        default = self.port == (443 if self.secure else 80)
        name = f"[{self.host}]" if ":" in self.host else self.host
        self.host_header = name if default else f"{name}:{self.port}"
        self.idle: list[Line] = []
        self.tls: ssl.SSLContext | None = None

    async def send(self, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> Response:
        """OSError, EOFError, NotHTTP or TooLarge when it does not work out."""
        while self.idle:
            line = self.idle.pop()
            if line.writer.is_closing() or line.reader.at_eof():
                line.writer.close()
                continue
            try:
                return await self._exchange(line, method, path, headers, body)
            except _Stale:  # the server had closed a kept connection, or it fails: to be found out once, on a new one
                self._hang_up()
        try:
            return await self._exchange(await self._connect(), method, path, headers, body)
        except _Stale:
            raise EOFError("the server closed the connection without an answer") from None

    def _hang_up(self) -> list[Line]:
        lines, self.idle = self.idle, []
        for line in lines:
            line.writer.close()
        return lines

    async def close(self) -> None:
        for line in self._hang_up():
            with suppress(OSError):
                await line.writer.wait_closed()

    async def _exchange(self, line: Line, method: str, path: str, headers: dict[str, str], body: bytes) -> Response:
        fixed = {"Host": self.host_header, "Content-Length": str(len(body)), "Accept-Encoding": "identity"}
        head = "".join(f"{name}: {value}\r\n" for name, value in {**fixed, **headers}.items())
        kept = False
        try:
            line.writer.write(f"{method} {self.path}{path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body)
            response, kept = await self._read(line.reader)
            return response
        except asyncio.LimitOverrunError:
            raise NotHTTP("a line that never ends") from None
        finally:
            if kept:
                self.idle.append(line)
            else:
                line.writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> tuple[Response, bool]:
        """One response, and whether the connection can be used again."""
        status = 100
        headers: dict[str, str] = {}
        while 100 <= status < 200:  # "continue" and the like come before the answer proper
            status, headers = _parsed(await self._head(reader))
        coding = headers.get("transfer-encoding", "identity").lower()
        length = headers.get("content-length")
        kept = headers.get("connection", "").lower() != "close"
        if coding == "chunked":
            body = await self._chunks(reader)
        elif coding != "identity":
            raise NotHTTP(f"an unknown transfer coding {coding[:40]!r}")
        elif length is None:
            body, kept = await self._rest(reader), False
        elif not length.isascii() or not length.isdigit():
            raise NotHTTP("a length that is no number")
        else:
            body = await reader.readexactly(self._fits(int(length)))
        return Response(status, headers, body), kept

    async def _head(self, reader: asyncio.StreamReader) -> bytes:
        try:
            return await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            if not error.partial:
                raise _Stale from None
            raise
        except ConnectionError:
            raise _Stale from None

    async def _chunks(self, reader: asyncio.StreamReader) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            number = (await reader.readuntil(b"\r\n")).split(b";")[0].strip()
            if not re.fullmatch(rb"[0-9a-fA-F]{1,8}", number):
                raise NotHTTP("a chunk without a size")
            length = int(number, 16)
            if length == 0:
                while await reader.readuntil(b"\r\n") != b"\r\n":
                    pass  # trailers
                return b"".join(parts)
            size = self._fits(size + length)
            parts.append((await reader.readexactly(length + 2))[:-2])

    async def _rest(self, reader: asyncio.StreamReader) -> bytes:
        parts: list[bytes] = []
        size = 0
        while data := await reader.read(READ):
            size = self._fits(size + len(data))
            parts.append(data)
        return b"".join(parts)

    def _fits(self, size: int) -> int:
        if size > self.largest_body:
            raise TooLarge(f"the reply is longer than {self.largest_body} bytes")
        return size

    async def _connect(self) -> Line:
        proxy = self._proxy() if self.secure else None
        if proxy is None:
            reader, writer = await asyncio.open_connection(
                self.host, self.port, ssl=self._tls() if self.secure else None
            )
        else:
            reader, writer = await self._tunnel(proxy)
        return Line(reader, writer)

    def _proxy(self) -> str | None:
        return None if proxy_bypass(self.host) else getproxies().get("https")

    async def _tunnel(self, proxy: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Through a company's proxy: CONNECT, then TLS inside."""
        parts = urlsplit(proxy if "//" in proxy else f"http://{proxy}")
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
        try:
            request = f"CONNECT {self.host}:{self.port} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
            if parts.username:
                user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
                request += f"Proxy-Authorization: Basic {b64encode(user.encode()).decode()}\r\n"
            writer.write(f"{request}\r\n".encode("latin-1"))
            answer = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n", 1)[0].split()
            if len(answer) < 2 or answer[1] != b"200":
                raise OSError("the proxy did not let us through")
            await writer.start_tls(self._tls(), server_hostname=self.host)
        except BaseException:
            writer.close()
            raise
        return reader, writer

    def _tls(self) -> ssl.SSLContext:
        if self.tls is None:
            self.tls = ssl.create_default_context()
            if not os.environ.get("SSL_CERT_FILE"):
                with suppress(ImportError):  # the system's own certificates are enough on most machines
                    self.tls.load_verify_locations(import_module("certifi").where())
        return self.tls


def _parsed(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head[:-4].split(b"\r\n")
    if (status := STATUS.match(first)) is None:
        raise NotHTTP("something that is not HTTP")
    pairs = (line.decode("latin-1").partition(":") for line in lines)
    return int(status[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}


class _Stale(Exception):
    """A connection ended before the first byte of an answer."""


def shown(address: str) -> str:
    """An address without what might be secret in it."""
    parts = urlsplit(address)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"
