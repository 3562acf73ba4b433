"""A fake server for the session, a virtual clock, and the answer that every test asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from kibitz.llm.answers.answer import Answer
from kibitz.llm.client.client import Client, make_provider
from kibitz.llm.client.types import Question, Reply
from kibitz.llm.presets import Preset
from tests.llm.fake_server import FakeServer

T = TypeVar("T")

# AGREE is illegal; one book, two hats, three balls
FIELDS = {"act_type": [0, 1, 3, 4], "oA": [[0, 1], [0, 1, 2], [0, 1, 2, 3]], "confidence": [i / 10 for i in range(11)]}
# a busy machine may delay an answer by seconds, so only tests of deadlines use short ones
QUICK = {"deadline": 20.0, "timeout": 10.0, "attempts": 3, "backoff": 0.05, "breaker_failures": 50}


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
    """A preset for one of the fake server's models, with short limits."""

    def make(model: str, limits: dict[str, Any] | None = None, **settings: Any) -> Preset:
        server.counts.pop(model, None)
        server.requests[:] = [request for request in server.requests if request.body.get("model") != model]
        base = {"provider": "openai", "base_url": server.url, "model": model}
        return Preset.read({**base, "limits": {**QUICK, **(limits or {})}, **settings})

    return make


def ask(preset: Preset, answer: Answer, count: int = 1, **settings: Any) -> tuple[list[Reply], Client]:
    """Ask a new client `count` different questions, one after the other."""

    async def talk() -> tuple[list[Reply], Client]:
        client = Client(preset, make_provider(preset), **settings)
        try:
            return [await client.ask(words(number), answer) for number in range(count)], client
        finally:
            await client.close()

    return asyncio.run(talk())


class VirtualClock(asyncio.SelectorEventLoop):
    """An event loop that skips waiting: when it has nothing to run, its clock jumps to the next timer."""

    seconds = 0.0

    def time(self) -> float:
        return self.seconds

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.seconds = max(self.seconds, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def run_virtual(work: Coroutine[Any, Any, T]) -> T:
    """Like `asyncio.run`, on a virtual clock."""
    with asyncio.Runner(loop_factory=VirtualClock) as runner:
        return runner.run(work)


def words(number: int = 0) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"question {number}"}]


def questions(count: int, answer: Answer) -> list[Question]:
    return [Question(words(number), answer) for number in range(count)]
