"""Watching: what arrives, in which order, from where on, and who sees what."""

from __future__ import annotations

import json
import threading
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.live.conftest import Serve, Served
from tests.live.machines import wait_until

NEGOTIATION = {"game": "deal_or_no_deal", "captain_preset": "heuristic", "opponent_choice": "heuristic"}


def watch(served: Served, query: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The hello and all events until the server closes."""
    hello, events = {}, []
    with connect(f"{served.ws}?{query}") as socket:
        for message in socket:
            said = json.loads(message)
            if "hello" in said:
                hello = said["hello"]
            else:
                events += said.get("events", [said])
    return hello, events


def test_a_watcher_gets_every_event_of_a_match_and_the_store_has_the_same(served: Served) -> None:
    episode_id = served.start(max_overs=1)
    hello, seen = watch(served, f"episode_id={episode_id}&since=-1")
    assert hello["episode_id"] == episode_id
    assert [event["seq"] for event in seen] == list(range(len(seen)))
    assert (seen[0]["type"], seen[-1]["type"]) == ("episode.started", "episode.ended")
    assert {event["episode_id"] for event in seen} == {episode_id}
    stored = served.events(episode_id)
    assert [event["seq"] for event in stored] == [event["seq"] for event in seen]
    assert stored[-1] == seen[-1]


def test_a_watcher_resumes_behind_the_event_it_has(served: Served) -> None:
    episode_id = served.start(**NEGOTIATION)
    served.wait_for_end(episode_id)
    _, seen = watch(served, f"episode_id={episode_id}&since=2")
    assert [event["seq"] for event in seen] == list(range(3, 3 + len(seen)))
    assert seen == served.events(episode_id, since=2)


def test_a_watcher_without_a_wish_is_idle_and_then_sees_the_next_episode(served: Served) -> None:
    with connect(served.ws) as socket:
        assert json.loads(socket.recv(10)) == {"idle": True}
        episode_id = served.start(**NEGOTIATION, pace=0.05)
        assert json.loads(socket.recv(60))["hello"]["episode_id"] == episode_id
        said = json.loads(socket.recv(10))
        assert (said.get("events") or [said])[0]["type"] == "episode.started"


def test_an_episode_whose_players_are_being_made_ready_is_waited_for(serve: Serve) -> None:
    served = serve("--no-warm")  # so that making them ready takes a moment
    starting = threading.Thread(target=lambda: served.start(**NEGOTIATION))
    starting.start()
    claimed: list[dict[str, Any]] = []
    wait_until(lambda: claimed.extend(served.get("/custom/status")["running"]) or bool(claimed), what="a claim")
    _, seen = watch(served, f"episode_id={claimed[0]['episode_id']}")
    starting.join()
    assert seen[-1]["type"] == "episode.ended"


def test_batched_frames_hold_the_same_events(served: Served) -> None:
    episode_id = served.start(max_overs=1, pace=0.02)
    hello, seen = watch(served, f"episode_id={episode_id}&batch=200")
    assert hello["batch_ms"] == 200
    assert [event["seq"] for event in seen] == list(range(len(seen)))


def test_an_episode_that_is_not_there_closes_with_a_reason(served: Served) -> None:
    for query, reason in (
        ("episode_id=ep-none", "no episode"),
        ("episode_id=..%2F..", "letters"),
        ("since=x", "number"),
    ):
        with connect(f"{served.ws}?{query}") as socket, pytest.raises(ConnectionClosed) as closed:
            socket.recv(5)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
        assert reason in closed.value.rcvd.reason


def test_server_sent_events_carry_the_same_and_resume_by_last_event_id(served: Served) -> None:
    episode_id = served.start(**NEGOTIATION)
    served.wait_for_end(episode_id)
    stored = served.events(episode_id)
    headers = {"accept": "text/event-stream", "last-event-id": "1"}
    answer = httpx.get(f"{served.url}/custom/ws", params={"episode_id": episode_id}, headers=headers, timeout=20)
    assert answer.headers["content-type"].startswith("text/event-stream")
    said = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    seen = [event for message in said for event in message.get("events", [])]
    assert seen == stored[2:]
    assert f"id: {stored[-1]['seq']}" in answer.text
    assert httpx.get(f"{served.url}/custom/ws").status_code == 426


def test_secrets_are_shown_to_nobody_before_the_end_and_to_everybody_after_it(served: Served) -> None:
    asked = NEGOTIATION | {"opponent_choice": "human", "options": {"agent_starts": False}}
    answer = httpx.post(f"{served.url}/custom/start_episode", json=asked, timeout=60).json()
    episode_id, token = answer["episode_id"], answer["seat_token"]
    with connect(f"{served.ws}?episode_id={episode_id}") as socket:
        socket.recv(10), socket.recv(30)
    public = served.events(episode_id)
    mine = served.events(episode_id, seat_token=token)
    assert public[0]["payload"]["private"] == {}
    assert set(mine[0]["payload"]["private"]) == {"1"}
    assert "seed" not in json.dumps(public)
    httpx.post(f"{served.url}/custom/stop_episode", json={"episode_id": episode_id})
    served.wait_for_end(episode_id)
    assert set(served.events(episode_id)[0]["payload"]["private"]) == {"0", "1"}


def test_an_open_episode_shows_both_sides_secrets_at_once(served: Served) -> None:
    episode_id = served.start(**NEGOTIATION, open=True, pace=0.3)
    with connect(f"{served.ws}?episode_id={episode_id}") as socket:
        socket.recv(10)
        said = json.loads(socket.recv(10))
    first = (said.get("events") or [said])[0]
    assert set(first["payload"]["private"]) == {"0", "1"}
