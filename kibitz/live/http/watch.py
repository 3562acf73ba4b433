"""Watching over WebSocket at /custom/ws, and as server-sent events at the same URL."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress

import orjson
from fastapi import APIRouter, Request, WebSocket
from fastapi.responses import JSONResponse, Response
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocketDisconnect

from kibitz.live.http.sockets.fast_socket import FAST, FastSocket
from kibitz.live.store.base import OutageLog, Row, StoreUnavailable
from kibitz.live.store.stored_event import ID
from kibitz.live.stream.backlog import StreamedPages
from kibitz.live.stream.calls import PeerUnavailable
from kibitz.live.stream.channel import Channel, Message, Watcher
from kibitz.live.stream.hub import Hub

MAX_MESSAGE_CHARACTERS = 4096  # from a watcher
MAX_REASON_BYTES = 123  # of a close frame
KEEPALIVE_SECONDS = 15  # proxies close silent streams
NORMAL, GOING_AWAY, POLICY_VIOLATION, TRY_AGAIN_LATER = 1000, 1001, 1008, 1013  # WebSocket close codes
DISCONNECTED = (WebSocketDisconnect, RuntimeError, OSError)  # raised when the watcher left first
log = logging.getLogger("kibitz.live")


class BadQuery(Exception):
    """The query is invalid or names something that does not exist; the message says what."""


def router() -> APIRouter:
    routes = APIRouter()

    @routes.websocket("/custom/ws")
    async def ws(socket: WebSocket) -> None:
        await _watch(socket)

    @routes.get("/custom/ws", responses={200: {"content": {"text/event-stream": {}}}}, response_class=Response)
    async def sse(request: Request, episode_id: str = "", since: str = "-1", seat_token: str = "") -> Response:
        """Events as a stream, for networks that block WebSockets. `Last-Event-ID` resumes."""
        if "text/event-stream" not in request.headers.get("accept", ""):
            problem = {"error": "This URL is a WebSocket; for server-sent events send Accept: text/event-stream."}
            return JSONResponse(problem, 426, {"upgrade": "websocket"})
        query = dict(request.query_params)
        query["since"] = request.headers.get("last-event-id", query.get("since", "-1"))
        try:
            session = WatchSession(request, query)
            await session.find_episode()
        except BadQuery as wrong:
            return JSONResponse({"error": str(wrong)}, 404)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamedPages(_sse(session), media_type="text/event-stream", headers=headers)

    return routes


class WatchSession:
    """One connection: its query, and the messages that answer it."""

    def __init__(self, connection: HTTPConnection, query: dict[str, str]) -> None:
        state, self._scope = connection.app.state, connection.scope
        self.hub: Hub = state.bus.hub
        self.outages: OutageLog = state.bus.outages
        self._runner, self._access, self._store = state.runner, state.guard.access, state.bus.store
        self.episode_id = query.get("episode_id") or None
        self._token = query.get("seat_token") or None
        if self.episode_id is not None and not ID.fullmatch(self.episode_id):
            raise BadQuery("An episode id consists of letters, digits, - and _.")
        self.since = _number(query.get("since") or "-1", -1, 1_000_000)
        self.batch = _number(query.get("batch") or "0", 0, 5000) / 1000
        self.row: Row | None = None
        self.push: Callable[[bytes], bool] | None = None
        self.watcher: Watcher | None = None
        self.channel: Channel | None = None

    def ack(self, seq: int) -> None:
        """The client has everything up to `seq`."""
        if self.watcher is not None and self.channel is not None and seq < self.channel.next:
            self.watcher.ack(seq)

    async def find_episode(self) -> None:
        if self.episode_id is None:
            return
        self.row = await self._row(self.episode_id)
        while self.row is None and self.episode_id in self._runner.running:  # its players are still loading
            await asyncio.sleep(0.05)
            self.row = await self._row(self.episode_id)
        if self.row is None:
            raise BadQuery(f"There is no episode {self.episode_id}.")

    async def _row(self, episode_id: str) -> Row | None:
        channel = self.hub.channels.get(episode_id)  # spares the store when a thousand watchers join
        return channel.row if channel else await asyncio.to_thread(self._store.episode, episode_id)

    async def messages(self) -> AsyncIterator[Message]:
        """Hello, then events, in order; without an episode id, one episode after the other."""
        if self.row is not None:
            async for message in self._episode(self.row, self.since):
                yield message
            return
        seen: set[str] = set()
        if self.hub.newest is None:
            yield Message('{"idle":true}')
        while (episode_id := await self.hub.next_episode(seen)) is not None:
            seen = {episode_id}
            row = await self._row(episode_id)
            if row is None:
                continue
            async for message in self._episode(row, -1):
                yield message
            if not self.hub.closing and self.hub.newest is None:
                yield Message('{"idle":true}')

    async def _episode(self, row: Row, since: int) -> AsyncIterator[Message]:
        channel = self.channel = await self.hub.join(row, since)
        seat = await self._access.seat(self._scope, row.episode_id, self._token)
        watcher = Watcher(seat, self.batch, since + 1)
        self.watcher = watcher
        watcher.push = self.push
        batch = round(1000 * self.batch)
        hello = {"episode_id": row.episode_id, "seq": channel.next - 1, "status": row.status, "batch_ms": batch}
        yield Message(orjson.dumps({"hello": hello}).decode())
        if watcher.cursor > channel.next:  # no server has sent this client that event
            watcher.cursor = channel.next
        async for message in self.hub.follow(channel, watcher):
            yield message


def _number(text: str, low: int, high: int) -> int:
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 9 or not low <= int(text) <= high:
        raise BadQuery(f"{text[:20]!r} is not a number from {low} to {high}.")
    return int(text)


async def _watch(socket: WebSocket) -> None:
    await socket.accept()
    try:
        session = WatchSession(socket, dict(socket.query_params))
        fast: FastSocket | None = socket.scope.get("extensions", {}).get(FAST)
        if fast is not None:
            session.push, fast.on_ack = fast.push, session.ack
        await session.find_episode()
    except BadQuery as wrong:
        await _close(socket, POLICY_VIOLATION, str(wrong))
        return
    except StoreUnavailable as error:
        await _close_for(socket, error)
        return
    receiving = asyncio.create_task(_receive(socket, session))
    sending = asyncio.create_task(_send(socket, session))
    try:
        await asyncio.wait([receiving, sending], return_when=asyncio.FIRST_COMPLETED)
        if sending.done() and (failure := sending.exception()) is not None:
            await _close_for(socket, failure)
        elif not receiving.done():
            closing = session.hub.closing
            await _close(
                socket, GOING_AWAY if closing else NORMAL, "the server is shutting down" if closing else "ended"
            )
        elif (problem := receiving.result()) is not None:
            await _close(socket, *problem)
    finally:
        for task in (receiving, sending):
            task.cancel()
        await asyncio.gather(receiving, sending, return_exceptions=True)


async def _close_for(socket: WebSocket, error: BaseException) -> None:
    """Ends a connection that cannot go on, with a reason for the watcher and a line for the operator."""
    reason = "the server had a problem; reconnect"
    if isinstance(error, StoreUnavailable):
        reason = error.public
        socket.app.state.bus.outages.note(error)
    else:
        level = logging.INFO if isinstance(error, DISCONNECTED) else logging.WARNING
        log.log(level, "disconnected a watcher: %r", error)
    await _close(socket, TRY_AGAIN_LATER, reason)


async def _close(socket: WebSocket, code: int, reason: str) -> None:
    if code not in (NORMAL, GOING_AWAY):
        socket.app.state.bus.hub.refused[code] += 1
    with suppress(*DISCONNECTED):
        await socket.close(code, reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore"))


async def _send(socket: WebSocket, session: WatchSession) -> None:
    async for message in session.messages():
        if session.push is None or not session.push(message.frame):
            await socket.send({"type": "websocket.send", "text": message.text})


async def _receive(socket: WebSocket, session: WatchSession) -> tuple[int, str] | None:
    """Reads acknowledgements; anything else ends the connection, with the code and reason returned."""
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        text = message.get("text")
        if text is None or len(text) > MAX_MESSAGE_CHARACTERS:
            return (1009, "the message is too long") if text else (1003, "messages must be text")
        try:
            seq = orjson.loads(text)["ack"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return POLICY_VIOLATION, 'the only valid message is {"ack": seq}'
        if type(seq) is not int or seq < -1:
            return POLICY_VIOLATION, "ack must be an integer of at least -1"
        session.ack(seq)


async def _sse(session: WatchSession) -> AsyncGenerator[bytes, None]:
    messages = session.messages()
    pending = asyncio.ensure_future(anext(messages))
    try:
        while True:
            done, _ = await asyncio.wait([pending], timeout=KEEPALIVE_SECONDS)
            if not done:
                yield b": keep-alive\n\n"
                continue
            try:
                message = pending.result()
            except StopAsyncIteration:
                yield b"event: end\ndata: {}\n\n"
                return
            except StoreUnavailable as error:  # without an end event the browser reconnects by itself
                session.outages.note(error)
                return
            except PeerUnavailable:
                return
            event_id = f"id: {message.last}\n" if message.first >= 0 else ""
            yield f"{event_id}data: {message.text}\n\n".encode()
            pending = asyncio.ensure_future(anext(messages))
    finally:
        pending.cancel()
        with suppress(asyncio.CancelledError, StopAsyncIteration, StoreUnavailable, PeerUnavailable):
            await pending
        await messages.aclose()  # type: ignore[attr-defined]
