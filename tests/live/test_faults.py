"""kill -9 at any moment: what was seen is stored, there are no holes, and the interrupted episode says so."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.live.conftest import Serve, Served
from tests.live.machines import wait_until

LONG = {
    "game": "deal_or_no_deal", "captain_preset": "partner:stubborn", "opponent_choice": "partner:stubborn",
    "options": {"max_turns": 250, "disagree_ends": False}, "pace": 0.005,
}  # fmt: skip


def _look(served: Served, seen: list[int]) -> None:
    try:
        with connect(served.ws) as socket:
            for message in socket:
                said = json.loads(message)
                seen.extend(event["seq"] for event in said.get("events", [said]) if "seq" in event)
    except (ConnectionClosed, OSError):
        return


def _kill_at_random(serve: Serve, store: Path, times: int, seed: int) -> None:
    moments = random.Random(seed)
    killed: list[tuple[str, list[int]]] = []
    for _ in range(times + 1):
        served = serve("--no-warm", store=store)
        for episode_id, seen in killed[-1:]:
            found: dict[str, Any] = served.get(f"/episodes/{episode_id}")
            stored = served.events(episode_id)
            assert [event["seq"] for event in stored] == list(range(len(stored)))
            assert set(seen) <= {event["seq"] for event in stored}
            assert (found["status"], stored[-1]["payload"]["kind"]) == ("interrupted", "interrupted")
        if len(killed) == times:
            break
        seen: list[int] = []
        looking = threading.Thread(target=_look, args=(served, seen))
        looking.start()
        episode_id = served.start(**LONG, seed=moments.randrange(10**6))
        wait_until(lambda seen=seen: bool(seen), 60, "an event")  # type: ignore[misc]
        time.sleep(moments.uniform(0, 0.3))
        served.kill()
        looking.join(10)
        killed.append((episode_id, seen))
    assert any(seen for _, seen in killed)


def test_a_server_killed_at_a_random_moment_loses_nothing_that_was_seen(serve: Serve, tmp_path: Path) -> None:
    _kill_at_random(serve, tmp_path / "a.db", times=1, seed=1)


@pytest.mark.conformance
def test_a_server_killed_at_fifty_random_moments_loses_nothing_that_was_seen(serve: Serve, tmp_path: Path) -> None:
    _kill_at_random(serve, tmp_path / "a.db", times=50, seed=2)
