"""OpenEnv's sockets: one connection, one session, messages answered one after the other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import WebSocket, WebSocketDisconnect
from pydantic import ValidationError

from kibitz.core.errors import BadInput
from kibitz.live.http.numbers import loads
from kibitz.live.openenv import mcp as openenv_mcp
from kibitz.live.openenv.sessions import Broken, Full, NoSession, Service, Session

LONGEST = 256 * 1024  # characters of one message


class Socket:
    """One connection: its session, and messages one after the other."""

    def __init__(self, websocket: WebSocket, service: Service) -> None:
        self.websocket, self.service = websocket, service

    async def talk(self, answer: Callable[[Service, Session, str], Coroutine[Any, Any, str | None]]) -> None:
        sessions = self.service.sessions
        await self.websocket.accept()
        session, own = await self._take()
        if session is None:
            return
        try:
            while True:
                raw = await asyncio.wait_for(self._receive(), sessions.idle)
                if len(raw) > LONGEST:
                    said: str | None = _error("VALIDATION_ERROR", f"A message has at most {LONGEST} characters.")
                else:
                    said = await answer(self.service, session, raw)
                if said is None:
                    break
                if said:
                    await self.websocket.send_text(said)
            await self.websocket.close()
        except TimeoutError:
            await self._refuse("SESSION_ERROR", f"Nothing was asked for {sessions.idle:g} s; the session is closed.")
        except (WebSocketDisconnect, RuntimeError):
            pass  # the caller has gone
        finally:
            sessions.release(session, own)

    async def _receive(self) -> str:
        message = await self.websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        text: str = message.get("text") or (message.get("bytes") or b"").decode("utf-8", "replace")
        return text

    async def _take(self) -> tuple[Session | None, bool]:
        sessions, game = self.service.sessions, self.service.game
        named = self.websocket.query_params.get("session_id")
        try:
            if not named:
                return sessions.open(game, attached=True), True
            session = sessions.find(game, named)
            if session.attached:
                raise NoSession(named)
            session.attached = True
            return session, False
        except Full as full:
            counts = {"active_sessions": len(sessions), "max_sessions": full.limit}
            await self._refuse("CAPACITY_REACHED", str(full), **counts)
        except NoSession as gone:
            await self._refuse("SESSION_ERROR", str(gone))
        return None, False

    async def _refuse(self, code: str, message: str, **more: Any) -> None:
        try:
            await self.websocket.send_text(_error(code, message, **more))
            await self.websocket.close()
        except (WebSocketDisconnect, RuntimeError):
            pass


def _error(code: str, message: str, **more: Any) -> str:
    return json.dumps({"type": "error", "data": {"message": message, "code": code, **more}})


async def rpc(service: Service, session: Session, raw: str) -> str | None:
    said = await openenv_mcp.answer(service.game, service.sessions, raw, session)
    return json.dumps(said.body) if said.body is not None else ""


async def play(service: Service, session: Session, raw: str) -> str | None:
    """The reply to one message; None ends the talk, an empty one is not sent."""
    try:
        message = loads(raw)
    except (json.JSONDecodeError, RecursionError) as error:
        return _error("INVALID_JSON", f"The message is not valid JSON: {error}.")
    if not isinstance(message, dict):
        return _error("VALIDATION_ERROR", "A message is an object with a type.")
    kind, data = message.get("type"), message.get("data", {})
    if set(message) - {"type", "data"} or not isinstance(data, dict):
        return _error("VALIDATION_ERROR", "A message has a type and, where it needs one, an object of data.")
    try:
        if kind == "reset":
            return _shown("observation", await service.sessions.run(session, session.reset, data))
        if kind == "step":
            return _shown("observation", await service.sessions.run(session, session.step, data))
        if kind == "state":
            return _shown("state", await service.sessions.run(session, session.state))
    except ValidationError as error:
        wrong = [{"loc": list(e["loc"]), "msg": e["msg"], "type": e["type"]} for e in error.errors()]
        return _error("VALIDATION_ERROR", "Invalid message", errors=wrong)
    except (BadInput, Broken) as bad:
        return _error("EXECUTION_ERROR", str(bad))
    if kind == "mcp":
        said = await openenv_mcp.answer(service.game, service.sessions, json.dumps(data), session)
        return _shown("mcp", said.body or {})
    if kind == "close":
        return None
    known = "reset, step, state, mcp and close"
    return _error("UNKNOWN_TYPE", f"There is no message type {kind!r:.80}; there are {known}.")


def _shown(kind: str, data: dict[str, Any]) -> str:
    return json.dumps({"type": kind, "data": data})
