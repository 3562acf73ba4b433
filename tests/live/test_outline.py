"""Outlines: what lists and cards say about an episode, from public events alone."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import orjson

from kibitz.core.play.episode import play_episode
from kibitz.core.play.events import Event
from kibitz.games import get_game
from kibitz.live.site.card import Cards
from kibitz.live.site.outline import MAX_LEVELS, Outlines
from kibitz.live.store.base import Row, open_store
from kibitz.live.store.stored_event import StoredEvent
from kibitz.llm.presets import Preset, not_listening
from kibitz.players import player_named


def played(tmp_path: Path, name: str, players: tuple[str, str], **options: Any) -> tuple[Outlines, Row, list[Event]]:
    game = get_game(name)
    settings = game.options(**options).settings()
    seats = [player_named(game, player) for player in players]
    episode = play_episode(game, settings, seats, seed=3, episode_id="ep-1")
    store = open_store(str(tmp_path / "kibitz.db"))
    store.load(Row("ep-1", name, players, 0.0), [StoredEvent(event) for event in episode.events])
    row = store.episode("ep-1")
    assert row is not None
    return Outlines(store), row, list(episode.events)


def test_an_outline_has_the_score_of_both_sides_and_a_thin_line(tmp_path: Path) -> None:
    outlines, row, events = played(tmp_path, "cricket", ("balanced", "random"), max_overs=1)
    found = outlines.of(row)
    final = events[-1].payload["frame"]
    assert found["sides"] == tuple(final["sides"]) and f"{final['score']}/{final['wickets']}" in " ".join(
        found["score"]
    )
    assert 2 <= len(found["levels"]) <= MAX_LEVELS + 1 and found["levels"][-1] in (0.0, 0.5, 1.0)
    assert outlines.of(row) == found
    start = outlines.at(row, 0)
    assert start.seq == 0 and start.turns == 0 and start.returns is None, "a card of the start does not tell the end"


def test_an_outline_depends_on_nothing_that_is_private(tmp_path: Path) -> None:
    outlines, row, events = played(tmp_path, "deal_or_no_deal", ("bayes", "heuristic"))
    middle = next(event.seq for event in reversed(events) if event.type == "commentary")
    seen = outlines.at(row, middle)
    for event in events[: middle + 1]:
        if private := event.payload.get("private"):
            event.payload["private"] = {seat: {"utilities": [9, 9, 9]} for seat in private}
    store = open_store(str(tmp_path / "other.db"))
    store.load(Row("ep-1", row.game, row.players, 0.0), [StoredEvent(event) for event in events])
    again = store.episode("ep-1")
    assert again is not None and Outlines(store).at(again, middle) == seen
    assert b"utilities" not in orjson.dumps(seen.frame)


def test_a_card_shows_the_moment_and_takes_nothing_for_markup(tmp_path: Path) -> None:
    outlines, row, events = played(tmp_path, "deal_or_no_deal", ("bayes", "heuristic"))
    cards = Cards(outlines)
    ended = cards.svg(row)
    ElementTree.fromstring(ended)
    first, second = events[-1].payload["returns"]
    assert f">{first:g}</text>" in ended and f">{second:g}</text>" in ended
    assert f">{first:g}</text>" not in cards.svg(row, 1), "points are private until the end"
    hostile = replace(row, players=('<script>"x"', "policy:runs/\x01&"))
    assert "<script>" not in cards.svg(hostile) and ElementTree.fromstring(cards.svg(hostile)) is not None
    head = cards.head(hostile, 3, 'http://127.0.0.1:1"><x')
    assert "<script>" not in head and '"><x' not in head and "card.svg?seq=3" in head


def test_a_preset_whose_server_is_not_there_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    away = Preset(provider="openai", base_url=f"http://127.0.0.1:{port}/v1", model="m")
    assert "does not respond" in not_listening(away)
    assert not not_listening(Preset(provider="openai", base_url="https://elsewhere.example/v1", model="m"))
