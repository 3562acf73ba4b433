"""Watchers: WebSocket at /custom/ws, server-sent events at the same address."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import orjson
from fastapi import APIRouter, Request, WebSocket
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.websockets import WebSocketDisconnect

from kibitz.live.http.fast_socket import PUSH
from kibitz.live.store.base import Row
from kibitz.live.store.stored_event import ID
from kibitz.live.stream.hub import Channel, Hub, Part, Watcher

MESSAGE = 4096  # characters a watcher may send at once
GONE, WRONG, LATER = 1001, 1008, 1013
LEFT = (WebSocketDisconnect, RuntimeError, OSError)  # it has gone by itself
log = logging.getLogger("kibitz.live")


class BadWish(Exception):
    """The query asks for something that is not there; the sentence says what."""


def router() -> APIRouter:
    routes = APIRouter()

    @routes.websocket("/custom/ws")
    async def ws(socket: WebSocket) -> None:
        await _watch(socket)

    @routes.get("/custom/ws", responses={200: {"content": {"text/event-stream": {}}}}, response_class=Response)
    async def sse(request: Request, episode_id: str = "", since: str = "-1", seat_token: str = "") -> Response:
        """Events as a stream, where WebSockets do not pass. `Last-Event-ID` resumes."""
        if "text/event-stream" not in request.headers.get("accept", ""):
            problem = {"error": "This is a WebSocket; or ask with Accept: text/event-stream."}
            return JSONResponse(problem, 426, {"upgrade": "websocket"})
        query = dict(request.query_params)
        query["since"] = request.headers.get("last-event-id", query.get("since", "-1"))
        try:
            session = Session(request.app.state, query)
            await session.look_up()
        except BadWish as wrong:
            return JSONResponse({"error": str(wrong)}, 404)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(_sse(session), media_type="text/event-stream", headers=headers)

    return routes


class Session:
    """One connection: what it asked for, and the stream of messages that answers."""

    def __init__(self, state: Any, query: dict[str, str]) -> None:
        self.hub: Hub = state.bus.hub
        self._runner, self._store = state.runner, state.bus.store
        self.episode_id = query.get("episode_id") or None
        self._token = query.get("seat_token") or None
        if self.episode_id is not None and not ID.fullmatch(self.episode_id):
            raise BadWish("An episode's id has letters, digits, - and _.")
        self.since = _number(query.get("since") or "-1", -1, 1_000_000)
        self.batch = _number(query.get("batch") or "0", 0, 5000) / 1000
        self.row: Row | None = None
        self.push: Callable[[bytes], bool] | None = None
        self.watcher: Watcher | None = None
        self.channel: Channel | None = None

    async def look_up(self) -> None:
        if self.episode_id is None:
            return
        self.row = await self._row(self.episode_id)
        while self.row is None and self.episode_id in self._runner.running:  # its players are being made ready
            await asyncio.sleep(0.05)
            self.row = await self._row(self.episode_id)
        if self.row is None:
            raise BadWish(f"There is no episode {self.episode_id}.")

    async def _row(self, episode_id: str) -> Row | None:
        channel = self.hub.channels.get(episode_id)  # a thousand who join need not ask the store
        return channel.row if channel else await asyncio.to_thread(self._store.episode, episode_id)

    async def parts(self) -> AsyncIterator[Part]:
        """Messages in order: hello, then events; without an id one episode after the other."""
        if self.row is not None:
            async for part in self._episode(self.row, self.since):
                yield part
            return
        seen: set[str] = set()
        if self.hub.newest is None:
            yield Part('{"idle":true}')
        while (episode_id := await self.hub.next_episode(seen)) is not None:
            seen = {episode_id}
            row = await self._row(episode_id)
            if row is None:
                continue
            async for part in self._episode(row, -1):
                yield part
            if not self.hub.closing and self.hub.newest is None:
                yield Part('{"idle":true}')

    async def _episode(self, row: Row, since: int) -> AsyncIterator[Part]:
        channel = self.channel = await self.hub.join(row)
        found = self._runner.seat_of(row.episode_id, self._token)
        watcher = Watcher(None if found is None else found[0], self.batch, since + 1)
        self.watcher = watcher
        watcher.push = self.push
        batch = round(1000 * (self.batch or self.hub.auto_batch()))
        hello = {"episode_id": row.episode_id, "seq": channel.next - 1, "status": row.status, "batch_ms": batch}
        yield Part(orjson.dumps({"hello": hello}).decode())
        if not row.episode_id or watcher.cursor > channel.next:
            watcher.cursor = channel.next
        async for part in self.hub.follow(channel, watcher):
            yield part


def _number(text: str, low: int, high: int) -> int:
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 9 or not low <= int(text) <= high:
        raise BadWish(f"{text[:20]!r} should be a number from {low} to {high}.")
    return int(text)


async def _watch(socket: WebSocket) -> None:
    await socket.accept()
    try:
        session = Session(socket.app.state, dict(socket.query_params))
        session.push = socket.scope.get("extensions", {}).get(PUSH)
        await session.look_up()
    except BadWish as wrong:
        await _close(socket, WRONG, str(wrong)[:100])
        return
    hears = asyncio.create_task(_hear(socket, session))
    tells = asyncio.create_task(_tell(socket, session))
    try:
        await asyncio.wait([hears, tells], return_when=asyncio.FIRST_COMPLETED)
        if tells.done() and (error := tells.exception()) is not None:
            level = logging.INFO if isinstance(error, LEFT) else logging.WARNING
            log.log(level, "a watcher of %s was let go: %r", session.episode_id, error)
            await _close(socket, LATER, "something went wrong; come again")
        elif not hears.done():
            closing = session.hub.closing
            await _close(socket, GONE if closing else 1000, "the server shuts down" if closing else "ended")
        elif (problem := hears.result()) is not None:
            await _close(socket, *problem)
    finally:
        for task in (hears, tells):
            task.cancel()
        await asyncio.gather(hears, tells, return_exceptions=True)


async def _close(socket: WebSocket, code: int, reason: str) -> None:
    with suppress(*LEFT):
        await socket.close(code, reason)


async def _tell(socket: WebSocket, session: Session) -> None:
    async for part in session.parts():
        if session.push is None or not session.push(part.frame):
            await socket.send({"type": "websocket.send", "text": part.text})


async def _hear(socket: WebSocket, session: Session) -> tuple[int, str] | None:
    """Acknowledgements; anything else ends the connection."""
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        text = message.get("text")
        if text is None or len(text) > MESSAGE:
            return (1009, "a message is too long") if text else (1003, "messages are text")
        try:
            said = orjson.loads(text)
            seq = said["ack"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return WRONG, 'a watcher may say {"ack": seq}'
        if type(seq) is not int or seq < -1:
            return WRONG, "ack should be a number from -1"
        if session.watcher is not None and session.channel is not None and seq < session.channel.next:
            session.watcher.ack(seq)


async def _sse(session: Session) -> AsyncIterator[bytes]:
    parts = session.parts()
    pending = asyncio.ensure_future(anext(parts))
    try:
        while True:
            done, _ = await asyncio.wait([pending], timeout=15)
            if not done:
                yield b": still here\n\n"  # proxies close what is silent
                continue
            try:
                part = pending.result()
            except StopAsyncIteration:
                yield b"event: end\ndata: {}\n\n"
                return
            pending = asyncio.ensure_future(anext(parts))
            mark = f"id: {part.last}\n" if part.first >= 0 else ""
            yield f"{mark}data: {part.text}\n\n".encode()
    finally:
        pending.cancel()
        with suppress(asyncio.CancelledError, StopAsyncIteration):
            await pending
        await parts.aclose()  # type: ignore[attr-defined]
