"""Decides about each request: who sends it, whether they may, and what the audit log says about it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

from kibitz.live.access.audit import AuditLog
from kibitz.live.access.limits import RateLimit
from kibitz.live.access.roles import ANYONE, LOCAL, READING, WATCH_PATH, Tokens, needed
from kibitz.live.config import LiveConfig

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
log = logging.getLogger("kibitz.live")
WRONG_TOKENS, WRONG_SECONDS = 20, 60.0  # wrong tokens from one address, and in which time
ROUTINE = ("/step", "/mcp")  # of OpenEnv: too many to be worth a line each
TOO_MANY = "Too many wrong tokens came from your address; wait a minute."
NO_TOKEN = "This request needs a token of this server: Authorization: Bearer TOKEN."


async def _no_seat(episode_id: str, token: str) -> dict[str, Any]:
    return {}


class AccessControl:
    """One server's tokens, audit log, and limit on wrong tokens."""

    def __init__(self, config: LiveConfig) -> None:
        self.tokens, self.audit = Tokens(config.token, config.tokens, config.guests), AuditLog(config.audit)
        self.join: Callable[[str, str], Awaitable[dict[str, Any]]] = _no_seat  # of `Peers`, set by the app
        self._wrong = RateLimit(WRONG_TOKENS / WRONG_SECONDS, WRONG_TOKENS)

    async def refusal(self, scope: Scope, headers: dict[bytes, str], address: str) -> tuple[int, str] | None:
        """Why the request is refused, if it is. Notes in the scope's state who sends it."""
        state, need = scope.setdefault("state", {}), needed(scope)
        state["principal"], state["address"] = ANYONE if self.tokens.required else LOCAL, address
        if not self.tokens.required or not need:
            return None
        if (need != "watch" or self.tokens.private or _has_secret(scope, headers)) and self._wrong.is_empty(address):
            return 429, TOO_MANY
        if need == "watch" and (not self.tokens.private or await self._holds_seat(scope)):
            return None
        if need == "seat":
            return None
        # a browser's sockets, streams and sounds cannot send headers
        given = _bearer(headers) or (_query(scope).get("token", "") if need == "watch" else "")
        who = self.tokens.find(given) if given else None
        if who is None:
            if given:
                self.note_wrong(scope)
                self.record(scope, 401)
            return 401, NO_TOKEN
        state["principal"] = who
        if not who.may(need):
            self.record(scope, 403)
            return 403, f"The token of {who.name} has the role {who.role}, which may not {need}; use another token."
        return None

    def note_wrong(self, scope: Scope) -> None:
        """Counts and logs a request with a wrong token or key. Without tokens only this machine calls, so nothing is
        limited."""
        state = scope["state"]
        if self.tokens.required and not state.get("wrong_token"):
            state["wrong_token"] = True
            self._wrong.take(state["address"])
            log.warning("wrong token from %s for %s", state["address"], scope["path"])

    async def seat(self, scope: Scope, episode_id: str, token: str | None) -> int | None:
        """The seat that this token opens, if it is the seat of an episode that runs. Notes a wrong one."""
        found = await self.join(episode_id, token) if token else {}
        if found.get("wrong_token"):
            self.note_wrong(scope)
        seat: int | None = found.get("seat")
        return seat

    async def _holds_seat(self, scope: Scope) -> bool:
        """A seat's link is enough to watch its own episode."""
        query, path = _query(scope), scope["path"]
        named = query.get("episode_id", "") if path == WATCH_PATH else path.removeprefix("/episodes/").split("/")[0]
        return await self.seat(scope, named, query.get("seat_token")) is not None

    def record(self, scope: Scope, status: int) -> None:
        """One line about a request. Routes add facts as `audit` in its state, or None there to omit the line."""
        state, what = scope["state"], f"{scope.get('method', 'WEBSOCKET')} {scope['path']}"
        facts, who = state.get("audit", {}), state["principal"]
        if facts is not None:
            line = {"who": who.name, "role": who.role, "address": state["address"], "what": what, "status": status}
            self.audit.write(**line | facts)

    def recorded(self, scope: Scope, send: Send) -> Send:
        """Records a request that may change something, with the status of its answer."""
        if not _is_recorded(scope):
            return send
        socket, done = scope["type"] == "websocket", False

        async def record_and_send(message: MutableMapping[str, Any]) -> None:
            nonlocal done
            if not done and (socket or message["type"] == "http.response.start"):
                done = True
                self.record(scope, message.get("status", 101 if message["type"] == "websocket.accept" else 403))
            await send(message)

        return record_and_send

    def record_failure(self, scope: Scope) -> None:
        """The same for a request that raised an exception: its answer is not sent through `recorded`."""
        if _is_recorded(scope):
            self.record(scope, 500)


def _is_recorded(scope: Scope) -> bool:
    """Whether a request may change something and is no routine."""
    if scope["type"] == "websocket":
        return bool(scope["path"] != WATCH_PATH)
    return scope["method"] not in READING and not scope["path"].endswith(ROUTINE)


def _has_secret(scope: Scope, headers: dict[bytes, str]) -> bool:
    """Whether a request to read has the token of a seat or the key of a driver."""
    return bool(_query(scope).get("seat_token") or headers.get(b"episode-key"))


def _query(scope: Scope) -> dict[str, str]:
    """Parsed as the routes parse it: of a repeated name the last one counts, even if it is empty."""
    return dict(parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True))


def _bearer(headers: dict[bytes, str]) -> str:
    kind, _, given = headers.get(b"authorization", "").partition(" ")
    return given.strip() if kind.lower() == "bearer" else ""
