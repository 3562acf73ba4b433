"""Several servers behind one address: PostgreSQL, Redis and the proxy of deploy/nginx.conf, all real."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from kibitz.core.play.events import LAST
from tests.live import record
from tests.live.compose import server_options
from tests.live.conftest import Served, compiled_once, start_server
from tests.live.machines import Nginx, Postgres, Redis, free_port, wait_until

pytestmark = pytest.mark.conformance
TOKEN = {"authorization": "Bearer a-token-for-all"}
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
    environment: dict[str, str]
    ports: list[int] = field(default_factory=lambda: [free_port(), free_port()])
    servers: list[Served] = field(default_factory=list)
    proxy: Nginx = field(init=False)

    def start(self, number: int) -> Served:
        words = [*self.words, "--port", str(self.ports[number])]
        return start_server(self.store, *words, env=compiled_once(self.folder / "compiled") | self.environment)

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
    """The servers of deploy/compose.yaml, as processes of this machine."""
    values = {"KIBITZ_TOKEN": TOKEN["authorization"].split()[1], "POSTGRES_PASSWORD": "unused"}
    here = {"--host": "127.0.0.1", "--store": postgres.fresh(), "--bus": redis.url}
    options = server_options(values) | here | {"--starts": "1000"}  # all tests start episodes from one address
    words = ["--no-warm", *(f"{name}={value}" for name, value in options.items())]
    with Cluster(here["--store"], words, tmp_path_factory.mktemp("servers"), values).running() as one:
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


@dataclass
class Watching:
    """Watches an episode through the proxy to its end, and resumes wherever the proxy leads."""

    episode_id: str
    seen: list[int] = field(default_factory=list)
    last: dict[str, Any] = field(default_factory=dict)
    resumed: int = -1

    async def run(self, url: str) -> None:
        from websockets.asyncio.client import connect

        while self.last.get("type") not in LAST:
            self.resumed += 1
            query = f"episode_id={self.episode_id}&since={len(self.seen) - 1}"
            with suppress(WebSocketException, OSError, TimeoutError):
                async with connect(f"{url}/custom/ws?{query}", close_timeout=1) as socket:
                    async for message in socket:
                        received = json.loads(message)
                        for event in received.get("events", [received] if "seq" in received else []):
                            self.seen.append(event["seq"])
                            self.last = event


@dataclass
class Driving:
    """Publishes episodes through the proxy, one event at a time, and again if it was not accepted, until stopped."""

    stop: threading.Event = field(default_factory=threading.Event)
    driven: dict[str, list[int]] = field(default_factory=dict)  # by episode: the events that were accepted

    def run(self, url: str) -> None:
        with httpx.Client(base_url=url, headers=TOKEN | record.KEY, timeout=60) as client:
            while not self.stop.is_set():
                episode_id = f"driven-{len(self.driven)}"
                sent, stored, at = record.events(episode_id, steps=50), self.driven.setdefault(episode_id, []), 0
                while at < len(sent):
                    with suppress(httpx.HTTPError):
                        answer = client.post("/custom/events", content=json.dumps(sent[at]))
                        if answer.status_code == 200:
                            stored.append(sent[at]["seq"])
                            at += 1
                    self.stop.wait(0.02)


def kill_in_turn(cluster: Cluster, times: int, watch: Callable[[Watching], None]) -> list[Watching]:
    """Each round starts an episode on one server, watches it through the proxy, and kills and restarts the server."""
    moments, started = random.Random(3), []
    restarts = dict[int, Future[Served]]()
    with ThreadPoolExecutor(2) as pool:  # one restarts while the other plays
        for kill in range(times):
            number = kill % 2
            if number in restarts:
                cluster.servers[number] = restarts.pop(number).result()
            started.append(kill_one(cluster, number, watch, moments.uniform(0, 0.3)))
            restarts[number] = pool.submit(cluster.start, number)
        for number, restart in restarts.items():
            cluster.servers[number] = restart.result()
    return started


def kill_one(cluster: Cluster, number: int, watch: Callable[[Watching], None], after: float) -> Watching:
    victim = cluster.servers[number]
    with cluster.client(number) as client:
        answer = client.post("/custom/start_episode", json=LONG | {"pace": 0.05})
    assert answer.status_code == 202, answer.text
    one = Watching(answer.json()["episode_id"])
    watch(one)
    wait_until(lambda: len(one.seen) > 1, what="an event")
    time.sleep(after)
    victim.kill()
    victim.stop()  # closes its output
    return one


def test_servers_killed_fifty_times_in_turn_lose_nothing_that_was_seen_through_the_proxy(cluster: Cluster) -> None:
    driving, url = Driving(), cluster.proxy.url.replace("http", "ws", 1)

    async def play() -> list[Watching]:
        loop, tasks = asyncio.get_running_loop(), list[Any]()
        driver = loop.run_in_executor(None, driving.run, cluster.proxy.url)

        def watch(one: Watching) -> None:
            tasks.append(asyncio.run_coroutine_threadsafe(one.run(url), loop))

        try:
            watched = await asyncio.to_thread(kill_in_turn, cluster, 50, watch)
        finally:
            driving.stop.set()
        async with asyncio.timeout(120):
            await asyncio.gather(driver, *map(asyncio.wrap_future, tasks))
        return watched

    watched = asyncio.run(play())
    with cluster.client() as client:

        def stored(episode_id: str) -> list[Any]:
            return [json.loads(line) for line in client.get(f"/episodes/{episode_id}/events").text.splitlines()]

        for one in watched:
            events = stored(one.episode_id)
            assert one.seen == [event["seq"] for event in events] == list(range(len(events))), "no gap, no loss"
            assert events[-1]["payload"]["kind"] == "interrupted"
        for episode_id, accepted in driving.driven.items():
            assert accepted == [event["seq"] for event in stored(episode_id)] == list(range(len(accepted)))
        assert client.get("/episodes", params={"status": "running"}).json()["episodes"] == [], "every record is closed"
    assert len(watched) == 50 and sum(one.resumed for one in watched) >= 50, "the servers killed had watchers"
    assert len(driving.driven) > 1


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
