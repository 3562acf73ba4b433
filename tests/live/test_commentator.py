"""A language model as commentator, with the template behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kibitz.core.errors import BadInput
from kibitz.core.play.episode import Episode, play_episode
from kibitz.games import get_game
from kibitz.live.voice import commentator as module
from kibitz.live.voice.commentator import Commentator, commentator_for
from kibitz.llm.presets import Preset
from kibitz.players import player_named
from tests.llm import fake_server
from tests.llm.fake_server import FakeServer, Plan, completion, said

GAME = get_game("deal_or_no_deal")
LINE = "What an offer, right out of the hat!"


def spoken(text: str) -> str:
    return json.dumps({"line": text})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    models = {
        "lively": said(spoken(LINE)),
        "rude": said(spoken("a\x00\x1b[31mb\n" + "x" * 1000)),
        "mute": said(spoken("  ")),
        "poet": said("Shall I compare thee"),
        "sleepy": lambda request: Plan(completion(spoken(LINE)), wait=30),
    }
    monkeypatch.setattr(fake_server, "MODELS", {**fake_server.MODELS, **models})
    fake = FakeServer()
    yield fake
    fake.stop()


def commentator(server: FakeServer, model: str, within: float = 5.0) -> Commentator:
    limits = {"deadline": 5.0, "timeout": 5.0, "attempts": 1}
    values = {"provider": "openai", "base_url": server.url, "model": model, "limits": limits}
    return Commentator(GAME, Preset.read(values), within)


def told_by(voice: Commentator | None) -> tuple[Episode, list[str]]:
    players = [player_named(GAME, "heuristic")] * 2
    played = play_episode(GAME, GAME.options().settings(), players, seed=1, commentate=voice)
    if voice is not None:
        voice.close()
    lines = [event.payload["text"] for event in played.events if event.type in ("commentary", "episode.ended")]
    return played, lines


def test_the_models_line_takes_the_place_of_the_templates(server: FakeServer) -> None:
    voice = commentator(server, "lively")
    _, lines = told_by(voice)
    assert set(lines) == {LINE}
    assert voice.counts == {"lines": len(lines), "llm": len(lines), "template": 0}


def test_the_model_is_told_nothing_that_only_a_seat_may_know(server: FakeServer) -> None:
    played, _ = told_by(commentator(server, "lively"))
    private = played.events[0].payload["private"]
    asked = [request.body["messages"][-1]["content"] for request in server.of("lively")]
    assert asked and not any("utilities" in text or "private" in text or "seed" in text for text in asked)
    assert not any(json.dumps(secret["utilities"], separators=(",", ":")) in text
                   for secret in private.values() for text in asked)  # fmt: skip


@pytest.mark.parametrize(("model", "why"), [("poet", "not_json"), ("mute", "said nothing"), ("500", "refused")])
def test_without_a_good_line_the_template_speaks_and_is_counted(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, model: str, why: str
) -> None:
    monkeypatch.setitem(fake_server.MODELS, "500", lambda request: fake_server.error(400, "no"))
    voice = commentator(server, model)
    _, lines = told_by(voice)
    assert lines == told_by(None)[1]
    assert voice.counts["template"] == len(lines) and voice.counts["llm"] == 0
    assert len(server.of(model)) == module.PATIENCE  # then it is left alone
    assert why in voice.note or "left alone" in voice.note


def test_a_sleepy_model_does_not_hold_up_the_match(server: FakeServer) -> None:
    voice = commentator(server, "sleepy", within=0.1)
    assert told_by(voice)[1] == told_by(None)[1]


def test_lines_are_cleaned_and_cut(server: FakeServer) -> None:
    lines = told_by(commentator(server, "rude"))[1]
    assert all(line.isprintable() and len(line) <= module.LONGEST for line in lines)
    assert lines[0].startswith("a [31mb xx")


def test_a_commentator_is_found_by_name() -> None:
    assert commentator_for(GAME) is GAME.drawing.commentary
    for wrong in ("parrot", "llm:nobody"):
        with pytest.raises(BadInput, match=r"There is no"):
            commentator_for(GAME, wrong)
