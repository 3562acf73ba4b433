"""Starts the server in this process and says where it is."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import socket
import sys
from dataclasses import replace

import uvicorn

from kibitz.core.errors import BadInput
from kibitz.live.app import create_app, shut_down
from kibitz.live.config import LiveConfig
from kibitz.live.http.fast_socket import FastSocket
from kibitz.live.http.plain_socket import plain_socket

MESSAGE = 1 << 20  # bytes of one WebSocket message


class Server(uvicorn.Server):
    """Tells watchers before it closes their sockets."""

    def __init__(self, config: uvicorn.Config, state: object, line: str) -> None:
        super().__init__(config)
        self._state, self._line = state, line

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            print(self._line, flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await shut_down(self._state)
        await asyncio.sleep(0.1)  # sockets close with our reason before uvicorn closes them with its own
        await super().shutdown(sockets)
        self._captured_signals.clear()  # it was asked to end and has ended well: no signal, code 0


def serve(config: LiveConfig, as_json: bool = False) -> None:
    """Until a signal ends it."""
    config.check()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a watcher is an open file
    listening = _listen(config)
    host, port = listening.getsockname()[:2]
    logging.basicConfig(format="%(asctime)s %(name)s %(message)s", stream=sys.stderr)
    logging.getLogger("kibitz").setLevel(logging.INFO)
    app = create_app(replace(config, port=port))
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    line = (
        json.dumps({"url": url, "store": config.store.split("@")[-1]}) if as_json else f"kibitz: watch at {url}/custom"
    )
    settings = uvicorn.Config(
        app, http=plain_socket(2 * config.connections), ws=FastSocket, ws_per_message_deflate=False,
        ws_max_size=MESSAGE, log_level="warning", access_log=False, proxy_headers=False, server_header=False,
        lifespan="on", timeout_graceful_shutdown=5,
    )  # fmt: skip
    Server(settings, app.state, line).run(sockets=[listening])


def _listen(config: LiveConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # with the protocol named, asyncio turns Nagle's algorithm off; without, every answer waits 40 ms for an ACK
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((config.host, config.port))
    except OSError as error:
        listening.close()
        raise BadInput(
            f"Cannot listen on {config.host}:{config.port}: {error.strerror}; give another --port."
        ) from None
    listening.listen(2048)
    listening.set_inheritable(False)
    return listening
