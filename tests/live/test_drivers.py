"""Two drivers, one stream: in the server's process, and remote over HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from kibitz.cli.output import facts
from kibitz.core.errors import BadInput
from kibitz.live.episodes.remote_driver import drive
from kibitz.live.episodes.request import EpisodeRequest
from kibitz.live.http.driver_events import EventLines
from kibitz.live.store.stored_event import PackedEvent, StoredEvent
from kibitz.live.stream.bus_observer import BusObserver, episode_log
from kibitz.live.stream.outlets import DeliveryRefused, HttpOutlet
from kibitz.live.stream.schema import PAYLOADS
from tests.conftest import Finished
from tests.live import record
from tests.live.conftest import Serve, Served
from tests.live.machines import free_port, wait_until
from tests.live.record import stored_events


def bargain(*players: str, **more: Any) -> EpisodeRequest:
    return EpisodeRequest(game="deal_or_no_deal", players=list(players), **more)


LONG = {"max_turns": 60, "disagree_ends": False}


def plain(text: bytes) -> bytes:
    """The same without times and ids."""
    text = re.sub(rb'"ts":[0-9.e+-]+', b'"ts":0', text)
    text = re.sub(rb'"latency":[0-9.e+-]+', b'"latency":0', text)
    return re.sub(rb"ep-[0-9a-f]{12}", b"ep", text)


def test_both_drivers_produce_identical_events_except_for_times_and_ids(served: Served) -> None:
    mine = served.start(captain_preset="balanced", opponent_choice="aggressive", max_overs=1, seed=21)
    request = EpisodeRequest(players=["balanced", "aggressive"], max_overs=1, seed=21)
    driven = drive(request, served.url)  # plays in this process and publishes over HTTP
    served.wait_for_end(mine)
    one, other = (httpx.get(f"{served.url}/episodes/{x}/events").content for x in (mine, driven["episode_id"]))
    assert len(one.splitlines()) == driven["events"]
    assert plain(one) == plain(other)
    assert one != other


def test_a_driver_survives_a_server_restart_without_gaps_or_duplicates(serve: Serve, tmp_path: Path) -> None:
    port = str(free_port())
    store = tmp_path / "a.db"
    first = serve("--no-warm", "--port", port, store=store)
    request = bargain("partner:stubborn", "partner:stubborn", options=LONG, seed=2, pace=0.05)
    driven: dict[str, Any] = {}
    driver = threading.Thread(target=lambda: driven.update(drive(request, first.url, give_up=120)))
    driver.start()

    def begun() -> int:
        listed = first.get("/episodes")["episodes"]
        return int(listed[0]["last_seq"]) if listed else -1

    wait_until(lambda: begun() >= 20, 60, "the middle of a match")
    first.kill()
    time.sleep(0.5)  # long enough for the driver to notice
    restarted = serve("--no-warm", "--port", port, store=store)
    driver.join(120)
    stored = restarted.events(driven["episode_id"])
    assert [event["seq"] for event in stored] == list(range(driven["events"]))
    assert stored[-1]["type"] == "episode.ended"
    assert driven["retries"] > 0, "the server was down meanwhile"
    assert restarted.get(f"/episodes/{driven['episode_id']}")["status"] == "ended"


def test_a_silent_driver_times_out_by_the_servers_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers' clocks are wrong: one counts milliseconds, one sent nothing yet, one sends events of long ago."""
    from kibitz.live.episodes.janitor import DriverTimeouts
    from kibitz.live.store.base import open_store
    from kibitz.live.stream.bus import Bus
    from tests.live.record import row

    store = open_store(str(tmp_path / "a.db"))
    for name in ("ep-gone", "ep-empty", "ep-on"):
        store.begin(row(name, origin="driver"))
    for one in stored_events("ep-gone", end=False):
        store.append(StoredEvent(replace(one.event, ts=1000 * one.event.ts)))
    going_on = iter(stored_events("ep-on"))
    timeouts, passed = DriverTimeouts(Bus(store), 60.0), 0.0
    monkeypatch.setattr(time, "monotonic", lambda known=time.monotonic: known() + passed)

    def sweep() -> dict[str, str]:
        one = next(going_on)
        store.append(StoredEvent(replace(one.event, ts=1.0)))
        timeouts.sweep()
        found = {name: store.episode(name) for name in ("ep-gone", "ep-empty", "ep-on")}
        return {name: one.status for name, one in found.items() if one is not None}

    assert set(sweep().values()) == {"running"}, "no timeout yet"
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600)  # the machine's clock is set
    assert set(sweep().values()) == {"running"}
    passed = 61.0  # seconds on the fake clock; the rest of the test has a minute
    assert sweep() == {"ep-gone": "interrupted", "ep-empty": "interrupted", "ep-on": "running"}
    store.close()


def nested(levels: int) -> Any:
    return [nested(levels - 1)] if levels else []


@pytest.mark.parametrize(
    ("kind", "payload", "wrong"),
    [
        ("episode.ended", {}, "needs returns"),
        ("episode.ended", {"returns": ["x", 1]}, "needs returns"),
        ("episode.ended", {"returns": [1e308, 1]}, "needs returns"),
        ("step", {"frame": 5}, "frame should be an object"),
        ("step", {"private": {"0": 7}}, "private should be an object"),
        ("step", {"private": None}, "private should be an object"),
        ("commentary", {"text": {"a": 1}}, "text should be a string"),
        ("commentary", {"text": "a", "audio": 5}, "audio should be a string"),
        ("episode.failed", {"reason": ["a"]}, "reason should be a string"),
        ("decision", {"seat": "0 sr"}, "seat should be 0 or 1"),
        ("step", {"frame": {"a": nested(300)}}, "nested too deeply"),
        ("step", {"frame": {"a": "\ud800"}}, "not a JSON object"),
    ],
)
def test_event_fields_that_the_server_reads_are_validated_on_arrival(
    kind: str, payload: dict[str, Any], wrong: str
) -> None:
    event = {"v": 1, "episode_id": "ep-1", "seq": 3, "ts": 1.0, "type": kind, "payload": payload}
    with pytest.raises(BadInput, match=f"Line 1:? .*{wrong}"):
        EventLines().finish(json.dumps(event).encode())


@pytest.mark.parametrize("size", [1, 7, 1000, 10**6])
def test_a_body_gives_the_same_events_in_whatever_pieces_it_arrives(size: int) -> None:
    sent = record.events("ep-1", steps=3)
    body, lines = record.lines(sent).replace(b"\n", b"\r\n\n"), EventLines()
    for start in range(0, len(body), size):
        lines.feed(body[start : start + size])
    assert [json.loads(one.body) for one in lines.finish(b"")] == sent


@pytest.mark.parametrize("size", [10**4, 10**7])
def test_a_line_of_more_than_a_megabyte_is_refused_before_it_is_complete(size: int) -> None:
    lines, body = EventLines(), record.lines(record.events("ep-1", steps=1)) + b'\n{"pad": "' + b"x" * (2 << 20)
    pieces = (body[start : start + size] for start in range(0, len(body), size))
    with pytest.raises(BadInput, match="Line 4 exceeds 1 MiB"):
        list(map(lines.feed, pieces))


def growing(episode_id: str, steps: int) -> list[dict[str, Any]]:
    """An episode whose every step adds 300 kB to the frame."""
    sent = record.events(episode_id, steps)
    for event in sent[1:-1]:
        event["payload"]["frame"] = {f"key {event['seq']}": "x" * 300_000}
    return sent


def test_a_frame_that_grows_beyond_a_megabyte_is_refused(tmp_path: Path) -> None:
    """In one request, over several, and at a server that has to read the earlier events from the store."""
    from kibitz.live.app import create_app
    from kibitz.live.config import LiveConfig
    from tests.live.openenv_server import serving

    def post(base: str, sent: list[dict[str, Any]], path: str = "/custom/events") -> httpx.Response:
        return httpx.post(base + path, content=record.lines(sent), headers=record.KEY, timeout=60)

    sent, large = growing("ep-1", 5), growing("ep-2", 5)
    for first in (True, False):
        app = create_app(LiveConfig(store=str(tmp_path / "a.db"), warm=False))
        try:
            with serving(app) as base:
                if first:
                    for refused in (post(base, large), post(base, large, "/episodes")):
                        assert refused.status_code == 422 and "After event 4 the frame exceeds" in refused.text
                    assert httpx.get(f"{base}/episodes/ep-2").status_code == 404, "nothing was stored"
                    assert [post(base, [event]).status_code for event in sent[:4]] == [200] * 4
                refused = post(base, sent[4:])
                assert refused.status_code == 422 and "After event 4 the frame exceeds 1 MiB" in refused.json()["error"]
                shown = httpx.get(f"{base}/episodes/ep-1").json()
                assert (shown["last_seq"], set(shown["frame"])) == (3, {"n", "key 1", "key 2", "key 3"})
                if not first:
                    same = [event | {"payload": sent[3]["payload"]} for event in sent[4:6]]
                    assert post(base, sent[2:4] + same).json()["added"] == 2, "the same keys again"
                    assert post(base, sent[6:]).status_code == 200
        finally:
            app.state.bus.store.close()


def test_requests_at_the_same_time_share_the_limit_of_the_frame(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from kibitz.live.http.driver_events import DriverEvents
    from kibitz.live.store.base import open_store
    from kibitz.live.store.stored_event import MAX_FRAME_BYTES, decode_event, fold
    from kibitz.live.stream.bus import Bus

    bus, key = Bus(open_store(str(tmp_path / "a.db"))), "the-key-of-the-driver"
    drivers = DriverEvents(bus)
    drivers.commit(record.stored_events()[:1], key)

    def steps(thread: int) -> None:
        listed = record.stored_events(steps=8, end=False)[1:]
        changes = [{f"{thread} {one.seq}": "x" * 100_000} for one in listed]
        parts = zip(listed, changes, strict=True)
        given = [replace(one.event, payload={**one.event.payload, "frame": frame}) for one, frame in parts]
        drivers.commit([PackedEvent.pack(event) for event in given], key)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(steps, range(8)))
    frame: dict[str, Any] = {}
    for body in bus.store.events("ep-1", -1):
        frame = fold(frame, decode_event(body))
    assert len(json.dumps(frame)) < MAX_FRAME_BYTES
    bus.store.close()


def test_open_episodes_of_drivers_are_limited_until_one_ends(tmp_path: Path) -> None:
    from kibitz.live.app import create_app
    from kibitz.live.config import LiveConfig
    from tests.live import record
    from tests.live.openenv_server import serving

    app = create_app(LiveConfig(store=str(tmp_path / "a.db"), warm=False, max_drivers=2))
    try:
        with serving(app) as base:
            key = {"episode-key": "a-key-for-all-of-them"}

            def post(name: str, part: slice) -> httpx.Response:
                events = record.events(name)[part]
                return httpx.post(f"{base}/custom/events", content=record.lines(events), headers=key)

            assert [post(f"ep-{i}", slice(2)).status_code for i in range(4)] == [200, 200, 429, 429]
            refused = post("ep-3", slice(2))
            assert "2 open episodes" in refused.json()["error"] and refused.headers["retry-after"]
            assert post("ep-0", slice(2, None)).status_code == 200, "open ones go on"
            assert post("ep-3", slice(2)).status_code == 200, "one has ended"
    finally:
        app.state.bus.store.close()


def test_a_foreign_answer_ends_the_delivery_with_an_error() -> None:
    """For example a proxy's page."""
    page = httpx.MockTransport(lambda request: httpx.Response(200, text="<html>"))
    outlet = HttpOutlet("http://x", client=httpx.Client(transport=page))
    outlet.send(stored_events("ep-1")[0])
    with pytest.raises(DeliveryRefused, match="JSON"):
        outlet.close()


def test_the_seeds_observer_methods_publish_an_environment(served: Served) -> None:
    """The seed's driver: reset, before_step, step, after_step, end."""

    async def drive() -> str:
        async with httpx.AsyncClient() as client:
            observer = BusObserver(
                http_client=client, base_url=served.url, episode_id="custom-ep-1", mode="balanced",
                task="custom_episode", opponent_mode="heuristic", eval_pack_id="default", tts=None, game="cricket",
            )  # fmt: skip
            obs: dict[str, Any] = {"frame": {"score": 0, "over": False}, "turn": 0, "message": "Play."}
            await observer.start(obs)
            for turn, tool in enumerate(["analyze_situation", "play_delivery", "play_delivery"]):
                pre = await observer.before_step({"tool": tool, "arguments": {}}, obs, turn=turn)
                ball = tool == "play_delivery"
                after = {
                    "frame": {"score": 4 * turn, "over": turn == 2},
                    "turn": obs["turn"] + ball,
                    "message": "Four.",
                }
                after = after if ball else obs
                await observer.after_step({"tool": tool}, pre, after, None, turn=turn)
                obs = after
            await observer.end({"match_over": True, "seed": 9})
            return observer.episode_id

    episode_id = asyncio.run(drive())
    events = served.events(episode_id)
    kinds = [event["type"] for event in events if event["type"] != "commentary"]
    assert kinds == ["episode.started", "decision", "decision", "step", "decision", "step", "episode.ended"]
    assert events[0]["payload"]["about"]["task"] == "custom_episode"
    assert events[-1]["payload"]["frame"] == {"score": 8, "over": True}
    refused = branch(served, episode_id, 1)
    assert (refused.status_code, refused.json()["current"]) == (409, None)
    assert "does not contain the acts of every step" in refused.json()["error"]
    for event in events:
        PAYLOADS[event["type"]].model_validate(event["payload"])


def branch(served: Served, episode_id: str, turn: int) -> httpx.Response:
    asked = {"turn": turn, "players": ["heuristic", "heuristic"], "pace": 0.0}
    return httpx.post(f"{served.url}/episodes/{episode_id}/branch", json=asked, timeout=60)


def test_a_published_negotiation_environment_can_be_branched(served: Served) -> None:
    from kibitz.games.deal_or_no_deal.envs.tool_env import NegotiationAction, NegotiationEnvironment

    async def drive() -> list[list[Any]]:
        observer = BusObserver(
            base_url=served.url, episode_id="custom-ep-3", mode="by hand", opponent_mode="heuristic",
        )  # fmt: skip
        env = NegotiationEnvironment()
        obs = env.reset({"seed": 5, "max_turns": 6, "agent_starts": False, "disagree_ends": False})
        await observer.start(obs)
        turn, acts = 0, list(obs.metadata["acts"])
        while not obs.done:
            action = NegotiationAction(act_type=1, oA=obs.counts)
            pre = await observer.before_step(action, obs, turn=turn)
            obs, turn = env.step(action), turn + 1
            acts += obs.metadata["acts"]
            await observer.after_step(action, pre, obs, None, turn=turn)
        await observer.end(env.state)
        return acts

    acts = asyncio.run(drive())
    assert [e["payload"]["acts"] for e in served.events("custom-ep-3") if e["type"] == "step"] == acts
    branched = branch(served, "custom-ep-3", 3)
    assert branched.status_code == 202, branched.text
    served.wait_for_end(branched.json()["episode_id"])
    again = [e["payload"]["acts"] for e in served.events(branched.json()["episode_id"]) if e["type"] == "step"]
    assert again[:3] == acts[:3]


def test_the_seeds_driver_publishes_a_match_ball_by_ball(served: Served) -> None:
    from kibitz.games.cricket.envs.tool_env import CricketAction, CricketEnvironment

    async def drive() -> tuple[str, Any]:
        async with httpx.AsyncClient() as client:
            observer = BusObserver(
                http_client=client, base_url=served.url, episode_id="custom-ep-2", mode="by hand",
                task="custom_episode", opponent_mode="heuristic", eval_pack_id="default", tts=None,
            )  # fmt: skip
            env = CricketEnvironment(pool=2)
            obs = env.reset(options={"opponent_mode": "heuristic", "max_overs": 1, "seed": 3})
            await observer.start(obs)
            turn = 0
            while not obs.done:
                action = CricketAction(tool=obs.tools[-1]["name"])
                pre = await observer.before_step(action, obs, turn=turn)
                after = await asyncio.to_thread(env.step, action)
                await observer.after_step(action, pre, after, None, turn=turn)
                obs, turn = after, turn + 1
            await observer.end(env.state)
            return observer.episode_id, env.state

    episode_id, state = asyncio.run(drive())
    events = served.events(episode_id)
    branched = branch(served, episode_id, state.deliveries)
    assert branched.status_code == 202, branched.text
    served.wait_for_end(branched.json()["episode_id"])
    again = served.events(branched.json()["episode_id"])
    frame = [event["payload"]["frame"] for event in (events[-1], again[-1])]
    assert frame[0]["innings"] == frame[1]["innings"], "the recorded acts replay the same match"
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert sum(event["type"] == "step" for event in events) == state.deliveries
    assert events[-1]["payload"]["frame"]["over"] is True
    assert events[-1]["payload"]["returns"][0] == state.total_reward
    for event in events:
        PAYLOADS[event["type"]].model_validate(event["payload"])


def test_a_lost_match_is_recorded_as_a_loss(served: Served) -> None:
    from kibitz.games.cricket.envs.tool_env import CricketAction, CricketEnvironment

    async def lose(seed: int) -> tuple[str, Any]:
        env = CricketEnvironment(pool=2)
        obs = env.reset(options={"opponent_mode": "shrewd", "max_overs": 1, "seed": seed})
        observer = BusObserver(base_url=served.url, mode="by hand", opponent_mode="shrewd")
        await observer.start(obs)
        turn = 0
        while not obs.done:
            before, (ball, plan) = obs, (obs.tools[-1]["name"], {"intent": "block"})
            blocks = obs.role == "batting" and obs.plans["intent"] != "block"
            action = CricketAction(tool="set_batting_plan", arguments=plan) if blocks else CricketAction(tool=ball)
            pre, obs = await observer.before_step(action, before, turn=turn), env.step(action)
            await observer.after_step(action, pre, obs, None, turn=turn)
            turn += 1
        await observer.end(env.state)
        return observer.episode_id, env.state

    episode_id, state = asyncio.run(lose(2))
    assert state.winner == 1 and state.returns == (0.0, 1.0)
    *_, step, _, last = served.events(episode_id)
    assert step["payload"]["rewards"] == last["payload"]["returns"] == [0.0, 1.0]
    assert served.get(f"/episodes/{episode_id}")["returns"] == [0.0, 1.0]


def first_observation(game: str = "deal_or_no_deal") -> Any:
    from kibitz.games import get_environment

    return get_environment(game)().reset({"seed": 1})


@pytest.mark.parametrize("address", ["nowhere", "http://", "ftp://127.0.0.1", "http://127.0.0.1:port", "://", "//x"])
def test_an_observer_refuses_a_malformed_address_at_once(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="is not the address of a server"):
        BusObserver(base_url=address)
    monkeypatch.setenv("CRICKET_LOCAL_BASE_URL", address)
    with pytest.raises(BadInput, match="in the variable CRICKET_LOCAL_BASE_URL is not the address"):
        BusObserver()


@pytest.mark.parametrize("named", [False, True])
def test_an_observer_without_an_address_gives_up_within_its_limit_and_logs_once(
    named: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from kibitz.live.stream import outlets

    monkeypatch.setattr(outlets, "GIVE_UP_SECONDS", 1.0)
    address = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setattr(outlets, "USUAL_SERVER", address)
    monkeypatch.delenv("CRICKET_LOCAL_BASE_URL", raising=False)
    if named:
        monkeypatch.setenv("CRICKET_LOCAL_BASE_URL", address)

    async def publish() -> None:
        observer = BusObserver(mode="by hand")
        await observer.start(first_observation())
        await observer.end({"done": False})

    with pytest.raises(DeliveryRefused, match=r"unreachable for 1 s"):
        asyncio.run(publish())
    assert [address.removeprefix("http://") in record.message for record in caplog.records] == [True]


@pytest.mark.parametrize("kind", [httpx.AsyncClient, httpx.Client])
def test_an_observer_uses_the_callers_client_and_leaves_it_open(
    served: Served, kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    sent: list[str] = []  # by the caller's client

    async def publish() -> Any:
        class Mine(kind):  # type: ignore[misc]
            def post(self, url: str, **more: Any) -> Any:
                sent.append(url)
                return super().post(url, **more)

        client = Mine()
        observer = BusObserver(client, served.url, mode="by hand", opponent_mode="bayes")
        await observer.start(first_observation())
        await observer.end({"done": True, "returns": (3.0, 4.0), "seed": 1})
        assert not client.is_closed
        posts = [record.message for record in caplog.records if record.name == "httpx"]
        assert set(sent) == {f"{served.url}/custom/events"} and len(posts) == len(sent), "no other client posts"
        await client.aclose() if isinstance(client, httpx.AsyncClient) else client.close()
        return observer

    observer = asyncio.run(publish())
    started, *_, ended = served.events(observer.episode_id)
    assert started["payload"]["game"] == "deal_or_no_deal", "as the environment says"
    assert ended["payload"]["returns"] == [3.0, 4.0]
    told = [record.message for record in caplog.records if record.name == "kibitz.live.episode"]
    assert told[0] == f"started ep={observer.episode_id} captain=by hand opponent=bayes"
    assert told[1].startswith(f"finished ep={observer.episode_id} steps=")


def test_an_observer_explains_what_it_cannot_use() -> None:
    observer = BusObserver(object(), "http://127.0.0.1:9")
    with pytest.raises(BadInput, match="does not name its game"):
        asyncio.run(observer.start({"frame": {}}))
    with pytest.raises(BadInput, match=r"http_client is of type object; give an httpx\.AsyncClient"):
        asyncio.run(observer.start(first_observation()))
    with pytest.raises(BadInput, match="event loop"):
        HttpOutlet("http://127.0.0.1:9", client=httpx.AsyncClient())


def test_episode_log_level_chooses_which_lines_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    log = logging.getLogger("kibitz.live.episode")
    for level in ("debug", "ERROR"):
        monkeypatch.setenv("EPISODE_LOG_LEVEL", level)
        episode_log.cache_clear()
        assert episode_log() is log and log.level == logging.getLevelName(level.upper())
    monkeypatch.setenv("EPISODE_LOG_LEVEL", "loud")
    episode_log.cache_clear()
    with pytest.raises(BadInput, match="EPISODE_LOG_LEVEL is 'LOUD'; use DEBUG"):
        episode_log()
    log.setLevel(logging.NOTSET)
    episode_log.cache_clear()


def test_a_match_waits_while_the_buffer_is_full_and_loses_nothing(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kibitz.live.store.stored_event import StoredEvent, event_from_dict
    from kibitz.live.stream import outlets
    from tests.live import record

    monkeypatch.setattr(outlets, "MAX_QUEUED_EVENTS", 5)
    port = free_port()
    outlet = outlets.HttpOutlet(f"http://127.0.0.1:{port}", give_up=60)
    sent = record.events("ep-waits", steps=20)
    sending = threading.Thread(target=lambda: [outlet.send(StoredEvent(event_from_dict(event))) for event in sent])
    sending.start()
    wait_until(lambda: outlet.retries > 1, what="a retry")
    assert sending.is_alive(), "the match waits"
    outlet.url = served.url
    sending.join(60)
    outlet.close()
    assert served.events("ep-waits") == sent


def test_an_impossible_drive_is_refused_with_a_sentence(served: Served) -> None:
    with pytest.raises(BadInput, match="address"):
        drive(EpisodeRequest(), "nowhere")
    with pytest.raises(BadInput, match="page"):
        drive(EpisodeRequest(players=["human", "heuristic"]), served.url)
    driven = drive(bargain("heuristic", "heuristic", seed=1), served.url)
    with pytest.raises(BadInput, match=r"403: .* belongs to another driver"):
        drive(bargain("bayes", "heuristic", options=LONG, seed=1), served.url, episode_id=driven["episode_id"])


def test_the_result_of_a_drive_is_printed_for_people(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    facts(drive(bargain("heuristic", "heuristic", seed=3), served.url), as_json=False)
    assert "returns: " in capsys.readouterr().out


def test_kibitz_watch_plays_and_publishes(served: Served, kibitz: Callable[..., Finished]) -> None:
    played = ["--game", "deal_or_no_deal", "--player", "random", "--opponent", "heuristic", "--seed", "4"]
    for choice, shown in (("--open", True), ("--closed", False)):
        done = kibitz("watch", "--server", served.url, *played, "--pace", "0", choice, "--json")
        assert done.returncode == 0, done.stderr
        driven = json.loads(done.stdout)
        assert len(served.events(driven["episode_id"])) == driven["events"]
        assert served.get(f"/episodes/{driven['episode_id']}")["open"] is shown
    done = kibitz("watch", "--server", served.url, *played, "--opponent", "human")
    assert done.returncode == 2 and "A person plays on the server's page, not here" in done.stderr
