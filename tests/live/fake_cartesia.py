"""A server with Cartesia's `POST /tts/bytes`; the first part of the path selects how it behaves."""

from __future__ import annotations

import io
import json
import math
import struct
import threading
import wave
from collections import Counter
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def tone(seconds: float = 0.4, rate: int = 44_100) -> bytes:
    into = io.BytesIO()
    with wave.open(into, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        steps = range(int(seconds * rate))
        file.writeframes(b"".join(struct.pack("<h", int(9000 * math.sin(i / 20))) for i in steps))
    return into.getvalue()


class Handler(BaseHTTPRequestHandler):
    server: FakeCartesia

    def do_POST(self) -> None:
        kind, _, path = self.path.lstrip("/").partition("/")
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.counts[kind] += 1
        self.server.requests.append((kind, path, dict(self.headers), body))
        if kind == "good" or (kind == "second" and self.server.counts[kind] > 1):
            self._send(200, tone(), "audio/wav")
        elif kind == "html":
            self._send(200, b"<html>Welcome to the hotel</html>", "text/html")
        elif kind == "slow":
            self.server.ending.wait(5)
        elif kind == "drip":
            self.send_response(200)
            self.send_header("content-length", "1000000")
            self.end_headers()
            for _ in range(100):
                self.wfile.write(b"RIFF")
                self.wfile.flush()
                if self.server.ending.wait(0.05):
                    break
        else:
            status = 500 if kind == "second" else int(kind)
            self._send(status, json.dumps({"error": f"no, {self.headers.get('authorization')}"}).encode())

    def _send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle(self) -> None:
        with suppress(ConnectionError):  # the caller has disconnected
            super().handle()

    def log_message(self, *_: Any) -> None:
        pass


class FakeCartesia(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.counts: Counter[str] = Counter()
        self.requests: list[Any] = []
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    def url(self, kind: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{kind}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass

    def stop(self) -> None:
        self.ending.set()
        self.shutdown()
        self.thread.join(60)
        self.server_close()
