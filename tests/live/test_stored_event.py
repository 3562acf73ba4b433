"""One event, three viewers: each seat and the public."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from websockets.frames import Frame, Opcode

from kibitz.core.game import Game
from kibitz.core.play.episode import play_episode
from kibitz.live.store.stored_event import StoredEvent, Viewer, encode_ws_text
from kibitz.live.stream.env_recorder import EnvRecorder
from kibitz.live.stream.schema import PAYLOADS
from kibitz.players import player_named
from tests.train import toy


def _payloads(game: Game, viewer: Viewer, open_table: bool = False) -> list[tuple[str, dict[str, Any]]]:
    players = [player_named(game, "oracle"), player_named(game, "random")]
    played = play_episode(game, game.options().settings(), players, seed=1)
    shown = [json.loads(StoredEvent(event, open_table).text(viewer)) for event in played.events]
    for event in shown:
        PAYLOADS[event["type"]].model_validate(event["payload"])
    return [(event["type"], event["payload"]) for event in shown]


def _steps(game: Game, viewer: Viewer, open_table: bool = False) -> list[dict[str, Any]]:
    return [payload for kind, payload in _payloads(game, viewer, open_table) if kind == "step"]


def test_rewards_are_private_to_their_seat_until_the_end() -> None:
    game = toy.game()
    earned = _payloads(game, None)[-1][1]["returns"]
    assert sum(earned) > 0
    for kind, payload in _payloads(game, None)[:-1]:
        assert "rewards" not in payload and "returns" not in payload, kind
        assert not any(payload.get("private", {}).values()), kind
    for seat in (0, 1):
        steps = _steps(game, seat)
        assert all(set(step["private"]) == {str(seat)} for step in steps)
        assert sum(step["private"][str(seat)]["reward"] for step in steps) == earned[seat]
    assert all(set(step["private"]) == {"0", "1"} for step in _steps(game, None, open_table=True))


def test_rewards_are_public_if_the_game_says_so() -> None:
    private = toy.game()
    game = replace(private, drawing=replace(private.drawing, public_rewards=True))
    for step in _steps(game, None):
        assert len(step["rewards"]) == 2


def test_an_environments_rewards_are_private_unless_the_game_says_otherwise() -> None:
    reward, shown = 31_415.25, {}  # digits that no time contains
    for game in ("deal_or_no_deal", "cricket"):
        recorder = EnvRecorder("ep-1", ("a", "b"), {}, game)
        recorder.started({"frame": {"n": 0}})
        _, event = recorder.step({}, {"turn": 0}, {"frame": {"n": 1}, "turn": 1}, reward, 1)
        shown[game] = [StoredEvent(event).text(viewer) for viewer in (None, 0, 1)]
        (last,) = recorder.ended({})
        assert last.payload["returns"] == [reward, 0.0]
    assert [str(reward) in text for text in shown["deal_or_no_deal"]] == [False, True, False]
    assert [str(reward) in text for text in shown["cricket"]] == [True, True, True]


@pytest.mark.parametrize("name", ["done", "match_over"])
def test_an_environment_that_its_driver_abandons_ends_as_failed(name: str) -> None:
    for over, kind in ((False, "episode.failed"), (True, "episode.ended")):
        recorder = EnvRecorder("ep-1", ("a", "b"), {}, "deal_or_no_deal")
        recorder.started({"frame": {}})
        (last,) = recorder.ended({name: over, "seed": 1})
        assert last.type == kind


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_a_text_is_encoded_as_the_websockets_package_does(size: int) -> None:
    text = "x" * size
    assert encode_ws_text(text) == Frame(Opcode.TEXT, text.encode()).serialize(mask=False)
