"""OpenEnv's sockets: one session per connection, messages answered in order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import WebSocket, WebSocketDisconnect
from pydantic import ValidationError

from kibitz.core.errors import BadInput
from kibitz.live.bodies import loads
from kibitz.live.openenv import mcp as openenv_mcp
from kibitz.live.openenv.sessions import EnvironmentFailed, EnvSession, NoFreeSession, NoSession, Service
from kibitz.live.public_text import public_text

MAX_CHARACTERS = 256 * 1024  # of one message


class Socket:
    """One connection and its session."""

    def __init__(self, websocket: WebSocket, service: Service) -> None:
        self.websocket, self.service = websocket, service

    async def talk(self, answer: Callable[[Service, EnvSession, str], Coroutine[Any, Any, str | None]]) -> None:
        sessions = self.service.sessions
        await self.websocket.accept()
        session, own = await self._take()
        if session is None:
            return
        try:
            while True:
                raw = await asyncio.wait_for(self._receive(), sessions.idle)
                if len(raw) > MAX_CHARACTERS:
                    reply: str | None = _error("VALIDATION_ERROR", f"The message exceeds {MAX_CHARACTERS} characters.")
                else:
                    reply = await answer(self.service, session, raw)
                if reply is None:
                    break
                if reply:
                    await self.websocket.send_text(reply)
            await self.websocket.close()
        except TimeoutError:
            await self._refuse("SESSION_ERROR", f"The session was closed after {sessions.idle:g} idle seconds.")
        except (WebSocketDisconnect, RuntimeError):
            pass  # the caller has disconnected
        finally:
            sessions.release(session, own)

    async def _receive(self) -> str:
        message = await self.websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        text: str = message.get("text") or (message.get("bytes") or b"").decode("utf-8", "replace")
        return text

    async def _take(self) -> tuple[EnvSession | None, bool]:
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
        except NoFreeSession as full:
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


async def rpc(service: Service, session: EnvSession, raw: str) -> str | None:
    answered = await openenv_mcp.answer(service.game, service.sessions, raw, session)
    return json.dumps(answered.body) if answered.body is not None else ""


async def play(service: Service, session: EnvSession, raw: str) -> str | None:
    """The reply to one message; None ends the connection, an empty reply is not sent."""
    try:
        message = loads(raw)
    except ValueError as error:
        return _error("INVALID_JSON", f"The message is not valid JSON: {error}.")
    if not isinstance(message, dict):
        return _error("VALIDATION_ERROR", "A message should be an object with a type.")
    kind, data = message.get("type"), message.get("data", {})
    if set(message) - {"type", "data"} or not isinstance(data, dict):
        return _error("VALIDATION_ERROR", "A message has a type and, if needed, an object of data, and nothing else.")
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
    except (BadInput, EnvironmentFailed) as bad:
        return _error("EXECUTION_ERROR", public_text(str(bad)))
    if kind == "mcp":
        answered = await openenv_mcp.answer(service.game, service.sessions, json.dumps(data), session)
        return _shown("mcp", answered.body or {})
    if kind == "close":
        return None
    known = "reset, step, state, mcp or close"
    return _error("UNKNOWN_TYPE", f"There is no message type {kind!r:.80}; use {known}.")


def _shown(kind: str, data: dict[str, Any]) -> str:
    return json.dumps({"type": kind, "data": data})
