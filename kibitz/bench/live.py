"""`kibitz bench live`: how many events the server delivers, how late, and at what cost."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
from numpy.typing import NDArray

from kibitz.core.system import interrupt

FRAME = {"calls": [{"tool": "set_field", "arguments": {"field": "balanced"}}] * 4, "pad": "x" * 500}
METRICS = {"cpu": "process_cpu_seconds_total", "memory": "process_resident_memory_bytes"}


@dataclass(frozen=True)
class Load:
    """One run over loopback: a real server, an HTTP publisher, and watchers in their own processes.

    A delay lasts from the creation of an event until a watcher has read it, so it includes the request and the commit.
    """

    watchers: int
    rate: float
    seconds: float
    batch: int = 0
    stalled: int = 0
    processes: int = 1
    store: str = ""
    bus: str = ""

    def run(self) -> dict[str, Any]:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            url = stack.enter_context(_server(self.store or str(folder / "load.db"), self.bus))
            return self._measure(url, folder)

    def _measure(self, url: str, folder: Path) -> dict[str, Any]:
        count = round(self.rate * self.seconds)
        with httpx.Client(base_url=url, timeout=60) as client, ExitStack() as stack:
            publisher = Publisher(client)
            publisher.begin()
            clients = self._clients(stack, url, publisher.episode_id, count + 1, folder)
            before = _metrics(client)
            began = time.monotonic()
            behind = publisher.publish(count, self.rate)
            took = time.monotonic() - began
            reports = [json.loads(one.communicate(timeout=self.seconds + 120)[0].splitlines()[-1]) for one in clients]
            elapsed = time.monotonic() - began
            after = _metrics(client)
        delays = self.delays_ms(folder)
        received = sum(report["received"] for report in reports)
        return {
            "watchers": self.watchers,
            "rate": self.rate,
            "seconds": round(took, 2),
            "batch_ms": self.batch,
            "stalled": self.stalled,
            "delivered_per_s": round((received - self.watchers) / took, 1),
            "p50_ms": round(float(np.percentile(delays, 50)), 2) if len(delays) else None,
            "p99_ms": round(float(np.percentile(delays, 99)), 2) if len(delays) else None,
            "max_ms": round(float(delays.max()), 2) if len(delays) else None,
            "lost": sum(report["lost"] for report in reports),
            "doubles": sum(report["doubles"] for report in reports),
            "server_cpu": round((after["cpu"] - before["cpu"]) / elapsed, 3),
            "server_memory_mb": round(after["memory"] / 1e6, 1),
            "client_cpu": round(sum(report["cpu"] for report in reports) / elapsed, 3),
            "publisher_behind_ms": round(1000 * behind, 1),
        }

    @property
    def shares(self) -> list[int]:
        """How many watchers each process has."""
        return [self.watchers // self.processes + (i < self.watchers % self.processes) for i in range(self.processes)]

    def delays_ms(self, folder: Path) -> NDArray[np.float32]:
        """What the processes have measured, without each watcher's first event, which predates it."""
        files = [np.fromfile(folder / f"{i}.f32", np.float32)[share:] for i, share in enumerate(self.shares)]
        return np.float32(1000) * np.concatenate(files)

    def _clients(
        self, stack: ExitStack, url: str, episode_id: str, events: int, folder: Path
    ) -> list[subprocess.Popen[str]]:
        """Starts the watchers and returns once all are connected."""
        started = []
        for i, share in enumerate(self.shares):
            command = [sys.executable, "-m", "kibitz.bench.live_client"]
            command += ["--watchers", str(share), "--events", str(events)]
            command += ["--seconds", str(self.seconds + 60), "--out", str(folder / f"{i}.f32")]
            command += ["--url", f"{url}/custom/ws?episode_id={episode_id}&batch={self.batch}"]
            command += ["--stalled", str(self.stalled if i == 0 else 0)]
            started.append(stack.enter_context(_child(command)))
        for client in started:
            assert client.stdout is not None and client.stdout.readline().strip() == "ready"
        return started


class Publisher:
    """Sends events of about a kilobyte, as in a real match, at a steady rate."""

    def __init__(self, client: httpx.Client) -> None:
        self._client, self.episode_id, self._seq = client, f"load-{os.getpid()}", 0
        self._key = {"episode-key": secrets.token_urlsafe(24)}

    def begin(self) -> None:
        self._send("episode.started", {"game": "load", "version": 1, "players": ["a", "b"], "frame": {}, "about": {}})

    def publish(self, count: int, rate: float) -> float:
        """Returns by how many seconds it fell behind at worst."""
        began, behind = time.monotonic(), 0.0
        for i in range(count):
            due = began + (i + 1) / rate
            wait = due - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            behind = max(behind, -wait)
            self._send("step", {"turn": i, "acts": [[0], [1]], "rewards": [0.0, 0.0], "frame": FRAME})
        return behind

    def _send(self, kind: str, payload: dict[str, Any]) -> None:
        event = {"v": 1, "episode_id": self.episode_id, "seq": self._seq, "ts": time.time(), "type": kind}
        body = orjson.dumps(event | {"payload": payload})
        self._client.post("/custom/events", content=body, headers=self._key).raise_for_status()
        self._seq += 1


@contextmanager
def _server(store: str, bus: str) -> Iterator[str]:
    command = [sys.executable, "-m", "kibitz", "serve", "--port", "0", "--store", store, "--json", "--no-warm"]
    command += ["--connections", "1000000", *(["--bus", bus] if bus else [])]
    with _child(command) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
        process.terminate()
        process.wait(60)


@contextmanager
def _child(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that ends with this block. Ctrl-C at a terminal reaches only its parent, which then ends it."""
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process,
        interrupt.rescue(process.kill),
    ):
        try:
            yield process
        finally:
            process.kill()


def _metrics(client: httpx.Client) -> dict[str, float]:
    text = client.get("/metrics").text
    return {key: float(re.findall(rf"^{name} (.+)$", text, re.MULTILINE)[0]) for key, name in METRICS.items()}
