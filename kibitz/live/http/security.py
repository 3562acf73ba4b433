"""Access control as plain ASGI around the whole app: token, Origin, Host, sizes, rates, connections, headers."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

import orjson
from fastapi import HTTPException
from starlette.routing import Match

from kibitz.live.access.control import AccessControl
from kibitz.live.access.limits import RateLimit
from kibitz.live.access.roles import READING, WATCH_PATH
from kibitz.live.config import LiveConfig
from kibitz.live.http.sockets.client_address import client_address, is_loopback, is_this_machine
from kibitz.live.http.sockets.stalled import SEND_SECONDS, TimedSend
from kibitz.live.store.base import StoreUnavailable
from kibitz.live.stream.backlog import Backlog
from kibitz.live.stream.calls import PeerUnavailable

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

log = logging.getLogger("kibitz.live")
MAX_BODY_BYTES = 1 << 20
MAX_EVENTS_BYTES = 32 << 20  # a complete episode, or a batch from a driver
EVENT_PATHS = ("/episodes", "/custom/events")
STREAM_PATHS = (WATCH_PATH, "/events", "/stream", ".html")  # .html: reports
MAX_LARGE_BODIES = 4  # that the server holds at once; large: more than MAX_BODY_BYTES, or of unknown length
RETRY_SECONDS = 5  # after which a busy server is worth another attempt
BODY_SECONDS = 60  # for a request's body to arrive
COSTLY_PATHS = ("/custom/start_episode", "/custom/stop_episode", "/episodes")
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self'; "
    "connect-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors {ancestors}"
)
HEADERS = [
    (b"content-security-policy", CONTENT_POLICY.format(ancestors="'none'").encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


class Guard:
    """Refuses bad requests before the app sees them."""

    def __init__(self, app: Any, config: LiveConfig, backlog: Backlog | None = None) -> None:
        self.app, self.config, self.access = app, config, AccessControl(config)
        self._backlog = backlog or Backlog()
        self._all_requests = RateLimit(1000, 2000)
        self._costly_requests = RateLimit(config.starts, 4 * config.starts)
        self._connections: Counter[str] = Counter()
        self._large_bodies = 0
        self.refused: Counter[int] = Counter()
        self.send_seconds: float | None = SEND_SECONDS  # None: the server's sockets drop readers that do not read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        address = client_address(scope, self.config.trusted_proxies)
        problem = await self._problem(scope, headers, address)
        if problem is not None and problem[0] == 401 and _is_mistyped(scope, headers):
            problem = None  # the app answers with its page for unknown addresses
        if problem is not None:
            self.refused[problem[0]] += 1
            await refuse(scope, send, *problem)
            return
        send = self.access.recorded(scope, send)
        if scope["type"] == "websocket" or "text/event-stream" in headers.get(b"accept", ""):
            await self._connection(scope, receive, send, address)
        elif _may_be_large(scope, headers):
            await self._large_body(scope, receive, send)
        else:
            await self._answer(scope, _limited(scope, receive), send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.send_seconds is None:
            await self.app(scope, receive, _with_headers(send))
            return
        timed = TimedSend(_with_headers(send), self.send_seconds, self._backlog)
        try:
            await self.app(scope, receive, timed)
        except Exception:
            if not timed.stalled:
                raise
            log.info("dropped a reader of %s that does not read", scope["path"])

    async def _large_body(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._large_bodies >= MAX_LARGE_BODIES:
            self.refused[503] += 1
            await refuse(
                scope, send, 503, f"The server already reads {MAX_LARGE_BODIES} large bodies; try again later."
            )
            return
        self._large_bodies += 1
        try:
            await self._answer(scope, _limited(scope, receive), send)
        finally:
            self._large_bodies -= 1

    async def _connection(self, scope: Scope, receive: Receive, send: Send, address: str) -> None:
        """Sockets and streams stay open, so their number per address is limited."""
        if self._connections[address] >= self.config.connections:
            self.refused[429] += 1
            await refuse(
                scope, send, 429, f"There are already {self._connections[address]} connections from your address."
            )
            return
        self._connections[address] += 1
        try:
            limited = receive if scope["type"] == "websocket" else _limited(scope, receive)
            await self._answer(scope, limited, send)
        finally:
            self._connections[address] -= 1
            if not self._connections[address]:
                del self._connections[address]

    async def _problem(self, scope: Scope, headers: dict[bytes, str], address: str) -> tuple[int, str] | None:
        path = scope["path"]
        socket = scope["type"] == "websocket"
        changes = (socket and path != WATCH_PATH) or (not socket and scope["method"] not in READING)
        host = headers.get(b"host", "")
        if not path.isprintable():  # the router ignores a line break at the end, but roles are decided by the path
            return 404, "There is nothing at this address."
        if not self.access.tokens.required and not is_this_machine(scope):
            return 403, "This server answers only its own machine; to reach it from elsewhere, start it with a token."
        if not self.access.tokens.required and not _is_local(host):
            return 403, "This server accepts only localhost or 127.0.0.1 as its host name."
        origin = headers.get(b"origin")
        if origin is not None and (socket or changes) and _netloc(origin) != host.lower():
            return 403, "Requests from other sites are not allowed."
        try:
            refusal = await self.access.refusal(scope, headers, address)
        except (PeerUnavailable, StoreUnavailable) as error:  # a seat that another server may know
            refusal = 503, getattr(error, "public", str(error))
        if refusal:
            return refusal
        if not self._all_requests.take(address) or (
            changes and path.startswith(COSTLY_PATHS) and not self._costly_requests.take(address)
        ):
            return 429, "Too many requests; wait a second."
        if path.endswith(STREAM_PATHS) and not changes and self._backlog.full:
            return 503, "Too many clients read too slowly; try again later."
        length = headers.get(b"content-length", "0")
        if not re.fullmatch(r"[0-9]{1,18}", length) or int(length) > _max_bytes(path):
            return 413, _too_large(path)
        return None


def _is_mistyped(scope: Scope, headers: dict[bytes, str]) -> bool:
    """Whether a browser opens an address that the app has no route for."""
    if scope["type"] != "http" or scope["method"] not in READING or "text/html" not in headers.get(b"accept", ""):
        return False
    return all(route.matches(scope)[0] == Match.NONE for route in scope["app"].routes)


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:  # not a URL
        return "?"


def _max_bytes(path: str) -> int:
    return MAX_EVENTS_BYTES if path in EVENT_PATHS else MAX_BODY_BYTES


def _may_be_large(scope: Scope, headers: dict[bytes, str]) -> bool:
    length = headers.get(b"content-length")
    large = int(length) > MAX_BODY_BYTES if length else b"transfer-encoding" in headers
    return large and _max_bytes(scope["path"]) > MAX_BODY_BYTES


def _too_large(path: str) -> str:
    return f"The request body exceeds {_max_bytes(path) >> 20} MiB."


def _is_local(host: str) -> bool:
    """Only localhost and loopback addresses: another site may point its own name at this machine."""
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    return name == "localhost" or is_loopback(name)


def _limited(scope: Scope, receive: Receive) -> Receive:
    """Limits the size and the time of a request's body, which may not announce its length."""
    left, ends = _max_bytes(scope["path"]), time.monotonic() + BODY_SECONDS
    complete = False  # from then on the app waits for the end of the connection, without a limit

    async def limited() -> MutableMapping[str, Any]:
        nonlocal left, complete
        try:
            message = await asyncio.wait_for(receive(), None if complete else max(ends - time.monotonic(), 1.0))
        except TimeoutError:
            raise HTTPException(408, f"The request body did not arrive within {BODY_SECONDS} s.") from None
        complete = not message.get("more_body", False)
        left -= len(message.get("body", b""))
        if left < 0:
            raise HTTPException(413, _too_large(scope["path"]))
        return message

    return limited


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            own = list(message.get("headers", []))
            given = {name for name, _ in own}  # two policies would both apply, and a report has a stricter one
            message["headers"] = [*own, *(header for header in HEADERS if header[0] not in given)]
        await send(message)

    return send_with_headers


async def refuse(scope: Scope, send: Send, status: int, message: str) -> None:
    kind = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": message})
        return
    body = orjson.dumps({"error": message})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *HEADERS]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status == 503:
        headers.append((b"retry-after", str(RETRY_SECONDS).encode()))
    await send({"type": f"{kind}.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.body", "body": body})
