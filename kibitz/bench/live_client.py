"""Many watchers in one process, as cheap as Python allows: `python -m kibitz.bench.live_client`.

Prints `ready` once all are connected. At the end it writes the delays to a file, as 32-bit floats, and prints a summary
as JSON. A watcher checks that it gets every event once and in order.
"""

from __future__ import annotations

import argparse
import array
import asyncio
import base64
import json
import os
import re
import resource
import socket
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

EVENT = re.compile(rb'"seq":(\d+),"ts":([0-9.]+)')
ACK_EVENTS = 20  # events between acknowledgements


class WatcherProtocol(asyncio.Protocol):
    """One WebSocket. A server does not mask its frames, so reading one means slicing bytes."""

    def __init__(self, request: bytes, delays: array.array[float], events: int, on_complete: Any) -> None:
        self._request, self._delays, self._events, self._on_complete = request, delays, events, on_complete
        self._buffer = b""
        self._upgraded = False
        self.connected = asyncio.get_running_loop().create_future()
        self.next = 0
        self.doubles = 0
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(self._request)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.connected.done():
            self.connected.set_exception(ConnectionError("refused"))

    def data_received(self, data: bytes) -> None:
        now = time.time()
        self._buffer = self._buffer + data if self._buffer else data
        if not self._upgraded:
            head, end_of_head, rest = self._buffer.partition(b"\r\n\r\n")
            if not end_of_head:
                return
            if b" 101 " not in head.split(b"\r\n")[0]:
                self._transport.close()
                return
            self._upgraded, self._buffer = True, rest
        while (end := self._frame_end()) > 0:
            self._read_frame(self._buffer[:end], now)
            self._buffer = self._buffer[end:]

    def _frame_end(self) -> int:
        buffer = self._buffer
        if len(buffer) < 2:
            return 0
        size, start = buffer[1] & 0x7F, 2
        if size == 126:
            if len(buffer) < 4:
                return 0
            size, start = struct.unpack_from(">H", buffer, 2)[0], 4
        elif size == 127:
            if len(buffer) < 10:
                return 0
            size, start = struct.unpack_from(">Q", buffer, 2)[0], 10
        return start + size if len(buffer) >= start + size else 0

    def _read_frame(self, frame: bytes, now: float) -> None:
        opcode = frame[0] & 0x0F
        if opcode == 9:  # ping
            self._send(0x8A, frame[2:])
        if opcode != 1:  # text
            return
        if not self.connected.done():
            self.connected.set_result(None)  # the hello message
        for seq_text, ts in EVENT.findall(frame):
            seq = int(seq_text)
            if seq != self.next:
                self.doubles += seq < self.next
                if seq < self.next:
                    continue
            self.next = seq + 1
            self._delays.append(now - float(ts))
        if self.next and self.next % ACK_EVENTS == 0:
            self._send(0x81, b'{"ack":%d}' % (self.next - 1))
        if self.next >= self._events:
            self._on_complete(self)

    def _send(self, first: int, payload: bytes) -> None:
        # clients must mask; a mask of zeros leaves the payload unchanged
        self._transport.write(bytes([first, 0x80 | len(payload)]) + b"\0\0\0\0" + payload)


async def _watch(options: argparse.Namespace) -> dict[str, Any]:
    url = urlsplit(options.url)
    key = base64.b64encode(os.urandom(16)).decode()
    request = (
        f"GET {url.path}?{url.query} HTTP/1.1\r\nHost: {url.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()
    loop = asyncio.get_running_loop()
    delays: array.array[float] = array.array("f")
    finished: set[Any] = set()
    done = asyncio.Event()

    def finish(watcher: Any) -> None:
        finished.add(watcher)
        if len(finished) == options.watchers:
            done.set()

    watchers = []
    for _ in range(options.watchers):
        _, watcher = await loop.create_connection(
            lambda: WatcherProtocol(request, delays, options.events, finish), url.hostname, url.port
        )
        await asyncio.wait_for(watcher.connected, 30)
        watchers.append(watcher)
    stalled = [_stalled(request, str(url.hostname), int(url.port or 80)) for _ in range(options.stalled)]
    print("ready", flush=True)
    with suppress(TimeoutError):
        await asyncio.wait_for(done.wait(), options.seconds)
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
        "cpu": time.process_time(),
    }


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
    json.dump(asyncio.run(_watch(parser.parse_args())), sys.stdout)


if __name__ == "__main__":
    main()
