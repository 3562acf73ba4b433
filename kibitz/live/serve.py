"""Runs the server in this process until a signal ends it."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import resource
import signal
import socket
import sys
from dataclasses import replace
from ipaddress import ip_address
from types import FrameType
from typing import Any

import uvicorn

from kibitz.core.errors import BadInput
from kibitz.core.system import interrupt
from kibitz.live.app import create_app, shut_down
from kibitz.live.config import LiveConfig
from kibitz.live.http.sockets.fast_socket import fast_socket
from kibitz.live.http.sockets.plain_socket import plain_socket

MAX_MESSAGE_BYTES = 1 << 20  # of one WebSocket message
CLOSE_SECONDS = 0.1  # in which sockets close with our reason before uvicorn closes them with its own
GRACE_SECONDS = 5  # that open requests get at the end
SEND_BUFFER_BYTES = 128 << 10  # of the kernel, per connection, which doubles it; it would grow to megabytes by itself
BACKLOG = 2048  # connections that wait to be accepted


class Server(uvicorn.Server):
    """Prints its address once it listens, and ends every episode and stream with a reason."""

    def __init__(self, config: uvicorn.Config, state: Any, line: str) -> None:
        super().__init__(config)
        self._state, self._line = state, line
        self._signals: list[int] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            print(self._line, flush=True)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Unlike `asyncio.run`, does not wait for threads: a read of the store or a compilation may take long."""
        make_loop = self.config.get_loop_factory() or asyncio.new_event_loop
        make_loop().run_until_complete(self.serve(sockets))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        interrupt.finishing()
        self._signals.append(sig)
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if signal.SIGINT not in self._signals:  # Ctrl-C, like a second signal, ends the episodes at once
            state = self._state
            await state.runner.drain(state.config.drain, lambda: len(self._signals) > 1)
        await shut_down(self._state)
        await asyncio.sleep(CLOSE_SECONDS)
        self._state.bus.hub.backlog.drop_all()
        await super().shutdown(sockets)
        if signal.SIGINT not in self._captured_signals:
            self._captured_signals.clear()  # a requested shutdown is a success: exit code 0


def serve(config: LiveConfig, as_json: bool = False) -> None:
    """Blocks until a signal ends the server."""
    config.check()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))  # every watcher is an open file
    listener = _listen(config)
    host, port = listener.getsockname()[:2]
    logging.basicConfig(format="%(asctime)s %(name)s %(message)s", stream=sys.stderr)
    logging.getLogger("kibitz").setLevel(logging.INFO)
    app = create_app(replace(config, port=port))
    line = announcement(config, host, port, as_json)
    # behind a proxy every connection comes from the proxy, which has to limit them itself
    most = math.inf if config.trusted_proxies else 2 * config.connections
    backlog, app.state.guard.send_seconds = app.state.bus.hub.backlog, None  # these sockets are more exact
    settings = uvicorn.Config(
        app, http=plain_socket(most, app.state.guard.refused, backlog), ws=fast_socket(backlog),
        ws_per_message_deflate=False, ws_max_size=MAX_MESSAGE_BYTES, log_level="warning", access_log=False,
        proxy_headers=False, server_header=False, lifespan="on", timeout_graceful_shutdown=GRACE_SECONDS,
    )  # fmt: skip
    Server(settings, app.state, line).run(sockets=[listener])


def announcement(config: LiveConfig, host: str, port: int, as_json: bool) -> str:
    """What the server prints once it listens: the address that others use, and the invitation for them."""
    here = ip_address(host).is_unspecified
    url = _url(lan_address(host) if here else host, port)
    invitation = f"{url}/#token={config.guests}" if config.guests else ""
    if as_json:
        about = {"url": url, "store": config.store.split("@")[-1]}
        return json.dumps(about | ({"invitation": invitation} if invitation else {}))
    lines = [f"kibitz: open {url}/"]
    if here:
        lines.append(f"kibitz: on this machine also {_url('127.0.0.1', port)}/")
    if invitation:
        lines.append(f"kibitz: guests who open {invitation} may start games and play, but not administer")
    return "\n".join(lines)


def lan_address(unspecified: str) -> str:
    """The address under which other machines reach this one; loopback where there is no network.

    Connecting a datagram socket sends nothing: the system only chooses the interface that would.
    """
    v6 = ":" in unspecified
    family, target, loopback = (
        (socket.AF_INET6, "2001:db8::1", "::1") if v6 else (socket.AF_INET, "203.0.113.1", "127.0.0.1")
    )
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((target, 9))
            return str(probe.getsockname()[0])
        except OSError:
            return loopback


def _url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _listen(config: LiveConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only if the protocol is named; with it, every answer waits 40 ms for an ACK
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    try:
        listener.bind((config.host, config.port))
    except OSError as error:
        listener.close()
        raise BadInput(
            f"Cannot listen on {config.host}:{config.port}: {error.strerror}; give another --port."
        ) from None
    listener.listen(BACKLOG)
    listener.set_inheritable(False)
    return listener
