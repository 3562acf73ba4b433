"""A fake server for the whole set, and the answer every test asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kibitz.llm.answers.answer import Answer
from kibitz.llm.client.client import Client, make_provider
from kibitz.llm.client.types import Question, Reply
from kibitz.llm.presets import Preset
from tests.llm.fake_server import FakeServer

# AGREE is closed; one book, two hats, three balls
FIELDS = {"act_type": [0, 1, 3, 4], "oA": [[0, 1], [0, 1, 2], [0, 1, 2, 3]], "confidence": [i / 10 for i in range(11)]}
QUICK = {"deadline": 2.0, "timeout": 1.0, "attempts": 3, "backoff": 0.05, "breaker_failures": 50}


@pytest.fixture(scope="session")
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    yield fake
    fake.stop()


@pytest.fixture
def answer() -> Answer:
    return Answer.of(FIELDS)


@pytest.fixture
def remote(server: FakeServer) -> Callable[..., Preset]:
    """A preset for one of the fake server's models, with little patience."""

    def make(model: str, limits: dict[str, Any] | None = None, **settings: Any) -> Preset:
        server.counts.pop(model, None)
        server.requests[:] = [request for request in server.requests if request.body.get("model") != model]
        base = {"provider": "openai", "base_url": server.url, "model": model}
        return Preset.read({**base, "limits": {**QUICK, **(limits or {})}, **settings})

    return make


def ask(preset: Preset, answer: Answer, count: int = 1, **settings: Any) -> tuple[list[Reply], Client]:
    """`count` different questions, one after the other, to a fresh client."""

    async def talk() -> tuple[list[Reply], Client]:
        client = Client(preset, make_provider(preset), **settings)
        try:
            return [await client.ask(words(number), answer) for number in range(count)], client
        finally:
            await client.close()

    return asyncio.run(talk())


def words(number: int = 0) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"question {number}"}]


def questions(count: int, answer: Answer) -> list[Question]:
    return [Question(words(number), answer) for number in range(count)]
