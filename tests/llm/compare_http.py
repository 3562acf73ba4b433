"""CPU time per request of `kibitz.llm.providers.http` and of httpx: `python -m tests.llm.compare_http`.

Both send the same chat request to the fake server, which runs in its own process, over 1, 64
or 500 open connections. Only the client's process is measured, so other load matters little.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

import httpx

from kibitz.llm.providers.http import HttpClient
from tests.llm.conftest import words

ROUNDS = 7
BODY = json.dumps({"model": "any", "messages": words()}).encode()
HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}


async def measure(send: Callable[[], Awaitable[object]], count: int) -> tuple[float, float]:
    """Medians: CPU milliseconds per request, requests per second of wall time."""
    cpu, rate = [], []
    for _ in range(ROUNDS + 1):
        before, started = time.process_time(), time.perf_counter()
        replies = await asyncio.gather(*(send() for _ in range(count)))
        cpu.append(1e3 * (time.process_time() - before) / count)
        rate.append(count / (time.perf_counter() - started))
        assert all(200 in (getattr(reply, "status", 0), getattr(reply, "status_code", 0)) for reply in replies)
    return statistics.median(cpu[1:]), statistics.median(rate[1:])  # the first round connects


async def compare(url: str, count: int) -> None:
    ours = HttpClient(url)
    limits = httpx.Limits(max_connections=count, max_keepalive_connections=count)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60) as theirs:
        for name, send in (
            ("ours", lambda: ours.send("POST", "/chat/completions", HEADERS, BODY)),
            ("httpx", lambda: theirs.post("/chat/completions", headers=HEADERS, content=BODY)),
        ):
            cpu, rate = await measure(send, count)
            print(f"{count:4} at once, {name:5}: {cpu:6.3f} ms CPU per request, {rate:6.0f} requests/s")
    await ours.close()


if __name__ == "__main__":
    with subprocess.Popen(
        [sys.executable, "-m", "tests.llm.fake_server", "0"], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        for at_once in (1, 64, 500):
            asyncio.run(compare(f"http://127.0.0.1:{port}/v1", at_once))
        server.kill()
