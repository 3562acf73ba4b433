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
from tests.llm.fake_server import CannedResponse, FakeServer, completion, reply_with

GAME = get_game("deal_or_no_deal")
LINE = "What an offer, right out of the hat!"


def as_json(text: str) -> str:
    return json.dumps({"line": text})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    models = {
        "lively": reply_with(as_json(LINE)),
        "rude": reply_with(as_json("a\x00\x1b[31mb\n" + "x" * 1000)),
        "mute": reply_with(as_json("  ")),
        "poet": reply_with("Shall I compare thee"),
        "sleepy": lambda request: CannedResponse(completion(as_json(LINE)), wait=30),
    }
    monkeypatch.setattr(fake_server, "MODELS", {**fake_server.MODELS, **models})
    fake = FakeServer()
    yield fake
    fake.stop()


def make(server: FakeServer, model: str, within: float = 5.0) -> Commentator:
    limits = {"deadline": 5.0, "timeout": 5.0, "attempts": 1}
    values = {"provider": "openai", "base_url": server.url, "model": model, "limits": limits}
    return Commentator(GAME, Preset.read(values), within)


def play(commentator: Commentator | None) -> tuple[Episode, list[str]]:
    players = [player_named(GAME, "heuristic")] * 2
    played = play_episode(GAME, GAME.options().settings(), players, seed=1, commentate=commentator)
    if commentator is not None:
        commentator.close()
    lines = [event.payload["text"] for event in played.events if event.type in ("commentary", "episode.ended")]
    return played, lines


def test_the_models_line_replaces_the_templates(server: FakeServer) -> None:
    voice = make(server, "lively")
    _, lines = play(voice)
    assert set(lines) == {LINE}
    assert voice.counts == {"lines": len(lines), "llm": len(lines), "template": 0}


def test_the_model_sees_no_private_value(server: FakeServer) -> None:
    played, _ = play(make(server, "lively"))
    private = played.events[0].payload["private"]
    asked = [request.body["messages"][-1]["content"] for request in server.of("lively")]
    assert asked and not any("utilities" in text or "private" in text or "seed" in text for text in asked)
    assert not any(json.dumps(secret["utilities"], separators=(",", ":")) in text
                   for secret in private.values() for text in asked)  # fmt: skip


@pytest.mark.parametrize(("model", "why"), [("poet", "not_json"), ("mute", "was empty")])
def test_an_unusable_line_is_replaced_by_the_templates_and_counted(server: FakeServer, model: str, why: str) -> None:
    voice = make(server, model)
    _, lines = play(voice)
    assert lines == play(None)[1]
    assert voice.counts["template"] == len(lines) and voice.counts["llm"] == 0
    assert why in voice.note


def test_a_failing_provider_is_not_asked_for_every_line(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fake_server.MODELS, "broken", lambda request: fake_server.error(500, "no"))
    voice = make(server, "broken")
    _, lines = play(voice)
    assert lines == play(None)[1]
    assert len(lines) > len(server.of("broken")) == module.MAX_FAILURES
    assert "the provider is failing" in voice.note


def test_a_model_that_hangs_delays_only_a_few_lines(server: FakeServer) -> None:
    voice = make(server, "sleepy", within=0.5)
    assert play(voice)[1] == play(None)[1]
    assert len(server.of("sleepy")) == module.MAX_FAILURES
    assert "the provider is failing" in voice.note


def test_lines_are_cleaned_and_shortened(server: FakeServer) -> None:
    lines = play(make(server, "rude"))[1]
    assert all(line.isprintable() and len(line) <= module.MAX_LINE_CHARACTERS for line in lines)
    assert lines[0].startswith("a [31mb xx")


def test_a_commentator_is_found_by_name() -> None:
    assert commentator_for(GAME) is GAME.drawing.commentary
    for wrong in ("parrot", "llm:nobody"):
        with pytest.raises(BadInput, match=r"There is no"):
            commentator_for(GAME, wrong)
