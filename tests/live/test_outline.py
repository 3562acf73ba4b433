"""What the page shows beside an episode: outlines and cards, from public events alone, and after the end the replay
with the reference player."""

from __future__ import annotations

import asyncio
import io
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from PIL import Image

from kibitz.core.bots import seated
from kibitz.core.play.episode import play_episode
from kibitz.core.play.events import Event
from kibitz.games import get_game
from kibitz.live.episodes.reference import References
from kibitz.live.site.card import Cards, Words
from kibitz.live.site.outline import MAX_LEVELS, Outlines
from kibitz.live.store.base import Row, open_store
from kibitz.live.store.stored_event import StoredEvent
from kibitz.llm.presets import Preset, not_listening
from kibitz.players import player_named


def played(tmp_path: Path, name: str, players: tuple[str, str], **options: Any) -> tuple[Outlines, Row, list[Event]]:
    game = get_game(name)
    given = game.options(**options)
    bots = {seat: game.bots[player] for seat, player in enumerate(players)}
    seats = [player_named(game, player) for player in players]
    episode = play_episode(game, seated(given.settings(), bots), seats, seed=3, episode_id="ep-1")
    store = open_store(str(tmp_path / "kibitz.db"))
    row = Row("ep-1", name, players, 0.0, about={"options": given.model_dump(mode="json")})
    store.load(row, [StoredEvent(event) for event in episode.events])
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
    said = [[one.text for one in cards.shapes(row, seq) if isinstance(one, Words)] for seq in (None, 1)]
    for paid in events[-1].payload["returns"]:
        assert f"{paid:g}" in said[0] and f"{paid:g}" not in said[1], "points are private until the end"
    hostile = replace(row, players=('<script>"x"', "policy:runs/\x01&"))
    with Image.open(io.BytesIO(cards.png(hostile))) as picture:
        assert picture.format == "PNG" and picture.size == (1200, 630)
        colours = picture.convert("RGB").getcolors(1 << 20)
    assert colours and max(colours)[1] == (0x12, 0x17, 0x1A) and len(colours) > 50, "words and lines on dark ground"
    assert not any("\x01" in one.text for one in cards.shapes(hostile) if isinstance(one, Words))
    head = cards.head(hostile, 3, 'http://127.0.0.1:1"><x')
    assert "<script>" not in head and '"><x' not in head and "card.png?seq=3" in head


def test_the_reference_is_replayed_in_a_seat_against_the_same_partner_with_the_same_luck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outlines, row, events = played(tmp_path, "deal_or_no_deal", ("random", "heuristic"))
    _, _, better = played(tmp_path / "better", "deal_or_no_deal", ("bayes", "heuristic"))
    store = outlines.store

    def found(row: Row) -> dict[str, Any]:
        return asyncio.run(References(store, tmp_path).of(row))

    answer, returns = found(row), better[-1].payload["returns"]
    assert answer["reference"] == "bayes" and answer["seats"][0] == {"returns": returns, "why": ""}
    assert returns != events[-1].payload["returns"]
    beside_a_person = found(replace(row, players=("random", "human")))["seats"]
    assert beside_a_person[0]["returns"] is None and "human cannot be replayed" in beside_a_person[0]["why"]
    assert beside_a_person[1]["returns"] is not None, "the person's own seat has a bot as its partner"
    itself = found(replace(row, players=("expert", "heuristic")))["seats"][0]
    assert itself == {"returns": None, "why": "bayes itself played this seat."}
    other_partner = found(replace(row, players=("random", "random")))["seats"][0]
    assert other_partner["returns"] is None and "not choose any more" in other_partner["why"]
    assert "another_game" in found(replace(row, game="another_game"))["seats"][0]["why"]
    for wrong in (5, ["heuristic"]):  # a driver's record says what it likes
        hostile = found(replace(row, about=row.about | {"adviser": wrong}))["seats"]
        assert hostile[0]["returns"] == returns and hostile[1]["returns"] is None and hostile[1]["why"]
    monkeypatch.setattr("kibitz.live.episodes.reference.MAX_REPLAY_SECONDS", -1.0)
    assert "of processor time" in found(row)["seats"][0]["why"]


def test_a_preset_whose_server_is_not_there_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    away = Preset(provider="openai", base_url=f"http://127.0.0.1:{port}/v1", model="m")
    assert "does not respond" in not_listening(away)
    assert not not_listening(Preset(provider="openai", base_url="https://elsewhere.example/v1", model="m"))
