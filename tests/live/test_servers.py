"""Several servers behind one address: PostgreSQL, Redis and the proxy of deploy/nginx.conf, all real."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from tests.live.conftest import Served, start_server
from tests.live.machines import Nginx, Postgres, Redis, free_port, wait_until

pytestmark = pytest.mark.conformance
TOKEN = {"authorization": "Bearer a-token-for-all"}
CACHE_ALL = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
PERSON = {
    "game": "deal_or_no_deal", "players": ["human", "partner:stubborn"], "seed": 0, "pace": 0, "enable_tts": False,
}  # fmt: skip
LONG = {  # these players do not agree in this game
    "game": "deal_or_no_deal", "seed": 0, "players": ["partner:stubborn", "partner:stubborn"],
    "options": {"max_turns": 250, "disagree_ends": False}, "enable_tts": False,
}  # fmt: skip


@dataclass
class Cluster:
    """Servers that share a store, and the proxy in front of them."""

    store: str
    words: list[str]
    folder: Path
    ports: list[int] = field(default_factory=lambda: [free_port(), free_port()])
    servers: list[Served] = field(default_factory=list)
    proxy: Nginx = field(init=False)

    def start(self, number: int) -> Served:
        # a server compiles what it plays: once for all, so that fifty restarts need not
        cache = {"JAX_COMPILATION_CACHE_DIR": str(self.folder / "compiled"), **CACHE_ALL}
        return start_server(self.store, *self.words, "--port", str(self.ports[number]), env=cache)

    def client(self, number: int | None = None) -> httpx.Client:
        """Of one server, or of the proxy."""
        url = self.proxy.url if number is None else self.servers[number].url
        return httpx.Client(base_url=url, headers=TOKEN, timeout=60)

    @contextmanager
    def running(self) -> Iterator[Cluster]:
        self.servers = [self.start(number) for number in range(len(self.ports))]
        self.proxy = Nginx(self.folder, self.ports)
        try:
            yield self
        finally:
            self.proxy.stop()
            for server in self.servers:
                server.kill()
                server.stop()  # closes its output


@pytest.fixture(scope="module")
def cluster(postgres: Postgres, redis: Redis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    words = ["--bus", redis.url, "--no-warm", "--max-episodes", "8", "--drain", "60", "--starts", "1000"]
    words += ["--trusted-proxies", "1", "--token", TOKEN["authorization"].split()[1]]
    with Cluster(postgres.fresh(), words, tmp_path_factory.mktemp("servers")).running() as one:
        yield one


def read(socket: Any, seen: list[dict[str, Any]], until: int | None = None) -> None:
    """Reads events until this many, or the end of the connection."""
    for message in socket:
        received = json.loads(message)
        seen += [] if "hello" in received else received.get("events", [received])
        if until is not None and len(seen) >= until:
            return


def ws(base: str, query: str) -> Any:
    return connect(f"{base.replace('http', 'ws', 1)}/custom/ws?{query}", open_timeout=60)


def test_an_episode_of_one_server_is_watched_played_branched_and_replayed_through_another(cluster: Cluster) -> None:
    with cluster.client(0) as here, cluster.client(1) as there, cluster.client() as proxy:
        started = here.post("/custom/start_episode", json=PERSON).json()
        episode, seat = f"/episodes/{started['episode_id']}", {"seat_token": started["seat_token"]}
        assert [one["episode_id"] for one in there.get("/custom/status").json()["running"]] == [started["episode_id"]]
        with ws(
            cluster.servers[1].url, f"episode_id={started['episode_id']}&seat_token={started['seat_token']}"
        ) as socket:
            seen: list[Any] = []
            while not any(event["type"] == "turn.requested" for event in seen):
                read(socket, seen, len(seen) + 1)
            asked = next(event for event in seen if event["type"] == "turn.requested")
            assert "view_text" in asked["payload"]["private"]["0"], (
                "the person's own values, seen through another server"
            )
            turn = there.get(f"{episode}/turn", params=seat).json()
            assert (turn["your_turn"], turn["turn"]) == (True, 0) and 0 < turn["seconds_left"] <= 60
            assert there.get(f"{episode}/turn", params={"seat_token": "0-wrong"}).status_code == 404
            wrong = there.post(f"{episode}/act", json=seat | {"act": [99, 99, 99, 99]})
            assert wrong.status_code == 422 and "legal" in wrong.json()["error"]
            assert there.post(f"{episode}/act", json=seat | {"text": "disagree", "turn": 7}).status_code == 409
            acted = there.post(f"{episode}/act", json=seat | {"text": "disagree", "turn": 0})
            assert acted.status_code == 200, acted.text
            read(socket, seen)
        assert [event["seq"] for event in seen] == list(range(len(seen))) and seen[-1]["type"] == "episode.ended"
        replayed = there.get(f"{episode}/stream", params={"speed": 1e6}).text
        assert replayed.count('data: {"v"') == len(seen)
        assert proxy.get(f"{episode}/events").content == here.get(f"{episode}/events").content
        branch = there.post(f"{episode}/branch", json={"turn": 0, "players": ["heuristic", "heuristic"], "pace": 0})
        assert branch.status_code == 202, branch.text
        long = here.post("/custom/start_episode", json=LONG | {"pace": 30}).json()["episode_id"]
        assert there.post("/custom/stop_episode", json={"episode_id": long}).json() == {"stopped": long}
        with ws(cluster.proxy.url, f"episode_id={long}") as socket:
            read(socket, stopped := [])
        assert stopped[-1]["payload"]["kind"] == "stopped"


def test_a_server_that_drains_finishes_its_episodes_and_leaves_new_ones_to_the_others(cluster: Cluster) -> None:
    with cluster.client(0) as leaving, cluster.client() as proxy:
        started = leaving.post("/custom/start_episode", json=PERSON).json()
        act = {"text": "disagree", "seat_token": started["seat_token"]}
        wait_until(lambda: leaving.get(f"/episodes/{started['episode_id']}/turn", params=act).json()["your_turn"])
        cluster.servers[0].process.send_signal(signal.SIGTERM)
        wait_until(lambda: leaving.get("/ready").status_code == 503)
        assert leaving.get("/ready").json() == {"error": "The server is shutting down."}
        assert leaving.get("/health").status_code == 200, "it is alive"
        refused = leaving.post("/custom/start_episode", json=LONG)
        assert (refused.status_code, "shutting down" in refused.json()["error"]) == (503, True)
        for _ in range(4):  # whichever server the proxy asks first
            other = proxy.post("/custom/start_episode", json=LONG | {"pace": 30})
            assert other.status_code == 202, other.text
            proxy.post("/custom/stop_episode", json={"episode_id": other.json()["episode_id"]})
        assert proxy.post(f"/episodes/{started['episode_id']}/act", json=act).status_code == 200
        assert cluster.servers[0].process.wait(120) == 0
        assert proxy.get(f"/episodes/{started['episode_id']}").json()["status"] == "ended", "it was not cut short"
