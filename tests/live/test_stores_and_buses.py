"""Every store with every bus keeps the same promises, with real servers."""

from __future__ import annotations

import json
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from tests.live import record
from tests.live.conftest import Serve, Served
from tests.live.machines import Postgres, Redis, wait_until
from tests.live.test_watch import watch

STUBBORN = {  # these players do not agree in this game; where they want different items, they would
    "game": "deal_or_no_deal", "seed": 0, "captain_preset": "partner:stubborn", "opponent_choice": "partner:stubborn",
    "options": {"max_turns": 250, "disagree_ends": False},
}  # fmt: skip
HEAVY = pytest.mark.conformance
FOUR = [
    pytest.param(("sqlite", ""), id="sqlite"),
    pytest.param(("sqlite", "redis"), id="sqlite-redis", marks=HEAVY),
    pytest.param(("postgresql", ""), id="postgresql", marks=HEAVY),
    pytest.param(("postgresql", "redis"), id="postgresql-redis", marks=HEAVY),
]


@pytest.fixture(params=FOUR)
def words(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """`--store` and `--bus` of one combination."""
    store, bus = request.param
    where = request.getfixturevalue("postgres").fresh() if store == "postgresql" else str(tmp_path / "a.db")
    more = ["--bus", request.getfixturevalue("redis").url] if bus else []
    return ["--store", where, *more, "--no-warm", "--store-timeout", "20"]


def post(served: Served, events: list[dict[str, Any]]) -> httpx.Response:
    return httpx.post(f"{served.url}/custom/events", content=record.lines(events), headers=record.KEY, timeout=60)


def test_a_remote_drivers_episode_is_watched_resumed_and_listed(serve: Serve, words: list[str]) -> None:
    served = serve(*words)
    sent = record.events("ep-a", steps=30)
    with connect(f"{served.ws}?episode_id=&since=-1") as socket:
        assert json.loads(socket.recv(60)) == {"idle": True}
        assert post(served, sent[:10]).json() == {"next": 10, "added": 10}
        seen: list[Any] = []
        while len(seen) < 10:
            received = json.loads(socket.recv(60))
            seen += [] if "hello" in received else received.get("events", [received])
    assert [event["seq"] for event in seen] == list(range(10))
    assert served.get("/episodes/ep-a")["frame"] == {"n": 9}
    assert post(served, sent[5:20]).json() == {"next": 20, "added": 10}, "duplicates are harmless"
    refused = post(served, sent[25:])
    assert (refused.status_code, refused.json()["expected"]) == (409, 20)
    assert post(served, sent[20:]).status_code == 200
    _, resumed = watch(served, "episode_id=ep-a&since=15")
    assert resumed == sent[16:]
    assert served.events("ep-a") == sent
    listed = served.get("/episodes")["episodes"][0]
    assert (listed["status"], listed["returns"], listed["text"]) == ("ended", [3.0, 1.0], "It is over.")


def test_a_killed_server_has_stored_all_it_showed_and_the_driver_continues(serve: Serve, words: list[str]) -> None:
    served = serve(*words)
    sent = record.events("ep-a", steps=60)
    seen: list[dict[str, Any]] = []

    def read() -> None:
        with connect(f"{served.ws}?episode_id=ep-a") as socket:
            for message in socket:
                received = json.loads(message)
                seen.extend([] if "hello" in received else received.get("events", [received]))

    post(served, sent[:1])
    reading = threading.Thread(target=lambda: _ended(read))
    reading.start()
    for event in sent[1:30]:
        post(served, [event])
    wait_until(lambda: len(seen) > 5, what="an event")
    served.kill()
    reading.join(60)
    restarted = serve(*words)
    stored = restarted.events("ep-a")
    assert [event["seq"] for event in stored] == list(range(len(stored)))
    assert {event["seq"] for event in seen} <= {event["seq"] for event in stored}
    assert restarted.get("/episodes/ep-a")["status"] == "running", "its driver may continue"
    assert post(restarted, sent[20:]).status_code == 200
    assert [event["seq"] for event in restarted.events("ep-a")] == list(range(len(sent)))


def _ended(read: Any) -> None:
    """A killed server closes the connection without a reason."""
    from websockets.exceptions import ConnectionClosed

    try:
        read()
    except (ConnectionClosed, OSError):
        return


@pytest.mark.conformance
def test_watchers_of_one_server_see_the_episodes_of_another(serve: Serve, postgres: Postgres, redis: Redis) -> None:
    words = ["--store", postgres.fresh(), "--bus", redis.url, "--no-warm"]
    here, there = serve(*words), serve(*words)
    sent = record.events("ep-a", steps=40)
    post(here, sent[:5])

    def sees_both(one: Served) -> bool:
        return bool(one.get("/custom/status")["watching"] == {"ep-a": 2})

    with connect(f"{there.ws}?episode_id=ep-a") as socket, connect(f"{here.ws}?episode_id=ep-a"):
        for one in (here, there):  # each counts the other's audience, too
            wait_until(partial(sees_both, one), 60, "both watchers")
            assert one.get("/episodes", outline=True)["episodes"][0]["outline"]["watchers"] == 2
        seen: list[Any] = []
        for first in range(5, len(sent), 5):
            post(here, sent[first : first + 5])
        while len(seen) < len(sent):
            received = json.loads(socket.recv(60))
            seen += [] if "hello" in received else received.get("events", [received])
    assert [event["seq"] for event in seen] == list(range(len(sent)))


@pytest.mark.conformance
def test_a_server_closes_the_episodes_of_a_dead_server_but_not_of_a_living_one(
    serve: Serve, postgres: Postgres, redis: Redis
) -> None:
    words = ["--store", postgres.fresh(), "--bus", redis.url, "--no-warm"]
    dies, lives = serve(*words), serve(*words)
    left, kept = dies.start(**STUBBORN, pace=30.0), lives.start(**STUBBORN, pace=30.0)
    with connect(f"{lives.ws}?episode_id={left}") as socket:
        socket.recv(60)
        dies.kill()
        events: list[Any] = []
        for message in socket:
            received = json.loads(message)
            events += received.get("events", [received])
    assert events[-1]["payload"]["kind"] == "interrupted", "watchers at other servers learn of it"
    assert lives.get(f"/episodes/{left}")["status"] == "interrupted"
    assert lives.get(f"/episodes/{kept}")["status"] == "running"
    httpx.post(f"{lives.url}/custom/stop_episode", json={"episode_id": kept})


@pytest.mark.conformance
def test_watchers_miss_nothing_when_redis_restarts(own_redis: Redis, serve: Serve, postgres: Postgres) -> None:
    redis = own_redis
    words = ["--store", postgres.fresh(), "--bus", redis.url, "--no-warm"]
    here, there = serve(*words), serve(*words)
    sent = record.events("ep-a", steps=40)
    post(here, sent[:5])
    with connect(f"{there.ws}?episode_id=ep-a") as away, connect(f"{here.ws}?episode_id=ep-a") as beside:
        redis.stop()
        for event in sent[5:20]:
            assert post(here, [event]).status_code == 200, "the match continues"
        assert _read(beside, 20) == list(range(20)), "and its own server shows it"
        redis.start()
        post(here, sent[20:])
        assert _read(away, len(sent)) == list(range(len(sent)))


@pytest.mark.conformance
def test_a_ten_second_outage_of_postgresql_and_redis_loses_nothing(
    own_postgres: Postgres, own_redis: Redis, serve: Serve
) -> None:
    postgres, redis = own_postgres, own_redis
    words = ["--store", postgres.fresh(), "--bus", redis.url, "--no-warm", "--store-timeout", "60"]
    here, there = serve(*words), serve(*words)
    sent = record.events("ep-a", steps=20)
    played = here.start(**STUBBORN, pace=1.0)
    post(here, sent[:5])
    postgres.stop(), redis.stop()
    gone = time.monotonic()
    answers: list[int] = []

    def send() -> None:  # retries as a driver does
        while (not answers or answers[-1] == 503) and time.monotonic() < gone + 180:
            answers.append(post(here, sent[5:]).status_code)
            time.sleep(0.2)

    sending = threading.Thread(target=send)
    sending.start()
    assert here.get("/health")["status"] == "healthy"
    assert httpx.get(f"{here.url}/episodes/ep-a").status_code == 503
    time.sleep(max(0, gone + 10 - time.monotonic()))
    postgres.start(), redis.start()
    sending.join(180)
    assert answers[-1] == 200
    for served in (here, there):
        assert served.events("ep-a") == sent
    reached = here.get(f"/episodes/{played}")["last_seq"]
    wait_until(lambda: here.get(f"/episodes/{played}")["last_seq"] > reached, 60, "the next turn")
    time.sleep(11)  # two sweeps of the other server, which must not close the episodes of a living one
    assert there.get(f"/episodes/{played}")["status"] == "running"
    httpx.post(f"{here.url}/custom/stop_episode", json={"episode_id": played})
    here.wait_for_end(played)


def _read(socket: Any, count: int) -> list[int]:
    seen: list[int] = []
    while len(seen) < count:
        received = json.loads(socket.recv(60))
        seen += [] if "hello" in received else [event["seq"] for event in received.get("events", [received])]
    return seen
