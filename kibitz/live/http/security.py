"""Who may do what: token, Origin, Host, sizes, rates, connections, headers. Plain ASGI, around everything."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import orjson
from fastapi import HTTPException

from kibitz.live.config import LiveConfig

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

BODY = 1 << 20  # bytes of a request
IMPORT = 32 << 20  # of a whole episode, or a driver's batch
SLOWEST = 60  # seconds for the body of a request
LARGE = ("/episodes", "/custom/events")
WATCH = "/custom/ws"
COSTLY = ("/custom/start_episode", "/custom/stop_episode", "/episodes")
HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self'; "
        b"connect-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; "
        b"frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


class Bucket:
    """Tokens by address: `rate` a second, at most `burst` at once. Remembers the last thousands of addresses."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str) -> bool:
        now = time.monotonic()
        left, since = self._left.pop(address, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._rate)
        allowed = left >= 1
        self._left[address] = (left - 1 if allowed else left, now)
        if len(self._left) > 4096:
            self._left.popitem(last=False)
        return allowed


class Guard:
    """Refuses before the app sees anything."""

    def __init__(self, app: Any, config: LiveConfig) -> None:
        self.app, self.config = app, config
        self._all = Bucket(1000, 2000)
        self._costly = Bucket(config.starts, 4 * config.starts)
        self._open: Counter[str] = Counter()
        self.refused: Counter[int] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        address = (scope.get("client") or ("?",))[0]
        problem = self._problem(scope, headers, address)
        if problem is not None:
            self.refused[problem[0]] += 1
            await refuse(scope, send, *problem)
        elif scope["type"] == "websocket" or "text/event-stream" in headers.get(b"accept", ""):
            await self._held(scope, receive, send, address)
        else:
            await self.app(scope, _limited(scope, receive), _with_headers(send))

    async def _held(self, scope: Scope, receive: Receive, send: Send, address: str) -> None:
        """Sockets and streams stay: only so many of one address."""
        if self._open[address] >= self.config.connections:
            self.refused[429] += 1
            await refuse(scope, send, 429, f"There are already {self._open[address]} connections of your address.")
            return
        self._open[address] += 1
        try:
            heard = receive if scope["type"] == "websocket" else _limited(scope, receive)
            await self.app(scope, heard, _with_headers(send))
        finally:
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]

    def _problem(self, scope: Scope, headers: dict[bytes, str], address: str) -> tuple[int, str] | None:
        config, path = self.config, scope["path"]
        socket = scope["type"] == "websocket"
        changes = (socket and path != WATCH) or (not socket and scope["method"] not in ("GET", "HEAD", "OPTIONS"))
        host = headers.get(b"host", "")
        if config.local and not config.token and not _is_here(host):
            return 403, "This server answers to its own machine only, as localhost or 127.0.0.1."
        origin = headers.get(b"origin")
        if origin is not None and (socket or changes) and _netloc(origin) != host.lower():
            return 403, "Requests from other sites are refused."
        if config.token and changes and not self._knows_token(headers):
            return 401, "This needs the server's token, as in Authorization: Bearer TOKEN."
        if not self._all.take(address) or (changes and path.startswith(COSTLY) and not self._costly.take(address)):
            return 429, "Too many requests; wait a second."
        length = headers.get(b"content-length", "0")
        if not length.isdigit() or int(length) > _limit(path):
            return 413, f"A request may have {_limit(path)} bytes."
        return None

    def _knows_token(self, headers: dict[bytes, str]) -> bool:
        kind, _, given = headers.get(b"authorization", "").partition(" ")
        return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self.config.token.encode())


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:  # no address at all
        return "?"


def _limit(path: str) -> int:
    return IMPORT if path in LARGE else BODY


def _is_here(host: str) -> bool:
    """A name that another site has pointed at this machine is not this machine."""
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    if name == "localhost":
        return True
    try:
        return ip_address(name.strip("[]")).is_loopback
    except ValueError:  # 127.example.org is a name as any other
        return False


def _limited(scope: Scope, receive: Receive) -> Receive:
    """Counts the body of a request that does not say how long it is, and does not wait for it forever."""
    left, ends = _limit(scope["path"]), time.monotonic() + SLOWEST
    whole = False  # then only the end of the connection is waited for

    async def counted() -> MutableMapping[str, Any]:
        nonlocal left, whole
        try:
            message = await asyncio.wait_for(receive(), None if whole else max(ends - time.monotonic(), 1.0))
        except TimeoutError:
            raise HTTPException(408, f"The request did not come within {SLOWEST} s.") from None
        whole = not message.get("more_body", False)
        left -= len(message.get("body", b""))
        if left < 0:
            raise HTTPException(413, f"A request may have {_limit(scope['path'])} bytes.")
        return message

    return counted


def _with_headers(send: Send) -> Send:
    async def sent(message: MutableMapping[str, Any]) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            message["headers"] = [*message.get("headers", []), *HEADERS]
        await send(message)

    return sent


async def refuse(scope: Scope, send: Send, status: int, sentence: str) -> None:
    kind = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": sentence})
        return
    body = orjson.dumps({"error": sentence})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *HEADERS]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": f"{kind}.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.body", "body": body})
