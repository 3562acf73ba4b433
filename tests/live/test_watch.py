"""Watching over the network: order, resuming, batches, and who sees private values."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from kibitz.core.chance import episode_luck, seat_luck, seed_key
from kibitz.live.app import create_app
from kibitz.live.config import LiveConfig
from kibitz.live.store.base import StoreUnavailable
from tests.live.conftest import Served
from tests.live.machines import wait_until
from tests.live.openenv_server import serving

NEGOTIATION = {"game": "deal_or_no_deal", "captain_preset": "heuristic", "opponent_choice": "heuristic"}
LONG = {  # these players do not agree in this game
    "game": "deal_or_no_deal", "seed": 0, "captain_preset": "partner:stubborn", "opponent_choice": "partner:stubborn",
    "options": {"max_turns": 40, "disagree_ends": False}, "pace": 0.02,
}  # fmt: skip


def watch(served: Served, query: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The hello and every event until the server closes."""
    hello, events = {}, []
    with connect(f"{served.ws}?{query}") as socket:
        for message in socket:
            data = json.loads(message)
            if "hello" in data:
                hello = data["hello"]
            else:
                events += data.get("events", [data])
    return hello, events


def test_a_watcher_gets_every_event_and_the_store_has_the_same(served: Served) -> None:
    episode_id = served.start(**NEGOTIATION)
    hello, seen = watch(served, f"episode_id={episode_id}&since=-1")
    assert hello["episode_id"] == episode_id
    assert [event["seq"] for event in seen] == list(range(len(seen)))
    assert (seen[0]["type"], seen[-1]["type"]) == ("episode.started", "episode.ended")
    assert {event["episode_id"] for event in seen} == {episode_id}
    stored = served.events(episode_id)
    assert [event["seq"] for event in stored] == [event["seq"] for event in seen]
    assert stored[-1] == seen[-1]


def test_a_watcher_resumes_after_a_given_event(served: Served) -> None:
    episode_id = served.start(**NEGOTIATION)
    served.wait_for_end(episode_id)
    _, seen = watch(served, f"episode_id={episode_id}&since=2")
    assert [event["seq"] for event in seen] == list(range(3, 3 + len(seen)))
    assert seen == served.events(episode_id, since=2)


def test_a_watcher_without_an_episode_waits_for_the_next_one(served: Served) -> None:
    with connect(served.ws) as socket:
        assert json.loads(socket.recv(60)) == {"idle": True}
        episode_id = served.start(**NEGOTIATION, pace=0.05)
        assert json.loads(socket.recv(60))["hello"]["episode_id"] == episode_id
        data = json.loads(socket.recv(60))
        assert (data.get("events") or [data])[0]["type"] == "episode.started"


def test_a_batched_watcher_gets_every_event(served: Served) -> None:
    episode_id = served.start(**LONG)
    hello, seen = watch(served, f"episode_id={episode_id}&batch=200")
    assert hello["batch_ms"] == 200
    assert [event["seq"] for event in seen] == list(range(len(seen)))


def test_an_invalid_query_closes_the_socket_with_a_reason(served: Served) -> None:
    for query, reason in (
        ("episode_id=ep-none", "no episode"),
        ("episode_id=..%2F..", "letters"),
        ("since=x", "number"),
        ("since=" + 30 * "%F0%9F%8F%8F", "number"),  # a close frame has room for 123 bytes
    ):
        with connect(f"{served.ws}?{query}") as socket, pytest.raises(ConnectionClosed) as closed:
            socket.recv(60)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
        assert reason in closed.value.rcvd.reason


def test_server_sent_events_resume_by_last_event_id(served: Served) -> None:
    episode_id = served.start(**NEGOTIATION)
    served.wait_for_end(episode_id)
    stored = served.events(episode_id)
    headers = {"accept": "text/event-stream", "last-event-id": "1"}
    answer = httpx.get(f"{served.url}/custom/ws", params={"episode_id": episode_id}, headers=headers, timeout=20)
    assert answer.headers["content-type"].startswith("text/event-stream")
    messages = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    seen = [event for message in messages for event in message.get("events", [])]
    assert seen == stored[2:]
    assert f"id: {stored[-1]['seq']}" in answer.text
    assert httpx.get(f"{served.url}/custom/ws").status_code == 426


def test_private_values_are_public_only_after_the_end(served: Served) -> None:
    request = NEGOTIATION | {"opponent_choice": "human", "options": {"agent_starts": False}}
    answer = httpx.post(f"{served.url}/custom/start_episode", json=request, timeout=60).json()
    episode_id, token = answer["episode_id"], answer["seat_token"]
    with connect(f"{served.ws}?episode_id={episode_id}") as socket:
        socket.recv(60), socket.recv(60)
    public = served.events(episode_id)
    mine = served.events(episode_id, seat_token=token)
    assert public[0]["payload"]["private"] == {}
    assert set(mine[0]["payload"]["private"]) == {"1"}
    assert "seed" not in json.dumps(public)
    httpx.post(f"{served.url}/custom/stop_episode", json={"episode_id": episode_id})
    served.wait_for_end(episode_id)
    assert set(served.events(episode_id)[0]["payload"]["private"]) == {"0", "1"}


def test_nothing_public_reveals_the_luck_of_a_running_episode(served: Served) -> None:
    request = NEGOTIATION | {"opponent_choice": "human", "options": {"agent_starts": False}}
    with httpx.Client(base_url=served.url, timeout=60) as http:
        answer = http.post("/custom/start_episode", json=request)
        episode_id, token = answer.json()["episode_id"], answer.json()["seat_token"]
        shown = answer.text
        with connect(f"{served.ws}?episode_id={episode_id}&seat_token={token}") as socket:
            shown += str(socket.recv(60)) + str(socket.recv(60))
        paths = ["/episodes", "/custom/status", "/health", "/metrics", "/leaderboard.json", f"/e/{episode_id}"]
        paths += [f"/episodes/{episode_id}{part}" for part in ("", "/events", "/stream?speed=1000000", "/turn")]
        for path in paths:
            for query in ({}, {"seat_token": token}):
                shown += http.get(path, params=query).text
        shown += http.post(f"/episodes/{episode_id}/branch", json={"turn": 0, "players": ["heuristic"] * 2}).text
        http.post("/custom/stop_episode", json={"episode_id": episode_id})
    served.wait_for_end(episode_id)
    seed = served.events(episode_id)[-1]["payload"]["seed"]
    luck = episode_luck(seed_key(seed), 0)
    words = [number for key in (seed_key(seed), luck, *(seat_luck(luck, seat) for seat in (0, 1))) for number in key]
    for secret in {seed, *map(int, words)} - set(range(10**6)):  # a short number could occur by chance
        assert str(secret) not in shown and f"{secret:x}" not in shown


def test_a_drawn_seed_plays_the_same_episode_again(served: Served) -> None:
    first = served.start(**NEGOTIATION)
    served.wait_for_end(first)
    seed = served.events(first)[-1]["payload"]["seed"]
    assert 0 <= seed < 2**63
    again = served.start(**NEGOTIATION, seed=seed)
    served.wait_for_end(again)
    steps = [[e["payload"] for e in served.events(one) if e["type"] == "step"] for one in (first, again)]
    assert steps[0] == steps[1]


def test_an_open_episode_shows_private_values_at_once(served: Served) -> None:
    episode_id = served.start(**NEGOTIATION, open=True, pace=0.3)
    with connect(f"{served.ws}?episode_id={episode_id}") as socket:
        socket.recv(60)
        data = json.loads(socket.recv(60))
    first = (data.get("events") or [data])[0]
    assert set(first["payload"]["private"]) == {"0", "1"}


def test_two_people_play_each_by_their_own_link_and_see_only_their_own_values(served: Served) -> None:
    request = NEGOTIATION | {"opponent_choice": "human", "captain_preset": "human", "options": {"agent_starts": True}}
    answer = httpx.post(f"{served.url}/custom/start_episode", json=request, timeout=60).json()
    episode_id, seats = answer["episode_id"], answer["seats"]
    assert [one["seat"] for one in seats] == [0, 1] and answer["seat_token"] == seats[0]["token"]
    assert [one["url"] for one in seats] == [f"/e/{episode_id}#seat={one['token']}" for one in seats]
    tokens = [one["token"] for one in seats]

    def turn(seat: int) -> Any:
        return served.get(f"/episodes/{episode_id}/turn", seat_token=tokens[seat])

    def act(seat: int, text: str) -> httpx.Response:
        return httpx.post(f"{served.url}/episodes/{episode_id}/act", json={"seat_token": tokens[seat], "text": text})

    wait_until(lambda: turn(0)["your_turn"])
    assert not turn(1)["your_turn"] and act(1, "disagree").status_code == 409
    assert act(0, "propose 0 0 0").status_code == 200
    wait_until(lambda: turn(1)["your_turn"] and served.events(episode_id)[-1]["type"] == "turn.requested")
    for seat, token in enumerate(tokens):
        seen = served.events(episode_id, seat_token=token)
        shown = {key for event in seen for key in event["payload"].get("private", {})}
        assert shown == {str(seat)}
        with connect(f"{served.ws}?episode_id={episode_id}&seat_token={token}") as socket:
            socket.recv(60)
            watched = json.loads(socket.recv(60))
        assert watched["events"] == seen
    assert act(1, "agree").status_code == 200
    assert served.wait_for_end(episode_id)["status"] == "ended"
    made = [event["payload"] for event in served.events(episode_id) if event["type"] == "decision"]
    assert [(one["seat"], one["source"], one["fallback"]) for one in made] == [(0, "human", ""), (1, "human", "")]


def test_watchers_who_arrive_while_the_store_is_away_get_a_reason_and_the_log_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = create_app(LiveConfig(store=str(tmp_path / "a.db"), warm=False))

    def away(*values: Any) -> Any:
        raise StoreUnavailable("connection to server at 10.1.2.3 failed; see /srv/secret")

    try:
        with serving(app) as base, caplog.at_level(logging.INFO):
            monkeypatch.setattr(app.state.bus.store, "_read", away)
            for _ in range(3):
                address = base.replace("http", "ws") + "/custom/ws?episode_id=ep-1"
                with connect(address) as socket, pytest.raises(ConnectionClosed) as closed:
                    socket.recv(60)
                assert closed.value.rcvd is not None and closed.value.rcvd.code == 1013
                assert "store is unavailable" in closed.value.rcvd.reason and "10.1" not in closed.value.rcvd.reason
            headers = {"accept": "text/event-stream"}
            for path in ("/custom/ws?episode_id=ep-1", "/episodes", "/episodes/ep-1", "/leaderboard.json"):
                answer = httpx.get(base + path, headers=headers)
                assert (answer.status_code, answer.json()) == (503, {"error": StoreUnavailable.public}), path
    finally:
        app.state.bus.store.close()
    assert [line.getMessage() for line in caplog.records if "10.1.2.3" in line.getMessage()] == [
        "requests fail because the store is unavailable: connection to server at 10.1.2.3 failed; see /srv/secret"
    ]
    assert not [line for line in caplog.records if line.exc_info]
