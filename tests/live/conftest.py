"""Real servers in their own processes, on free ports, with stores in temporary folders."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.live.machines import Postgres, Redis, wait_until
from tests.live.server_process import Child


@dataclass
class Served:
    """A running `kibitz serve`."""

    url: str
    process: Child
    invitation: str = ""  # with --guests

    @property
    def ws(self) -> str:
        return self.url.replace("http", "ws", 1) + "/custom/ws"

    def start(self, **asked: Any) -> str:
        """Starts an episode without pauses, unless `pace` is given; returns its id."""
        answer = httpx.post(f"{self.url}/custom/start_episode", json={"pace": 0.0} | asked, timeout=60)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["episode_id"])

    def events(self, episode_id: str, **query: Any) -> list[dict[str, Any]]:
        answer = httpx.get(f"{self.url}/episodes/{episode_id}/events", params=query, timeout=30)
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]

    def get(self, path: str, **query: Any) -> Any:
        answer = httpx.get(self.url + path, params=query, timeout=30)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def wait_for_end(self, episode_id: str) -> dict[str, Any]:
        """Watches until the last event and until another may start; returns the episode as lists show it."""
        from websockets.exceptions import ConnectionClosedOK
        from websockets.sync.client import connect

        with connect(f"{self.ws}?episode_id={episode_id}", open_timeout=30) as socket, suppress(ConnectionClosedOK):
            while True:
                socket.recv(120)  # the server may compile first
        found: dict[str, Any] = self.get(f"/episodes/{episode_id}")
        assert found["status"] != "running"
        wait_until(lambda: episode_id not in [one["episode_id"] for one in self.get("/custom/status")["running"]])
        return found

    def memory(self) -> float:
        """Resident bytes."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return float(pages) * os.sysconf("SC_PAGE_SIZE")

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(240)
        self.process.stdout.close()
        return code


Serve = Callable[..., Served]


def compiled_once(folder: Path) -> dict[str, str]:
    """Settings with which servers started again and again read even their smallest programs from this folder."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def start_server(store: Path | str, *more: str, env: dict[str, str] | None = None) -> Served:
    """Returns once the server answers."""
    process = Child(["serve", "--port", "0", "--store", str(store), "--json", "--drain", "0", *more], env or {})
    line = process.first_line(240)
    assert line, "the server did not start"
    about = json.loads(line)
    return Served(about["url"], process, about.get("invitation", ""))


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts servers with any options and stops them after the test."""
    started: list[Served] = []

    def run(*more: str, store: Path | str | None = None, env: dict[str, str] | None = None) -> Served:
        served = start_server(store or tmp_path / "kibitz.db", *more, env=env)
        started.append(served)
        return served

    yield run
    for served in started:
        served.stop()


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests that need no options."""
    one = start_server(tmp_path_factory.mktemp("live") / "kibitz.db", "--no-warm", "--max-episodes", "8")
    yield one
    assert one.stop() == 0


@pytest.fixture
def server(served: Served) -> str:
    """The shared server's base URL."""
    return served.url


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    one = Postgres()
    yield one
    one.close()


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    one = Redis(tmp_path_factory.mktemp("redis"))
    yield one
    one.stop()


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """One that a test may stop."""
    one = Postgres()
    yield one
    one.close()


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[Redis]:
    """One that a test may stop."""
    one = Redis(tmp_path)
    yield one
    one.stop()
