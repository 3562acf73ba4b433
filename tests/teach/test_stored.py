"""Rows from stored episodes: the positions that the players saw, filtered by result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kibitz.core.errors import BadInput
from kibitz.core.play.events import Event
from kibitz.evaluate.judges.episodes import finished
from kibitz.live.episodes.prepare import Limits, prepare
from kibitz.live.episodes.request import EpisodeRequest
from kibitz.live.episodes.timeouts import StopSignal
from kibitz.live.store.base import Row, open_store
from kibitz.live.store.stored_event import StoredEvent
from kibitz.teach.examples.data import Lesson, write_rows
from kibitz.teach.records.judged import labelled_store
from tests.live.conftest import postgres
from tests.live.machines import Postgres
from tests.train import toy

__all__ = ["postgres"]


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    toy.register()
    yield
    toy.unregister()


def play(seed: int, *players: str, **options: Any) -> list[Event]:
    request = EpisodeRequest.read(game=toy.NAME, players=list(players), seed=seed, options=options)
    return list(prepare(request, Limits(), StopSignal()).play().events)


def keep(url: str, episodes: list[list[Event]]) -> Any:
    store = open_store(url)
    for number, events in enumerate(episodes):
        first = events[0]
        row = Row(first.episode_id, toy.NAME, tuple(first.payload["players"]), 1.0 + number)
        store.begin(row)
        for event in events:
            store.append(StoredEvent(event))
    return store


def rows(path: Path, source: str, **more: Any) -> list[dict[str, Any]]:
    game = toy.build(False)
    write_rows(path, game, game.default_options, Lesson(stored=source, **more), 1000)
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_experts_stored_acts_become_rows_while_a_server_has_the_store_open(tmp_path: Path) -> None:
    episodes = [play(seed, "random", "oracle") for seed in range(3)]
    with closing(keep(str(tmp_path / "a.db"), episodes)):
        found = rows(tmp_path / "rows", str(tmp_path / "a.db"), expert="oracle")
        assert len(found) == 3 * 4
        for row in found:
            asked, answer = row["messages"][-2]["content"], json.loads(row["messages"][-1]["content"])
            assert answer["arm"] == int(asked.split("lucky ")[1][0])
        both = rows(tmp_path / "both", f"sqlite:///{tmp_path}/a.db")
        assert len(both) == 2 * len(found)


def test_episodes_are_filtered_by_what_the_seat_earned(tmp_path: Path) -> None:
    episodes = [play(seed, "random", "oracle") for seed in range(6)]
    earned = [events[-1].payload["returns"][0] for events in episodes]
    best = max(earned)
    assert best > min(earned)
    lines = [event.as_json() for events in episodes for event in events]
    (tmp_path / "events.jsonl").write_text("\n".join(lines) + "\n")
    found = rows(tmp_path / "rows", str(tmp_path / "events.jsonl"), expert="random", min_return=best)
    assert len(found) == 4 * earned.count(best)


def test_judges_read_the_episodes_of_a_store_that_have_the_first_ones_options(tmp_path: Path) -> None:
    episodes = [play(seed, "random", "heuristic") for seed in range(3)]
    other = play(3, "random", "heuristic", rounds=2)
    with closing(keep(str(tmp_path / "a.db"), [*episodes[:2], other, episodes[2]])):
        game, found, skipped = labelled_store(str(tmp_path / "a.db"), toy.build(False), 10)
    assert (len(found), skipped) == (3, 1)
    assert found.returns.tolist() == [events[-1].payload["returns"] for events in episodes]
    for number in range(3):
        transcript = game.styles.transcript(*finished(game, found, number))
        pulled = set(transcript.split("Alice pulled ")[1].split(" and won")[0].split(", "))
        assert bool(found.shown["bold"][number]) == (pulled == {"1"}), transcript


def test_a_record_that_cannot_be_replayed_is_skipped_and_counted(tmp_path: Path) -> None:
    good, bad = play(1, "oracle", "random"), play(2, "oracle", "random")
    lines = [event.as_json() for event in good] + [event.as_json() for event in bad if event.type != "decision"][:-2]
    lines.append(json.dumps(json.loads(bad[-1].as_json()) | {"seq": 99}))
    (tmp_path / "events.jsonl").write_text("\n".join(lines) + "\n")
    game = toy.build(False)
    lesson = Lesson(stored=str(tmp_path / "events.jsonl"), expert="oracle")
    found = write_rows(tmp_path / "rows", game, game.default_options, lesson, 100)
    assert (found["rows"], found["skipped_episodes"]) == (4, 1)


@pytest.mark.parametrize("change", [{"players": 5}, {"about": 7}, None])
def test_a_foreign_drivers_record_is_skipped_whatever_it_contains(change: Any, tmp_path: Path) -> None:
    good, bad = play(1, "oracle", "random"), [json.loads(event.as_json()) for event in play(2, "oracle", "random")]
    bad[0]["payload"] = [] if change is None else bad[0]["payload"] | change
    lines = [json.dumps(event) for event in bad] + [event.as_json() for event in good]
    (tmp_path / "events.jsonl").write_text("\n".join(lines) + "\n")
    game = toy.build(False)
    found = write_rows(tmp_path / "rows", game, game.default_options, Lesson(stored=str(tmp_path / "events.jsonl")), 9)
    assert (found["rows"], found["skipped_episodes"]) == (8, 1)


@pytest.mark.parametrize("content", [None, "not json\n", ""])
def test_a_source_without_episodes_is_one_sentence(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "source").write_text(content)
    with pytest.raises(BadInput, match=r"There is no store|neither a store nor a file|No stored episode"):
        rows(tmp_path / "rows", str(tmp_path / "source"))
    assert not (tmp_path / "rows").exists()


@pytest.mark.conformance
def test_postgresql_gives_the_same_rows(postgres: Postgres, tmp_path: Path) -> None:
    episodes = [play(seed, "oracle", "random") for seed in range(2)]
    address = postgres.fresh()
    with closing(keep(address, episodes)), closing(keep(str(tmp_path / "a.db"), episodes)):
        assert rows(tmp_path / "one", address) == rows(tmp_path / "other", str(tmp_path / "a.db"))
    with pytest.raises(BadInput, match="cannot be read"):
        rows(tmp_path / "none", "postgresql://kibitz@127.0.0.1:1/none")
