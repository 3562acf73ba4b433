"""A small app with the OpenEnv routes on a real socket, and helpers to call it without the openenv package."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI
from websockets.sync.client import ClientConnection, connect

from kibitz.live.http.errors import add_error_handlers
from kibitz.live.openenv.routes import router
from kibitz.live.openenv.sessions import Sessions

NEGOTIATION = "deal_or_no_deal"


def app(sessions: Sessions, games: list[str], default: str) -> FastAPI:
    made = FastAPI(title="kibitz", version="1.0.0", docs_url=None, redoc_url=None)
    made.include_router(router(games, default, sessions))
    made.get("/health")(lambda: {"status": "healthy"})  # the server's own
    add_error_handlers(made)
    return made


@contextmanager
def serving(made: FastAPI, **more: Any) -> Iterator[str]:
    """Serves the app on a free port; yields its URL."""
    # asyncio turns Nagle's algorithm off only if the protocol is named; with it, every answer waits 40 ms for an ACK
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(256)
        port = listener.getsockname()[1]
        usual: dict[str, Any] = {"log_level": "error", "ws": "websockets-sansio", "lifespan": "off"}
        config = uvicorn.Config(made, timeout_graceful_shutdown=1, **usual | more)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}"  # the socket already listens; the first call waits for the server
        finally:
            server.should_exit = True
            thread.join(60)


@contextmanager
def talking(base: str, path: str = "/ws") -> Iterator[ClientConnection]:
    with connect(base.replace("http", "ws") + path, open_timeout=60) as connection:
        yield connection


def say(connection: ClientConnection, kind: str, data: dict[str, Any] | None = None) -> dict[str, Any]:
    """One message and its reply."""
    connection.send(json.dumps({"type": kind} if data is None else {"type": kind, "data": data}))
    reply: dict[str, Any] = json.loads(connection.recv(60))
    return reply


def usual(observation: dict[str, Any]) -> dict[str, Any]:
    """A simple bargainer: accepts half of its points, otherwise insists on a little less each turn."""
    mine, counts = observation["my_utilities"], observation["counts"]
    pool = sum(n * u for n, u in zip(counts, mine, strict=True))
    offered = sum(n * u for n, u in zip(observation["last_partner_offer_for_me"], mine, strict=True))
    if observation["action_mask"][2] and 2 * offered >= pool:
        return {"act_type": 2}
    least = min(range(3), key=lambda i: mine[i])
    given = min(counts[least], 1 + observation["turns_remaining"] % 3)
    return {"act_type": 1, "oA": [n - (given if i == least else 0) for i, n in enumerate(counts)]}
