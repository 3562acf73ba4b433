"""Many watchers in one process, as cheap as Python allows: `python -m kibitz.bench.live_client`.

Reads its orders from the command line, writes `ready` once all are connected, and its figures as
32-bit floats to a file at the end. A watcher checks that every event comes, in order and once.
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
ACK_EVERY = 20  # events


class Watching(asyncio.Protocol):
    """One WebSocket; server frames are not masked, so reading one is cutting bytes."""

    def __init__(self, request: bytes, found: array.array[float], wanted: int, all_done: Any) -> None:
        self._request, self._found, self._wanted, self._all_done = request, found, wanted, all_done
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
            head, found, rest = self._buffer.partition(b"\r\n\r\n")
            if not found:
                return
            if b" 101 " not in head.split(b"\r\n")[0]:
                self._transport.close()
                return
            self._upgraded, self._buffer = True, rest
        while (end := self._frame_end()) > 0:
            self._take(self._buffer[:end], now)
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

    def _take(self, frame: bytes, now: float) -> None:
        kind = frame[0] & 0x0F
        if kind == 9:  # ping
            self._send(0x8A, frame[2:])
        if kind != 1:
            return
        if not self.connected.done():
            self.connected.set_result(None)  # the hello
        for seq_text, ts in EVENT.findall(frame):
            seq = int(seq_text)
            if seq != self.next:
                self.doubles += seq < self.next
                if seq < self.next:
                    continue
            self.next = seq + 1
            self._found.append(now - float(ts))
        if self.next and self.next % ACK_EVERY == 0:
            self._send(0x81, b'{"ack":%d}' % (self.next - 1))
        if self.next >= self._wanted:
            self._all_done(self)

    def _send(self, first: int, payload: bytes) -> None:
        # a mask of zeros leaves the payload as it is, and is one
        self._transport.write(bytes([first, 0x80 | len(payload)]) + b"\0\0\0\0" + payload)


async def _watch(given: argparse.Namespace) -> dict[str, Any]:
    url = urlsplit(given.url)
    key = base64.b64encode(os.urandom(16)).decode()
    request = (
        f"GET {url.path}?{url.query} HTTP/1.1\r\nHost: {url.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()
    loop = asyncio.get_running_loop()
    found: array.array[float] = array.array("f")
    finished: set[Any] = set()
    done = asyncio.Event()

    def finish(one: Any) -> None:
        finished.add(one)
        if len(finished) == given.watchers:
            done.set()

    watchers = []
    for _ in range(given.watchers):
        _, one = await loop.create_connection(
            lambda: Watching(request, found, given.events, finish), url.hostname, url.port
        )
        await asyncio.wait_for(one.connected, 30)
        watchers.append(one)
    silent = [_stalled(request, str(url.hostname), int(url.port or 80)) for _ in range(given.stalled)]
    print("ready", flush=True)
    with suppress(TimeoutError):
        await asyncio.wait_for(done.wait(), given.seconds)
    with open(given.out, "wb") as file:
        found.tofile(file)
    for stuck in silent:
        stuck.close()
    expected = given.watchers * given.events
    return {
        "expected": expected,
        "received": len(found),
        "lost": expected - len(found),
        "doubles": sum(one.doubles for one in watchers),
        "cpu": time.process_time(),
    }


def _stalled(request: bytes, host: str, port: int) -> socket.socket:
    """Connects and then reads nothing, through as small a window as the kernel allows."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.connect((host, port))
    one.sendall(request)
    return one


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--watchers", type=int, required=True)
    parser.add_argument("--stalled", type=int, default=0)
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--out", type=Path, required=True)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    json.dump(asyncio.run(_watch(parser.parse_args())), sys.stdout)


if __name__ == "__main__":
    main()
