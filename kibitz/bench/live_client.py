"""Many watchers in one process, as cheap as Python allows: `python -m kibitz.bench.live_client`.

Client and server share the machine that the benchmark runs on, so whatever the client spends delays the server. One
loop reads all sockets, and frames with the same bytes are parsed once.

Prints `ready` once all are connected. At the end it writes the delays to a file, as 32-bit floats, and prints a summary
as JSON. A watcher checks that it gets every event once and in order.
"""

from __future__ import annotations

import argparse
import array
import base64
import gc
import json
import os
import re
import resource
import selectors
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

EVENT = re.compile(rb'"seq":(\d+),"ts":([0-9.]+)')
ACK_EVENTS = 20  # events between acknowledgements
CONNECT_SECONDS = 60.0
READ_BYTES = 1 << 14
MAX_KNOWN_FRAMES = 64
TEXT, PING, PONG = 0x81, 0x89, 0x8A  # first bytes of whole messages


class Received(NamedTuple):
    """What some bytes of a socket contain."""

    events: Sequence[tuple[int, float]]  # seq and creation time
    pings: Sequence[bytes]
    rest: bytes  # the beginning of a frame


def parse(data: bytes) -> Received:
    """A server does not mask its frames, so reading one means slicing bytes."""
    events, pings, at = list[tuple[int, float]](), list[bytes](), 0
    while at + 2 <= len(data):
        size, start = data[at + 1], at + 2
        if size > 125:
            wide = 2 if size == 126 else 8
            size, start = int.from_bytes(data[start : start + wide]), start + wide
        if start + size > len(data):
            break
        if data[at] == PING:
            pings.append(data[start : start + size])
        elif data[at] == TEXT:
            events += [(int(seq), float(ts)) for seq, ts in EVENT.findall(data, start, start + size)]
        at = start + size
    return Received(events, pings, data[at:])


class LoadWatcher:
    """One WebSocket. `number` keeps its acknowledgements apart from those of the others."""

    def __init__(self, connection: socket.socket, rest: bytes, number: int) -> None:
        self.connection, self.rest = connection, rest
        self.next = 0
        self.doubles = 0
        self._acked = -(number % ACK_EVENTS)

    def take(self, received: Received, now: float, delays: array.array[float]) -> None:
        for seq, ts in received.events:
            if seq < self.next:
                self.doubles += 1
                continue
            self.next = seq + 1
            delays.append(now - ts)
        self.rest = received.rest
        for ping in received.pings:
            self._send(PONG, ping)
        if self.next - self._acked >= ACK_EVENTS:
            self._acked = self.next
            self._send(TEXT, b'{"ack":%d}' % (self.next - 1))

    def _send(self, first: int, payload: bytes) -> None:
        # clients must mask; a mask of zeros leaves the payload unchanged
        with suppress(ConnectionError):  # the next read finds out as well
            self.connection.sendall(bytes([first, 0x80 | len(payload)]) + b"\0\0\0\0" + payload)


def connect(host: str, port: int, request: bytes, number: int) -> LoadWatcher:
    """Returns after the server's hello message."""
    connection = socket.create_connection((host, port), CONNECT_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(request)
    data = b""
    while b'"hello"' not in data:
        more = connection.recv(READ_BYTES)
        data += more
        if not more or b" 101 " not in data[:20]:
            raise ConnectionError(f"The server refused watcher {number}: {data[:100]!r}")
    connection.setblocking(False)
    return LoadWatcher(connection, data.partition(b"\r\n\r\n")[2], number)


def watch(options: argparse.Namespace) -> dict[str, Any]:
    url = urlsplit(options.url)
    host, port = str(url.hostname), int(url.port or 80)
    key = base64.b64encode(os.urandom(16)).decode()
    request = (
        f"GET {url.path}?{url.query} HTTP/1.1\r\nHost: {url.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()
    watchers = [connect(host, port, request, number) for number in range(options.watchers)]
    stalled = [_stalled(request, host, port) for _ in range(options.stalled)]
    delays: array.array[float] = array.array("f")
    gc.disable()  # nothing here is cyclic, and a pause would count as the server's delay
    print("ready", flush=True)
    spent = time.process_time()
    _read_all(watchers, options.events, time.monotonic() + options.seconds, delays)
    spent = time.process_time() - spent
    with open(options.out, "wb") as file:
        delays.tofile(file)
    for connection in stalled:
        connection.close()
    expected = options.watchers * options.events
    return {
        "expected": expected,
        "received": len(delays),
        "lost": expected - len(delays),
        "doubles": sum(watcher.doubles for watcher in watchers),
        "cpu": spent,
    }


def _read_all(watchers: list[LoadWatcher], events: int, ends_at: float, delays: array.array[float]) -> None:
    """Until every watcher has all events, or the time is over."""
    selector = selectors.DefaultSelector()
    for watcher in watchers:
        watcher.take(parse(watcher.rest), time.time(), delays)
        selector.register(watcher.connection, selectors.EVENT_READ, watcher)
    known: dict[bytes, Received] = {}
    waiting = sum(watcher.next < events for watcher in watchers)
    while waiting and time.monotonic() < ends_at:
        for key, _ in selector.select(1.0):
            watcher = key.data
            try:
                data = watcher.connection.recv(READ_BYTES)
            except ConnectionError:
                data = b""
            now = time.time()
            if not data:  # the server has closed it, and the missing events count as lost
                selector.unregister(watcher.connection)
                waiting -= watcher.next < events
                continue
            data = watcher.rest + data if watcher.rest else data
            received = known.get(data)
            if received is None:
                if len(known) >= MAX_KNOWN_FRAMES:
                    known.clear()
                received = known[data] = parse(data)
            complete = watcher.next >= events
            watcher.take(received, now, delays)
            waiting -= watcher.next >= events and not complete


def _stalled(request: bytes, host: str, port: int) -> socket.socket:
    """Connects and never reads, with the smallest receive buffer that the kernel allows."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((host, port))
    connection.sendall(request)
    return connection


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--watchers", type=int, required=True)
    parser.add_argument("--stalled", type=int, default=0)
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--out", type=Path, required=True)
    max_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max_files, max_files))
    json.dump(watch(parser.parse_args()), sys.stdout)


if __name__ == "__main__":
    main()
