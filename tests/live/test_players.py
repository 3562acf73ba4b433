"""Players that hang, raise or answer nonsense; people; the runner as a function."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kibitz.core.chance import seed_key
from kibitz.core.errors import BadInput
from kibitz.core.game import first_view
from kibitz.core.play.player import Choice, Turn
from kibitz.core.play.resolve import Resolver
from kibitz.games import get_game
from kibitz.live.config import LiveConfig
from kibitz.live.episodes.human_seat import HumanSeat
from kibitz.live.episodes.janitor import fail_episode
from kibitz.live.episodes.prepare import Limits, prepare
from kibitz.live.episodes.request import EpisodeRequest
from kibitz.live.episodes.runner import Runner, is_running, run_episode_in_proc
from kibitz.live.episodes.timeouts import StopSignal
from kibitz.live.store.base import StoreUnavailable, open_store
from kibitz.live.store.sql import Store
from kibitz.live.store.stored_event import StoredEvent, decode_event
from kibitz.live.stream.bus import Bus
from kibitz.live.stream.schema import PAYLOADS


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Bus]:
    store = open_store(str(tmp_path / "a.db"), 0.3)
    yield Bus(store)
    store.close()


class Odd:
    """Hangs, raises or answers nonsense, depending on its name."""

    def __init__(self, name: str, release: threading.Event) -> None:
        self.name, self._release = name, release

    def begin(self, settings: Any, seat: int, luck: Any) -> None:
        pass

    def choose(self, turn: Turn) -> Choice:
        if self.name == "hangs":
            self._release.wait(60)
        if self.name == "raises":
            raise ZeroDivisionError("oh no")
        return Choice((99, -1, 7, 7), self.name)


@pytest.mark.parametrize(("name", "why"), [("hangs", "no answer"), ("raises", "oh no"), ("nonsense", "illegal act")])
def test_the_heuristic_replaces_a_failing_player_and_the_event_says_why(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, name: str, why: str
) -> None:
    release = threading.Event()
    known = Resolver.find

    def find(resolver: Resolver, game: Any, named: str) -> Any:
        return Odd(name, release) if named == "llm:odd" else known(resolver, game, named)

    monkeypatch.setattr(Resolver, "find", find)
    Runner(bus, LiveConfig(pace=0.0, player_timeout=0.2 if name == "hangs" else 60.0))
    played = asyncio.run(run_episode_in_proc(bus, "llm:odd", "heuristic", game="deal_or_no_deal", seed=5))
    release.set()
    assert played["status"] == "ended"
    events = [decode_event(body) for body in bus.store.events(played["episode_id"], -1)]
    mine = [e.payload for e in events if e.type == "decision" and e.payload["seat"] == 0]
    assert mine and all(one["source"] == "heuristic" for one in mine)
    assert why in mine[0]["fallback"]


def test_the_heuristic_replaces_a_person_who_does_not_answer_in_time(bus: Bus) -> None:
    Runner(bus, LiveConfig(pace=0.0, human_seconds=0.05))
    played = asyncio.run(run_episode_in_proc(bus, "human", "heuristic", game="deal_or_no_deal", seed=5))
    events = [decode_event(body) for body in bus.store.events(played["episode_id"], -1)]
    mine = [e.payload for e in events if e.type == "decision" and e.payload["seat"] == 0]
    assert mine and all(one["source"] == "heuristic" and "no answer" in one["fallback"] for one in mine)


def test_an_answered_turn_is_closed_even_before_the_episode_continues() -> None:
    game = get_game("deal_or_no_deal")
    settings = game.options().settings()
    view, masks = first_view(game, settings)
    seat = HumanSeat(game, 60.0, StopSignal())
    seat.request(Turn(settings, 0, 4, view, masks, [], seed_key(0)))  # `choose` has not run yet
    assert seat.asked()["turn"] == 4
    seat.submit([0, 0, 0, 0], None, 4)
    assert seat.asked() == {"your_turn": False, "seconds_left": None, "turn": None}


def test_a_person_learns_the_seconds_left_by_the_servers_monotonic_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    game = get_game("deal_or_no_deal")
    settings = game.options().settings()
    seat, passed = HumanSeat(game, 60.0, StopSignal()), 0.0
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0 + passed)
    asked = seat.request(Turn(settings, 0, 4, *first_view(game, settings), [], seed_key(0)))
    assert asked.seconds == seat.asked()["seconds_left"] == 60.0
    assert not [name for name in asked.details if name in ("deadline", "seconds_left")], "a record has no use for times"
    passed = 42.5
    monkeypatch.setattr(time, "time", lambda: 0.0)  # the machine's clock is set back
    assert seat.asked()["seconds_left"] == 17.5
    passed = 61.0
    assert seat.asked()["seconds_left"] == 0.0


def test_the_first_turn_of_two_people_waits_until_its_person_has_opened_the_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = EpisodeRequest(game="deal_or_no_deal", players=["human", "human"]).completed()
    prepared = prepare(request, Limits(human_seconds=60.0), StopSignal())
    (_, first), (_, second) = sorted(prepared.humans.items())
    passed = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0 + passed)
    turn = Turn(prepared.settings, 0, 0, *first_view(prepared.game, prepared.settings), [], seed_key(0))
    assert first.request(turn).seconds == 60.0
    passed = 300.0
    assert first.asked()["seconds_left"] == 60.0, "the clock has not started"
    first.join()
    passed = 310.0
    first.join()  # a second connection changes nothing
    assert first.asked()["seconds_left"] == 50.0
    second.request(turn)
    passed = 310.0 + 659.0
    assert second.asked()["your_turn"] and second.asked()["seconds_left"] == 1.0
    passed = 310.0 + 660.0
    with pytest.raises(TimeoutError):
        second.choose(turn)
    second.request(turn)
    passed += 60.0
    assert second.asked()["seconds_left"] == 0.0, "an absent person gets no second wait"


def test_a_persons_turn_is_an_event_whose_details_reach_that_seat_only(bus: Bus) -> None:
    Runner(bus, LiveConfig(pace=0.0, human_seconds=0.02))
    asked = {"game": "deal_or_no_deal", "seed": 5, "adviser": "bayes"}
    played = asyncio.run(run_episode_in_proc(bus, "human", "heuristic", **asked))
    events = [decode_event(body) for body in bus.store.events(played["episode_id"], -1)]
    assert [event.seq for event in events] == list(range(len(events)))
    requests = [event for event in events if event.type == "turn.requested"]
    decisions = [event for event in events if event.type == "decision" and event.payload["seat"] == 0]
    assert requests and [e.payload["turn"] for e in requests] == [e.payload["turn"] for e in decisions]
    for request, decision in zip(requests, decisions, strict=True):
        assert request.seq < decision.seq
        PAYLOADS["turn.requested"].model_validate(dict(request.payload))
        assert request.payload["seconds"] == 0.02
        details = request.payload["private"]["0"]
        assert details["your_turn"] and details["hint"]["text"] and "worth" in details["view_text"]
        stored = StoredEvent(request)
        for outsider in (None, 1):
            seen = decode_event(stored.text(outsider))
            assert seen.payload == {**request.payload, "private": {}}
        assert decode_event(stored.text(0)).payload == request.payload


def test_an_episode_with_a_person_is_branched_like_any_other(bus: Bus) -> None:
    from kibitz.live.episodes.branch import read_branch
    from kibitz.live.episodes.request import BranchRequest

    runner = Runner(bus, LiveConfig(pace=0.0, human_seconds=0.02))
    asked = {"game": "deal_or_no_deal", "seed": 5, "options": {"disagree_ends": False}}
    first = asyncio.run(run_episode_in_proc(bus, "human", "heuristic", **asked))
    row = bus.store.episode(first["episode_id"])
    assert row is not None
    branch = read_branch(bus.store, row, BranchRequest(turn=1, players=["heuristic", "heuristic"]))

    async def play() -> str:
        episode = await runner.start(*branch)
        await asyncio.to_thread(episode.done.wait)
        return episode.episode_id

    second = asyncio.run(play())

    def acts(episode_id: str) -> list[Any]:
        events = [decode_event(body) for body in bus.store.events(episode_id, -1)]
        return [event.payload["acts"] for event in events if event.type == "step"]

    assert acts(second) == acts(first["episode_id"]), "the heuristic replaced the person"
    kinds = [decode_event(body).type for body in bus.store.events(second, -1)]
    assert "turn.requested" not in kinds


def test_run_episode_in_proc_plays_a_match_under_one_id_with_events_that_match_their_schemas(bus: Bus) -> None:
    assert is_running(bus) is None

    async def play() -> tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any]]:
        first = asyncio.create_task(run_episode_in_proc(bus, "balanced", "aggressive", max_overs=1, adviser="shrewd"))
        while is_running(bus) is None:
            await asyncio.sleep(0.01)
        running = is_running(bus)
        second = await run_episode_in_proc(bus, "balanced", "heuristic")
        return await first, running, second

    played, running, second = asyncio.run(play())
    assert running is not None and running["episode_id"] == played["episode_id"]
    assert second["error"] and second["current"]["episode_id"] == played["episode_id"]
    assert is_running(bus) is None
    events = [decode_event(body) for body in bus.store.events(played["episode_id"], -1)]
    assert {e.episode_id for e in events} == {played["episode_id"]}
    assert {e.type for e in events} >= {"episode.started", "hint", "decision", "step", "commentary", "episode.ended"}
    for event in events:
        PAYLOADS[event.type].model_validate(dict(event.payload))


def test_a_pack_sets_the_first_position_and_its_match_stays_secret_until_the_end(bus: Bus) -> None:
    played = asyncio.run(run_episode_in_proc(bus, "balanced", "heuristic", eval_pack_id="death", seed=3))
    events = [decode_event(body) for body in bus.store.events(played["episode_id"], -1)]
    assert events[0].payload["about"]["eval_pack_id"] == "death"
    assert events[0].payload["frame"]["legal"] > 0, "a match of this pack begins in a death over"
    row = bus.store.episode(played["episode_id"])
    assert row is not None and row.secret["match"] == 3
    assert "match" not in events[0].payload["about"]


def test_a_fresh_match_of_a_pack_can_be_branched(bus: Bus) -> None:
    from kibitz.live.episodes.branch import read_branch
    from kibitz.live.episodes.request import BranchRequest

    def recorded(episode_id: str) -> list[Any]:
        return [decode_event(body).payload for body in bus.store.events(episode_id, -1)]

    played = asyncio.run(run_episode_in_proc(bus, "balanced", "random", eval_pack_id="death"))
    record = recorded(played["episode_id"])
    assert record[0]["frame"]["legal"] > 0 and record[-1].get("match") is None
    row = bus.store.episode(played["episode_id"])
    assert row is not None

    async def branched() -> str:
        request = BranchRequest(turn=record[-1]["steps"], players=["balanced", "random"])
        episode = await Runner(bus, LiveConfig(pace=0.0)).start(*read_branch(bus.store, row, request))
        await asyncio.to_thread(episode.done.wait)
        return episode.episode_id

    again = recorded(asyncio.run(branched()))
    assert (again[0]["frame"], again[-1]["scores"]) == (record[0]["frame"], record[-1]["scores"])


def test_both_matches_of_a_pair_equal_those_of_an_evaluation(bus: Bus) -> None:
    """In the second match each seat draws the other's luck; a random captain would differ at once."""
    from kibitz.evaluate.match import side_of
    from kibitz.evaluate.packs import play_hosts
    from kibitz.games import get_game, get_pack

    game, pack = get_game("cricket"), get_pack("cricket", "death")
    sides = (side_of(game, "random"), side_of(game, "heuristic"))
    evaluated = play_hosts(game, pack, sides, 2, 0, lambda count: None)
    for match in (0, 1):
        played = asyncio.run(run_episode_in_proc(bus, "random", "heuristic", eval_pack_id="death", seed=match))
        last = decode_event(bus.store.events(played["episode_id"], -1)[-1]).payload
        assert (last["match"], last["steps"]) == (match, evaluated.turns[match, 0])
        for name, scores in evaluated.scores.items():
            assert last["scores"][name] == scores[match].tolist(), name


def test_an_episode_that_the_store_refuses_fails_with_a_reason_once_the_store_is_back(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, away = bus.store.append, threading.Event()

    def failing(event: Any) -> bool:
        if event.seq == 4 and not away.is_set():
            away.set()
            raise StoreUnavailable("The store cannot be written: no space in /srv/kibitz")
        return append(event)

    monkeypatch.setattr(bus.store, "append", failing)
    Runner(bus, LiveConfig(pace=0.0))
    played = asyncio.run(run_episode_in_proc(bus, "heuristic", "heuristic", game="deal_or_no_deal", seed=5))
    events = [decode_event(body) for body in bus.store.events(played["episode_id"], -1)]
    assert [e.seq for e in events] == [0, 1, 2, 3, 4]
    assert events[-1].type == "episode.failed"
    assert events[-1].payload["reason"] == "The store was unavailable for too long.", "a path is not for everyone"
    assert played["status"] == "failed"


def test_an_orphaned_episode_is_closed_as_interrupted_and_its_record_is_complete(bus: Bus) -> None:
    from tests.live.record import row, stored_events

    store: Store = bus.store
    store.begin(row("ep-left", secret={"seed": 1, "number": 0}))
    for one in stored_events("ep-left", end=False):
        store.append(one)
    (left,) = store.orphaned()
    assert fail_episode(bus, left.episode_id, "interrupted", "The server stopped during the episode.")
    events = [decode_event(body) for body in store.events("ep-left", -1)]
    assert [e.seq for e in events] == list(range(7))
    assert events[-1].payload["kind"] == "interrupted"
    assert events[-1].payload["frame"] == {"n": 5}
    closed = store.episode("ep-left")
    assert closed is not None and closed.status == "interrupted"
    PAYLOADS["episode.failed"].model_validate(dict(events[-1].payload))


@pytest.mark.parametrize("seats", [{"players": ["human", "heuristic"]}, {"human_seat": 1}])
def test_no_game_with_a_person_is_open(seats: dict[str, Any]) -> None:
    assert not EpisodeRequest.read(game="deal_or_no_deal", **seats).completed().shows_hands
    with pytest.raises(BadInput, match="leave out `open` where a person plays"):
        EpisodeRequest.read(game="deal_or_no_deal", open=True, **seats).completed()
    hidden = EpisodeRequest.read(game="deal_or_no_deal", players=["bayes", "heuristic"], open=False)
    assert not hidden.completed().shows_hands
