"""A model's words while they arrive: over real HTTP, only where someone listens."""

from __future__ import annotations

import json
from collections.abc import Callable

from kibitz.core.play.thinking import HEAR
from kibitz.llm.answers.answer import Answer
from kibitz.llm.client.blocking import BlockingClient
from kibitz.llm.client.client import Client, make_provider
from kibitz.llm.client.types import Reply
from kibitz.llm.presets import Preset
from kibitz.llm.providers.streamed import StreamedCompletion
from tests.llm.fake_server import GOOD, LINE, FakeServer

Remote = Callable[..., Preset]
QUESTION = [{"role": "user", "content": "What do you keep?"}]


def asked(preset: Preset, answer: Answer, heard: list[str] | None) -> Reply:
    """The reply to one question, asked from this thread as a player asks; `heard` collects the words."""
    token = HEAR.set(None if heard is None else heard.append)
    try:
        with BlockingClient(lambda: Client(preset, make_provider(preset))) as client:
            return client.ask(QUESTION, answer)
    finally:
        HEAR.reset(token)


def test_words_arrive_in_pieces_and_the_answer_is_the_same(remote: Remote, answer: Answer, server: FakeServer) -> None:
    heard: list[str] = []
    preset = remote("streamed")
    streamed, plain = asked(preset, answer, heard), asked(preset, answer, None)
    assert streamed.fields == plain.fields == GOOD and streamed.usage == plain.usage
    assert len(heard) > 2 and heard == sorted(heard, key=len) and heard[-1] == f"Let me think. {LINE}"
    first, second = (request.body for request in server.of("streamed"))
    assert first["stream"] is True and "stream" not in second, "nobody listens to the second question"


def test_a_server_that_cannot_stream_is_asked_again_without(remote: Remote, answer: Answer) -> None:
    heard: list[str] = []
    assert asked(remote("streams-never"), answer, heard).fields == GOOD
    assert heard == []


def test_an_echoed_key_is_never_heard_not_even_its_beginning() -> None:
    heard: list[str] = []
    streamed = StreamedCompletion(heard.append, "sk-very-secret")
    for piece in ("the key is sk-ve", "ry-secret, keep", " it"):
        streamed.take(f"data: {json.dumps({'choices': [{'delta': {'content': piece}}]})}\n\n".encode())
    assert heard == ["the key is ", "the key is ***, keep", "the key is ***, keep it"]
    assert streamed.whole()["choices"][0]["message"]["content"] == "the key is sk-very-secret, keep it"
