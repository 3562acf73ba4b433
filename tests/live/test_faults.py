"""kill -9 at any moment: every event that was seen is stored, and the episode ends as interrupted. A lost store."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.live import record
from tests.live.conftest import Serve, Served, compiled_once
from tests.live.machines import wait_until

LONG = {  # these players do not agree in this game
    "game": "deal_or_no_deal", "seed": 0, "captain_preset": "partner:stubborn", "opponent_choice": "partner:stubborn",
    "options": {"max_turns": 250, "disagree_ends": False}, "pace": 0.005,
}  # fmt: skip


def _watch(served: Served, seen: list[int]) -> None:
    try:
        with connect(served.ws) as socket:
            for message in socket:
                data = json.loads(message)
                seen.extend(event["seq"] for event in data.get("events", [data]) if "seq" in event)
    except (ConnectionClosed, OSError):
        return


def _kill_at_random(serve: Serve, store: Path, times: int, seed: int) -> None:
    moments = random.Random(seed)
    killed: list[tuple[str, list[int]]] = []
    for _ in range(2 * times + 1):
        served = serve("--no-warm", store=store, env=compiled_once(store.with_name("compiled")))
        for episode_id, seen in killed[-1:]:
            found: dict[str, Any] = served.get(f"/episodes/{episode_id}")
            stored = served.events(episode_id)
            assert [event["seq"] for event in stored] == list(range(len(stored)))
            assert set(seen) <= {event["seq"] for event in stored}
            if found["status"] == "ended":  # before the kill, on a busy machine
                killed.pop()
            else:
                assert (found["status"], stored[-1]["payload"]["kind"]) == ("interrupted", "interrupted")
        if len(killed) == times:
            break
        seen: list[int] = []
        watching = threading.Thread(target=_watch, args=(served, seen))
        watching.start()
        episode_id = served.start(**LONG)
        wait_until(lambda seen=seen: bool(seen), 60, "an event")  # type: ignore[misc]
        time.sleep(moments.uniform(0, 0.3))
        served.kill()
        watching.join(60)
        killed.append((episode_id, seen))
    assert len(killed) == times and any(seen for _, seen in killed)


def test_a_server_killed_at_a_random_moment_loses_nothing_that_was_seen(serve: Serve, tmp_path: Path) -> None:
    _kill_at_random(serve, tmp_path / "a.db", times=1, seed=1)


@pytest.mark.conformance
def test_a_server_killed_at_twelve_random_moments_loses_nothing_that_was_seen(serve: Serve, tmp_path: Path) -> None:
    """With SQLite; tests/live/test_servers.py kills servers on PostgreSQL fifty times."""
    _kill_at_random(serve, tmp_path / "a.db", times=12, seed=2)


def test_a_server_whose_store_was_deleted_is_alive_but_not_ready(serve: Serve, tmp_path: Path) -> None:
    served = serve("--no-warm", store=tmp_path / "a.db")
    lines = record.lines(record.events("ep-1"))
    with httpx.Client(base_url=served.url, timeout=30) as http:
        assert http.get("/ready").json() == {"status": "ready"}
        assert http.post("/custom/events", content=lines).status_code == 200
        (tmp_path / "a.db").unlink()
        wait_until(lambda: http.get("/ready").status_code == 503, 60, "an unready server")
        assert "deleted" in http.get("/ready").json()["error"]
        refused = [
            http.post("/custom/start_episode", json={"game": "deal_or_no_deal"}),
            http.post("/custom/events", content=lines),
            http.post("/episodes", content=record.lines(record.events("ep-2"))),
            http.get("/episodes"),
        ]
        assert {answer.status_code for answer in refused} == {503}
        assert all("deleted" in answer.json()["error"] for answer in refused)
        assert http.get("/health").status_code == 200
    assert served.stop() == 0
