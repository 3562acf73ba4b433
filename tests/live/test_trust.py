"""Whose episode it is, and whose results count: drivers' keys, and records that were played elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from kibitz.core.play.events import Event
from kibitz.live.episodes.request import EpisodeRequest
from kibitz.live.episodes.verify import verify
from kibitz.live.http.driver_events import DriverEvents, WrongKey, holds_key, row_of
from kibitz.live.store.base import open_store
from kibitz.live.store.stored_event import StoredEvent, event_from_dict
from kibitz.live.stream.bus import Bus
from tests.live import record
from tests.live.conftest import Served
from tests.live.machines import wait_until

FORGED = "a-key-that-somebody-made-up"


def post(served: Served, events: list[dict[str, Any]], key: str = "") -> httpx.Response:
    headers = {"episode-key": key} if key else {}
    return httpx.post(f"{served.url}/custom/events", content=record.lines(events), headers=headers)


@pytest.mark.parametrize("own", ["a-key-of-its-own-choice", ""], ids=["chosen", "given"])
def test_only_the_key_of_its_driver_may_write_fail_or_read_privately_an_episode(served: Served, own: str) -> None:
    sent = record.events(f"ep-key-{bool(own)}", steps=4)
    begun = post(served, sent[:3], own).json()
    assert ("key" in begun) == (not own), "a driver that sends no key is given one"
    key = own or begun["key"]
    failing = sent[3] | {"type": "episode.failed", "payload": {"kind": "stopped", "reason": "", "private": {}}}
    for wrong in ("", FORGED, key + "x"):
        for events in (sent[3:4], [failing], sent[:1], sent[:3]):
            refused = post(served, events, wrong)
            assert refused.status_code == 403 and "another driver" in refused.json()["error"]
    address = f"{served.url}/episodes/{sent[0]['episode_id']}/events"
    for given, seats in ((FORGED, set()), ("", set()), (key, {"0", "1"})):
        first = httpx.get(address, headers={"episode-key": given} if given else {}).text.splitlines()[0]
        assert set(json.loads(first)["payload"]["private"]) == seats
    assert post(served, sent[3:], key).json() == {"next": len(sent), "added": len(sent) - 3}
    assert key not in json.dumps(served.events(sent[0]["episode_id"]))


def test_a_weak_key_is_refused(served: Served) -> None:
    refused = post(served, record.events("ep-weak"), "short")
    assert refused.status_code == 422 and "16" in refused.json()["error"]


def test_of_two_drivers_that_begin_the_same_episode_one_has_it(tmp_path: Path) -> None:
    """The loser may have claimed an open table; that must not open the winner's."""
    bus = Bus(open_store(str(tmp_path / "a.db")))
    drivers = DriverEvents(bus)
    firsts = [record.stored_events("ep-1", end=False, open=i % 2 == 0)[:1] for i in range(8)]

    def begin(i: int) -> bool:
        try:
            return bool(drivers.commit(firsts[i], f"the-key-of-driver-{i}")["added"])
        except WrongKey:
            return False

    with ThreadPoolExecutor(8) as pool:
        won = [i for i, did in enumerate(pool.map(begin, range(8))) if did]
    row = bus.store.episode("ep-1")
    assert row is not None and len(won) == 1
    assert [i for i in range(8) if holds_key(row, f"the-key-of-driver-{i}")] == won
    assert row.open_table is (won[0] % 2 == 0)
    bus.store.close()


@pytest.fixture(scope="module")
def played() -> tuple[Event, ...]:
    """A real negotiation that ends with a deal."""
    from kibitz.live.episodes.prepare import Limits, prepare
    from kibitz.live.episodes.timeouts import StopSignal

    request = EpisodeRequest(game="deal_or_no_deal", players=["bayes", "heuristic"], seed=11).completed()
    episode = prepare(request, Limits(), StopSignal()).play()
    assert max(episode.returns) > 0
    return episode.events


Change = Callable[[list[dict[str, Any]]], object]
LIES: dict[str, tuple[Change, str]] = {
    "returns": (lambda events: events[-1]["payload"].update(returns=[9.0, 9.0]), "its acts earn"),
    "seed": (lambda events: events[-1]["payload"].update(seed=12), "its acts earn|not possible"),
    "acts": (lambda events: _step(events)["acts"].__setitem__(0, [99, 0, 0, 0]), "not possible"),
    "huge acts": (lambda events: _step(events)["acts"].__setitem__(0, [2**63 - 1, 0, 0, 0]), "not possible"),
    "no acts": (lambda events: _step(events).update(acts=[None, None]), "acts of every step"),
    "options": (lambda events: events[0]["payload"]["about"].pop("options"), "its options"),
    "another version": (lambda events: events[0]["payload"].update(version=99), "another version of deal_or_no_deal"),
    "another game": (lambda events: events[0]["payload"].update(game="chess"), "chess"),
    "seed of thousands of digits": (lambda events: events[-1]["payload"].update(seed="9" * 5000), "format"),
}


def _step(events: list[dict[str, Any]]) -> dict[str, Any]:
    payload: dict[str, Any] = next(event for event in events if event["type"] == "step")["payload"]
    return payload


@pytest.mark.parametrize("lie", ["", *LIES])
def test_a_result_from_elsewhere_counts_only_if_a_replay_confirms_it(
    played: tuple[Event, ...], tmp_path: Path, lie: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kibitz.live")
    events = json.loads(json.dumps([event.as_dict() for event in played]))
    if lie:
        LIES[lie][0](events)
    listed = [StoredEvent(event_from_dict(event)) for event in events]
    store = open_store(str(tmp_path / "a.db"))
    store.load(row_of(listed[0], "import"), listed)
    assert store.leaderboard() == []
    episode_id = listed[0].episode_id
    assert verify(store, episode_id) is (not lie)
    assert len(store.leaderboard()) == (0 if lie else 2)
    found = store.episode(episode_id)
    assert found is not None and found.shown().items() > {"origin": "import", "verified": not lie}.items()
    assert not lie or re.search(LIES[lie][1], caplog.text)
    store.close()


def test_imports_and_driven_episodes_are_marked_and_verified_on_arrival(
    served: Served, played: tuple[Event, ...]
) -> None:
    events = [event.as_dict() for event in played]
    for name, path, status in (("import", "/episodes", 201), ("driver", "/custom/events", 200)):
        own = [event | {"episode_id": f"ep-{name}"} for event in events]
        answer = httpx.post(served.url + path, content=record.lines(own), timeout=60)
        assert answer.status_code == status and answer.json().get("verified", True)
        wait_until(lambda name=name: served.get(f"/episodes/ep-{name}")["verified"], what="the replay")
        assert served.get(f"/episodes/ep-{name}")["origin"] == name
    invented = httpx.post(f"{served.url}/episodes", content=record.lines(record.events("ep-invented")))
    assert invented.json()["verified"] is False
    assert served.get("/episodes/ep-invented")["returns"] == [3.0, 1.0]
    assert not any(one["mean_return"] == 3.0 for one in served.get("/leaderboard.json")["players"])
