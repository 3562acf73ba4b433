"""Episodes over HTTP: one at a time, one id, any player, and a last event that says how it ended."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from kibitz.live.episodes.runner import Pacer
from kibitz.live.http import routes_episodes
from tests.live import record
from tests.live.conftest import Serve, Served
from tests.live.machines import wait_until

BARGAIN = {"game": "deal_or_no_deal", "captain_preset": "heuristic", "opponent_choice": "heuristic", "pace": 0.0}


@pytest.fixture
def alone(serve: Serve) -> Served:
    """A server that plays one episode at a time."""
    return serve("--no-warm", "--human-seconds", "120", "--pace", "0.2")


@pytest.fixture
def other(serve: Serve) -> Iterator[httpx.Client]:
    """A client of a second server."""
    with httpx.Client(base_url=serve("--no-warm").url, timeout=60) as client:
        yield client


def start(served: Served, **asked: Any) -> httpx.Response:
    return httpx.post(f"{served.url}/custom/start_episode", json=BARGAIN | asked, timeout=60)


def test_exactly_one_of_several_simultaneous_starts_succeeds_and_the_others_name_it(alone: Served) -> None:
    gate = threading.Barrier(6)

    def press(_: int) -> httpx.Response:
        gate.wait()
        return start(alone, pace=30.0)

    with ThreadPoolExecutor(6) as many:
        answers = list(many.map(press, range(6)))
    assert sorted(answer.status_code for answer in answers) == [202] + [409] * 5
    won = next(answer.json() for answer in answers if answer.status_code == 202)
    for answer in answers:
        if answer.status_code == 409:
            assert answer.json()["current"]["episode_id"] == won["episode_id"]
            assert set(answer.json()["current"]) >= {"episode_id", "game", "players", "started_at"}
    assert [one["episode_id"] for one in alone.get("/custom/status")["running"]] == [won["episode_id"]]
    assert won["url"] == f"/e/{won['episode_id']}"
    # the same server for all of these: starting one takes long
    _stopping_ends_the_record(alone, won["episode_id"])
    _a_person_plays(alone)
    _shutting_down_ends_the_record_and_the_stream(alone)


def _stopping_ends_the_record(alone: Served, episode_id: str) -> None:
    stopped = httpx.post(f"{alone.url}/custom/stop_episode", json={})
    assert stopped.json() == {"stopped": episode_id}
    assert alone.wait_for_end(episode_id)["status"] == "failed"
    last = alone.events(episode_id)[-1]
    assert (last["type"], last["payload"]["kind"]) == ("episode.failed", "stopped")
    assert httpx.post(f"{alone.url}/custom/stop_episode", json={"episode_id": episode_id}).status_code == 404


def _a_person_plays(alone: Served) -> None:
    """A person acts by numbers, learns what is illegal, and does not delay a stop while thinking."""
    wait_until(lambda: not alone.get("/custom/status")["running"])
    answer = start(alone, human_seat=0, options={"agent_starts": True}).json()
    episode_id, token = answer["episode_id"], answer["seat_token"]
    act = f"{alone.url}/episodes/{episode_id}/act"
    assert httpx.post(act, json={"seat_token": "wrong", "text": "agree"}).status_code == 404

    def asked() -> dict[str, Any]:
        return dict(alone.get(f"/episodes/{episode_id}/turn", seat_token=token))

    wait_until(lambda: asked()["your_turn"] and alone.events(episode_id)[-1]["type"] == "turn.requested")
    seen = asked()
    assert seen["heads"] == ["act", "book", "hat", "ball"] or len(seen["heads"]) == 4
    assert seen["legal_text"] and len(seen["masks"]) == 4
    (public,) = [e["payload"] for e in alone.events(episode_id) if e["type"] == "turn.requested"]
    assert public == {"seat": 0, "turn": 0, "seconds": 120.0, "private": {}}
    mine = alone.events(episode_id, seat_token=token)
    assert 0 < seen.pop("seconds_left") <= 120
    assert mine[-1]["payload"]["private"] == {"0": seen}
    illegal = httpx.post(act, json={"seat_token": token, "act": [2, 0, 0, 0]})
    assert illegal.status_code == 422 and "legal" in illegal.json()["error"]
    beyond = [[5, 0, 0, 0], [-1, 0, 0, 0], [0, 99, 0, 0], [0, 0, 0, -1], [3, 99, 0, 0], [3, 2**31 - 1, 0, 0], [0, 0, 0]]
    beyond += [[2**31, 0, 0, 0], [0, -(2**31) - 1, 0, 0], [3, 0, 0, 2**63], [0, 0, 0, 10**40], [0] * 5, [0] * 33]
    for wrong in beyond:
        refused = httpx.post(act, json={"seat_token": token, "act": wrong})
        assert refused.status_code == 422, wrong
        assert list(refused.json()) == ["error"]
    assert seen.items() < asked().items(), "the turn is still open"
    late = httpx.post(act, json={"seat_token": token, "act": [0, 0, 0, 0], "turn": 2})
    assert late.status_code == 409 and "meant for another turn" in late.json()["error"]
    # an offer that no partner accepts: otherwise the episode would end before it is stopped
    greed = [0, *(len(mask) - 1 - mask[::-1].index(True) for mask in seen["masks"][1:])]
    accepted = httpx.post(act, json={"act": greed, "turn": 0}, headers={"authorization": f"Bearer {token}"})
    assert accepted.status_code == 200 and "PROPOSE" in accepted.json()["accepted"]
    httpx.post(f"{alone.url}/custom/stop_episode", json={})
    alone.wait_for_end(episode_id)
    mine = [e["payload"] for e in alone.events(episode_id) if e["type"] == "decision" and e["payload"]["seat"] == 0]
    assert [one["source"] for one in mine] == ["human"]
    assert alone.events(episode_id)[-1]["payload"]["kind"] == "stopped"


def _shutting_down_ends_the_record_and_the_stream(alone: Served) -> None:
    wait_until(lambda: not alone.get("/custom/status")["running"])
    start(alone, pace=30.0)
    with connect(alone.ws) as socket:
        kinds: list[str] = []
        socket.recv(60)
        threading.Timer(0.3, alone.process.terminate).start()
        for message in socket:
            said = json.loads(message)
            kinds += [f"{e['type']} {e['payload'].get('kind', '')}" for e in said.get("events", [said]) if "type" in e]
        assert kinds[-1] == "episode.failed shutdown"
        assert socket.protocol.close_rcvd is not None
        assert (socket.protocol.close_rcvd.code, socket.protocol.close_rcvd.reason) in (
            (1000, "ended"), (1001, "the server is shutting down"),
        )  # fmt: skip
    assert alone.process.wait(60) == 0


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"game": "chess"}, "no game"),
        ({"captain_preset": "nobody"}, "no player"),
        ({"captain_preset": "policy:../../etc"}, "not the name of a run"),
        ({"human_seat": 0, "captain_preset": "nobody"}, "no player"),
        ({"options": {"dataset_path": "/etc/passwd"}}, "operator"),
        ({"options": {"use_dataset": True}}, "operator"),
        ({"options": {"max_turns": 0}}, "max_turns"),
        ({"options": {"nonsense": 1}}, "nonsense"),
        ({"eval_pack_id": "none"}, "no pack"),
        ({"seed": -1}, "seed"),
        ({"max_overs": False}, "max_overs"),
        ({"unknown": 1}, "unknown"),
        ({"adviser": "human"}, "adviser"),
    ],
)
def test_an_invalid_start_gets_one_sentence_and_starts_nothing(
    served: Served, asked: dict[str, Any], word: str
) -> None:
    answer = start(served, **asked)
    assert answer.status_code == 422
    assert list(answer.json()) == ["error"]
    assert word in answer.json()["error"]
    assert served.get("/custom/status")["running"] == []


@pytest.mark.parametrize(("name", "word"), [("policy:nothing", "no run"), ("llm:nothing", "no preset")])
def test_an_unknown_run_or_preset_is_404(served: Served, name: str, word: str) -> None:
    answer = start(served, captain_preset=name)
    assert answer.status_code == 404 and word in answer.json()["error"]


def test_a_start_takes_a_key_of_the_opponent_presets_and_says_if_an_unknown_one_was_replaced(served: Served) -> None:
    preset = start(served, game="cricket", captain_preset="balanced", opponent_choice="groq")
    assert preset.status_code == 404 and "GROQ_API_KEY" in preset.json()["error"], "llm:groq, which has no key here"
    replaced = start(served, opponent_choice="nobody", pace=0.0)
    assert replaced.json()["players"][1] == "heuristic"
    assert replaced.json()["note"] == "There is no opponent 'nobody'; heuristic plays."
    served.wait_for_end(replaced.json()["episode_id"])


def test_an_export_can_be_imported_and_branched_on_another_server(served: Served, other: httpx.Client) -> None:
    first = served.start(**BARGAIN | {"captain_preset": "bayes"}, seed=11)
    served.wait_for_end(first)
    text = httpx.get(f"{served.url}/episodes/{first}/events").content
    loaded = other.post("/episodes", content=text)
    assert loaded.json() == {"episode_id": first, "events": len(text.splitlines()), "verified": True}
    assert other.post("/episodes", content=text).status_code == 409
    assert other.get(f"/episodes/{first}/events").content == text
    assert other.get("/leaderboard.json").json()["players"][0]["episodes"] == 1
    asked = {"turn": 1, "players": ["bayes", "heuristic"], "pace": 0.0}
    branch = other.post(f"/episodes/{first}/branch", json=asked).json()["episode_id"]
    wait_until(lambda: other.get(f"/episodes/{branch}").json()["status"] == "ended", 60, "the end of the branch")

    def steps(episode_id: str) -> list[Any]:
        events = [json.loads(line) for line in other.get(f"/episodes/{episode_id}/events").iter_lines()]
        return [event["payload"]["acts"] for event in events if event["type"] == "step"]

    assert steps(branch) == steps(first), "the same players continue as before"
    started = json.loads(next(other.get(f"/episodes/{branch}/events").iter_lines()))["payload"]["about"]
    assert started["branched_from"] == {"episode_id": first, "turn": 1}
    counted = other.get("/leaderboard.json").json()["players"]
    assert [one["episodes"] for one in counted] == [1, 1], "the luck of a branch is known, so it does not count"
    missing = other.post(f"/episodes/{first}/branch", json=asked | {"turn": 999})
    assert missing.status_code == 404 and "steps" in missing.json()["error"]


def test_a_replay_waits_between_events_as_long_as_the_record_did_divided_by_the_speed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed = record.events("ep-a", steps=2)
    for event, ts in zip(listed, (0.0, 1.0, 1.5, 60.0), strict=True):
        event["ts"] = ts
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def chunks() -> AsyncGenerator[bytes, None]:
        yield record.lines(listed)

    async def replay() -> list[bytes]:
        return [part async for part in routes_episodes._replayed(chunks(), 2.0)]

    monkeypatch.setattr(asyncio, "sleep", sleep)
    asyncio.run(replay())
    assert waits == [0.5, 0.25, routes_episodes.MAX_WAIT_SECONDS / 2]


def test_a_replay_streams_the_whole_record(served: Served) -> None:
    episode_id = served.start(**BARGAIN, seed=3)
    served.wait_for_end(episode_id)
    with httpx.stream("GET", f"{served.url}/episodes/{episode_id}/stream", params={"speed": 1000}) as answer:
        data = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith('data: {"v"')]
    assert data == served.events(episode_id)


def test_presets_list_what_can_be_played_and_why_some_cannot(served: Served) -> None:
    games = served.get("/custom/presets")["games"]
    assert set(games) == {"cricket", "deal_or_no_deal"}
    for game in games.values():
        names = {player["name"] for player in game["players"]}
        assert {"heuristic", "random", "human"} <= names
        assert all(player["usable"] == (not player["why"]) for player in game["players"])
        assert "default" in game["packs"]
    assert "dataset_path" not in games["deal_or_no_deal"]["options"]["properties"]
    assert "elevens" not in games["cricket"]["defaults"]


def test_the_openapi_document_lists_players_packs_and_options_of_every_game(served: Served) -> None:
    described = served.get("/openapi.json")["components"]["schemas"]
    starts = {one["properties"]["game"]["const"]: one for one in described["EpisodeRequest"]["oneOf"]}
    for name, game in served.get("/custom/presets")["games"].items():
        fields = starts[name]["properties"]
        named = [player["name"] for player in game["players"] if player["kind"] in ("bot", "human")]
        assert set(named) <= set(fields["captain_preset"]["anyOf"][0]["enum"])
        strange = re.compile(fields["opponent_choice"]["anyOf"][-1]["pattern"])
        assert strange.match("nobody") and not strange.match("llm:x") and not strange.match("policy")
        assert fields["eval_pack_id"]["anyOf"][0]["enum"] == game["packs"]
        assert set(game["options"]["properties"]) <= set(fields["options"]["properties"])
        assert fields["players"]["default"] == game["default_players"]
    assert starts["deal_or_no_deal"]["required"] == ["game"] and not starts["cricket"]["required"]
    opponent = described["ResetRequest_deal_or_no_deal"]["properties"]["opponent"]["anyOf"][0]
    assert "bayes" in opponent["anyOf"][0]["enum"] and "human" not in opponent["anyOf"][0]["enum"]


def test_a_branch_waits_for_none_of_the_steps_that_it_keeps() -> None:
    class Signal:
        def __init__(self) -> None:
            self.waits = [0.0][:0]

        def wait(self, seconds: float) -> None:
            self.waits.append(seconds)

        def is_set(self) -> bool:
            return False

    signal = Signal()
    pacer = Pacer(signal, 60.0, known=30)  # type: ignore[arg-type]
    for _ in range(30):
        pacer()
    assert not signal.waits
    pacer()
    assert len(signal.waits) == 1 and 59 < signal.waits[0] <= 60, "the first new step keeps the pace"
