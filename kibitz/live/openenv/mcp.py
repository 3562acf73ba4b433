"""MCP for any game: JSON-RPC with `initialize`, `tools/list` and `tools/call`, as standard clients expect.

The tools are the game's own, `new_episode` and `look`. OpenEnv's `openenv/session/create` and
`openenv/session/close` work, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from kibitz.core.envs.tool_env import Tool, action_of, tools
from kibitz.core.errors import BadInput
from kibitz.core.options import sentence
from kibitz.games import get_environment
from kibitz.live.bodies import loads
from kibitz.live.openenv.sessions import EnvironmentFailed, EnvSession, NoFreeSession, NoSession, Sessions
from kibitz.live.public_text import public_text

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")  # newest first
PARSE, INVALID, UNKNOWN, PARAMS, INTERNAL, SERVER = -32700, -32600, -32601, -32602, -32603, -32000
OPTIONS = {"type": "object", "properties": {"options": {"type": "object"}}, "additionalProperties": False}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
COMMON = (
    Tool("new_episode", "Begin a new episode. `options` are the game's, such as a seed.", OPTIONS),
    Tool("look", "The current position; changes nothing.", NOTHING),
)


class Call(BaseModel):
    """A request, or a notification if it has no id."""

    model_config = ConfigDict(extra="forbid", strict=True)

    jsonrpc: str
    method: str
    params: dict[str, Any] = {}
    id: str | int | None = None


class RpcError(Exception):
    """An error answer of JSON-RPC."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class Answer(NamedTuple):
    body: dict[str, Any] | None  # None: a notification, which gets no answer
    session: EnvSession | None  # the session that the caller should name next time


async def answer(
    game: str, sessions: Sessions, raw: str | bytes, session: EnvSession | None = None, session_id: str = ""
) -> Answer:
    """Answers one message. `session` is the socket's; an HTTP caller names one, or gets a new one when needed."""
    call_id: str | int | None = None
    try:
        try:
            call = Call.model_validate(loads(raw))
        except ValidationError as error:
            raise RpcError(INVALID, sentence(Call, error, "field of a JSON-RPC request")) from None
        except ValueError:
            raise RpcError(PARSE, "The message is not valid JSON.") from None
        call_id = call.id
        if call.jsonrpc != "2.0":
            raise RpcError(INVALID, "jsonrpc should be '2.0'.")
        if call.method.startswith("notifications/"):
            return Answer(None, session)
        result, session = await _method(game, sessions, call, session, session_id)
        return Answer({"jsonrpc": "2.0", "id": call_id, "result": result}, session)
    except RpcError as error:
        problem = {"code": error.code, "message": str(error), "data": error.data}
    except NoFreeSession as full:
        counts = {"code": "CAPACITY_REACHED", "active_sessions": len(sessions), "max_sessions": full.limit}
        problem = {"code": SERVER, "message": str(full), "data": counts}
    except (NoSession, BadInput) as bad:
        problem = {"code": PARAMS, "message": public_text(str(bad)), "data": None}
    except EnvironmentFailed as failed:
        problem = {"code": INTERNAL, "message": str(failed), "data": None}
    return Answer({"jsonrpc": "2.0", "id": call_id, "error": problem}, session)


async def _method(
    game: str, sessions: Sessions, call: Call, session: EnvSession | None, session_id: str
) -> tuple[Any, EnvSession | None]:
    named = call.params.get("session_id") or session_id
    if not isinstance(named, str):
        raise RpcError(PARAMS, "session_id should be a string.")
    if call.method == "openenv/session/close":
        return _close(game, sessions, named, session), session
    if session is None and named:
        session = sessions.find(game, named)
    if call.method == "initialize":
        session = session or sessions.open(game)
        return _initialized(game, call.params), session
    if call.method == "ping":
        return {}, session
    if call.method == "openenv/session/create":
        session = session or sessions.open(game)
        return {"session_id": session.id}, session
    if call.method == "tools/list":
        return {"tools": await sessions.aside(_tools, game)}, session
    if call.method == "tools/call":
        fresh = session is None
        session = session or sessions.open(game)
        try:
            return await _call(game, sessions, session, call.params), session
        except RpcError:
            if fresh:
                sessions.close(session.id)
            raise
    raise RpcError(UNKNOWN, f"There is no method {call.method!r:.80}; use initialize, tools/list or tools/call.")


def _initialized(game: str, params: Mapping[str, Any]) -> dict[str, Any]:
    from kibitz import __version__

    asked = params.get("protocolVersion")
    return {
        "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": f"kibitz-{game}", "version": __version__},
    }


def _tools(game: str) -> list[dict[str, Any]]:
    found = [*COMMON, *tools(get_environment(game))]
    return [{"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema} for tool in found]


def _close(game: str, sessions: Sessions, named: str, own: EnvSession | None) -> dict[str, Any]:
    if not named:
        raise RpcError(PARAMS, "session_id is missing; give the one to close.")
    if own is not None and own.id == named:
        raise RpcError(INVALID, "This session belongs to this socket; close the socket.")
    return end_session(game, sessions, named)


def end_session(game: str, sessions: Sessions, named: str) -> dict[str, Any]:
    """`closing`: the session has a socket and ends with it."""
    closed = sessions.close(sessions.find(game, named).id)
    return {"session_id": named, "closed": closed} | ({} if closed else {"closing": True})


async def _call(game: str, sessions: Sessions, session: EnvSession, params: Mapping[str, Any]) -> dict[str, Any]:
    name, arguments = params.get("name"), params.get("arguments") or {}
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise RpcError(PARAMS, "tools/call needs a name and an object of arguments.")
    try:
        shown = await sessions.run(session, _play, game, session, name, arguments)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "arguments"
        return _result({"error": f"{where}: {first['msg']}."}, True)
    except BadInput as bad:  # a tool's error is an answer that the model can read
        return _result({"error": public_text(str(bad))}, True)
    flat = {**shown["observation"], "reward": shown["reward"], "done": shown["done"]}
    return _result(flat, flat.get("error") is not None)


def _play(game: str, session: EnvSession, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if name == "new_episode":
        if set(arguments) - {"options"}:
            raise BadInput("new_episode takes only 'options', an object.")
        return session.reset(arguments)
    if name == "look":
        return session.observe()
    environment = get_environment(game)
    known = [tool.name for tool in tools(environment)]
    if name not in known:
        names = ", ".join([*(tool.name for tool in COMMON), *known])
        raise BadInput(f"There is no tool {name!r:.80}; choose one of {names}.")
    action = action_of(environment, name, arguments)
    return session.step(action)


def _result(content: Mapping[str, Any], is_error: bool) -> dict[str, Any]:
    text = json.dumps(content, separators=(",", ":"))
    return {"content": [{"type": "text", "text": text}], "structuredContent": dict(content), "isError": is_error}
