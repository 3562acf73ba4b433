"""The client with a scripted provider: sharing, order, cache, budget, breaker, policy."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kibitz.core.errors import BadInput
from kibitz.llm.answers.answer import Answer
from kibitz.llm.client.cache import Cache
from kibitz.llm.client.client import Client, make_provider
from kibitz.llm.client.limits import Breaker, Budget, FailurePolicy, Limits, TooManyFailures
from kibitz.llm.client.types import Completion, FailureKind, Messages, ProviderError, Question, Reply
from kibitz.llm.presets import Preset
from tests.llm.conftest import questions, run_virtual, words
from tests.llm.fake_server import GOOD

PRESET = Preset.read(
    {
        "provider": "openai",
        "base_url": "http://nowhere/v1",
        "model": "scripted",
        "price": {"prompt": 1.0, "completion": 1.0},
        "sampling": {"max_tokens": 100},
        "limits": {"concurrency": 8, "backoff": 0.0, "deadline": 1.0, "breaker_failures": 3, "breaker_rest": 0.2},
    }
)


ONE_BY_ONE = PRESET.model_copy(update={"limits": PRESET.limits.model_copy(update={"concurrency": 1})})


class Scripted:
    """Answers after `latency` seconds of virtual time and records the questions."""

    name = "scripted"
    max_concurrent: int | None = None
    has_logprobs = False

    def __init__(self, script: Callable[[int], str | ProviderError] | None = None, latency: float = 0.01) -> None:
        self.script = script or (lambda number: json.dumps({**GOOD, "confidence": number / 1000}))
        self.latency = latency
        self.asked: list[int] = []
        self.concurrent = self.most_concurrent = 0

    def request(self, messages: Messages, answer: Answer) -> Mapping[str, Any]:
        return {"messages": list(messages)}

    async def ask(self, request: Mapping[str, Any], answer: Answer, seconds: float) -> Completion:
        number = int(request["messages"][-1]["content"].split()[-1])
        self.asked.append(number)
        self.concurrent += 1
        self.most_concurrent = max(self.most_concurrent, self.concurrent)
        try:
            await asyncio.sleep(self.latency)
        finally:
            self.concurrent -= 1
        result = self.script(number)
        if isinstance(result, ProviderError):
            raise result
        return Completion(result, 50, 10)

    async def close(self) -> None:
        pass


def talk(provider: Scripted, work: Callable[[Client], Awaitable[Any]], **settings: Any) -> Any:
    async def run() -> Any:
        client = Client(settings.pop("preset", PRESET), provider, **settings)
        try:
            return await work(client)
        finally:
            await client.close()

    return run_virtual(run())


def numbers(replies: list[Reply]) -> list[int]:
    return [round(reply.fields["confidence"] * 1000) if reply.fields else -1 for reply in replies]


def test_replies_come_in_the_order_of_the_questions(answer: Answer) -> None:
    provider = Scripted()
    replies = talk(provider, lambda client: client.ask_many(questions(100, answer)))
    assert numbers(replies) == list(range(100))
    assert provider.most_concurrent == 8


def test_identical_questions_cost_one_call(answer: Answer) -> None:
    provider = Scripted()

    async def work(client: Client) -> None:
        replies = await client.ask_many([Question(words(i % 4), answer) for i in range(40)])
        assert numbers(replies) == [i % 4 for i in range(40)]
        assert [reply.source for reply in replies] == ["model"] * 4 + ["shared"] * 36
        assert sum(reply.usage.tokens for reply in replies) == client.ledger.tokens == 4 * 60
        assert (client.ledger.asked, client.ledger.shared, client.ledger.calls) == (40, 36, 4)

    talk(provider, work)
    assert sorted(provider.asked) == [0, 1, 2, 3]


def test_identical_questions_of_different_callers_share_a_call_in_flight(answer: Answer) -> None:
    provider = Scripted(latency=0.1)

    async def work(client: Client) -> None:
        replies = await asyncio.gather(*(client.ask(words(3), answer) for _ in range(10)))
        assert numbers(list(replies)) == [3] * 10

    talk(provider, work)
    assert provider.asked == [3]


def test_cancelling_one_caller_does_not_cancel_a_shared_call(answer: Answer) -> None:
    provider = Scripted(latency=0.1)

    async def work(client: Client) -> None:
        cancelled = asyncio.create_task(client.ask(words(3), answer))
        await asyncio.sleep(0.02)
        remaining = asyncio.create_task(client.ask(words(3), answer))
        await asyncio.sleep(0.02)
        cancelled.cancel()
        assert (await remaining).ok

    talk(provider, work)
    assert provider.asked == [3]


def test_the_same_prompt_with_other_legal_values_is_another_question(answer: Answer) -> None:
    other = Answer.of({"act_type": [0], "oA": [[1], [0], [2]], "confidence": [0.0, 1.0]})
    provider = Scripted()
    talk(provider, lambda client: client.ask_many([Question(words(1), answer), Question(words(1), other)]))
    assert provider.asked == [1, 1]


def test_good_answers_are_cached_across_clients(answer: Answer, tmp_path: Path) -> None:
    first, second = Scripted(), Scripted()
    file = tmp_path / "deep" / "answers.sqlite"
    before = talk(first, lambda client: client.ask_many(questions(20, answer)), cache=Cache(file))

    async def again(client: Client) -> list[Reply]:
        replies = await client.ask_many(questions(20, answer))
        assert client.ledger.as_dict()["hits"] == 20
        assert client.ledger.as_dict()["calls"] == 0
        return replies

    after = talk(second, again, cache=Cache(file))
    assert second.asked == []
    assert [reply.fields for reply in after] == [reply.fields for reply in before]
    assert {reply.source for reply in after} == {"cache"}
    assert sum(reply.usage.tokens for reply in after) == 0


def test_bad_answers_are_not_cached(answer: Answer, tmp_path: Path) -> None:
    for script in (lambda number: "nonsense", lambda number: json.dumps({**GOOD, "act_type": 2})):
        provider = Scripted(script)
        for _ in range(2):
            cache = Cache(tmp_path / "answers.sqlite")
            assert not talk(provider, lambda client: client.ask(words(), answer), cache=cache).ok
        assert len(provider.asked) == 2
    with sqlite3.connect(tmp_path / "answers.sqlite") as db:
        assert db.execute("SELECT count(*) FROM answers").fetchone() == (0,)
    db.close()


def test_prompt_version_model_and_sampling_change_the_cache_key(answer: Answer) -> None:
    from kibitz.llm.providers.remote import Remote

    def key(prompt_version: str = "", **changes: Any) -> str:
        preset = PRESET.model_copy(update=changes)
        return Client(preset, Remote(preset), prompt_version=prompt_version).key(Question(words(), answer))

    warm = PRESET.sampling.model_copy(update={"temperature": 0.5})
    keys = [key(), key("v2"), key(model="other"), key(sampling=warm), key(base_url="http://elsewhere/v1")]
    keys.append(key(structure="json"))
    assert len(set(keys)) == len(keys)
    assert key() == key()


@pytest.mark.parametrize("provider", ["embedded", "local_hf"])
def test_other_weights_under_the_same_name_change_the_cache_key(provider: str, answer: Answer, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    preset = Preset.read({"provider": provider, "model": str(file if provider == "embedded" else tmp_path)})

    def key(weights: bytes, mtime_ns: int) -> str:
        file.write_bytes(weights)
        os.utime(file, ns=(mtime_ns, mtime_ns))
        return Client(preset, make_provider(preset)).key(Question(words(), answer))

    assert key(b"first", 1) == key(b"first", 1)
    assert key(b"first", 1) != key(b"other", 2)


def test_a_modified_cache_entry_is_checked_and_ignored(answer: Answer, tmp_path: Path) -> None:
    file = tmp_path / "answers.sqlite"
    talk(Scripted(), lambda client: client.ask(words(5), answer), cache=Cache(file))
    for row in ('["x", {"act_type": 2}, {}, [0, 0, 0]]', "no json", '["x"]'):
        with sqlite3.connect(file) as db:
            db.execute("UPDATE answers SET entry = ?", (row,))
        db.close()
        reply = talk(Scripted(), lambda client: client.ask(words(5), answer), cache=Cache(file))
        assert reply.ok
        assert reply.source == "model"


def test_an_unusable_cache_file_only_costs_time(
    answer: Answer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "broken.sqlite").write_bytes(b"this is not a database, just a few bytes of text" * 100)
    for place in (tmp_path / "broken.sqlite", tmp_path, Path("/proc/nothing/answers.sqlite")):
        caplog.clear()
        replies = talk(Scripted(), lambda client: client.ask_many(questions(5, answer)), cache=Cache(place))
        assert all(reply.ok for reply in replies)
        assert len(caplog.records) == 1


def test_a_warm_cache_answers_thousands_per_second(answer: Answer, tmp_path: Path) -> None:
    async def work(client: Client) -> float:
        asked = questions(256, answer)
        await client.ask_many(asked)
        started = time.process_time()  # other tests may keep the machine busy
        for _ in range(4):
            await client.ask_many(asked)
        return (time.process_time() - started) / 1024

    assert talk(Scripted(latency=0), work, cache=Cache(tmp_path / "a.sqlite")) < 0.5e-3


def test_an_exhausted_budget_of_calls_stops_requests(answer: Answer) -> None:
    provider = Scripted()

    async def work(client: Client) -> None:
        replies = await client.ask_many(questions(20, answer))
        assert sum(reply.ok for reply in replies) == len(provider.asked) == 5
        assert client.ledger.failures == {"budget": 15}
        assert replies[-1].failure is not None
        assert replies[-1].failure.reason == "the budget of 5 calls is exhausted"

    talk(provider, work, budget=Budget(calls=5))


@pytest.mark.parametrize("budget", [Budget(tokens=2_000), Budget(money=0.002)])
def test_a_budget_of_tokens_or_money_is_never_overspent(budget: Budget, answer: Answer) -> None:
    provider = Scripted()  # 60 tokens per call, at a dollar per million

    async def work(client: Client) -> None:
        for _ in range(10):
            await client.ask_many(questions(20, answer))
        assert 1_000 < client.ledger.tokens <= 2_000
        assert client.ledger.money <= 0.002
        assert client.ledger.failures["budget"] > 0

    talk(provider, work, budget=budget)


def test_an_exhausted_budget_of_seconds_stops_requests(answer: Answer) -> None:
    provider = Scripted(latency=0.1)

    async def work(client: Client) -> None:
        replies = await client.ask_many(questions(800, answer))
        assert asyncio.get_running_loop().time() == pytest.approx(0.35)
        assert {str(reply.failure.kind) for reply in replies if reply.failure} == {"budget"}
        assert replies[0].ok
        assert replies[-1].failure is not None
        assert replies[-1].failure.kind == "budget"

    talk(provider, work, budget=Budget(seconds=0.35))


def test_the_breaker_opens_for_a_failing_provider_and_probes_it_later(
    answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    alive = [False]

    def script(number: int) -> str | ProviderError:
        good = json.dumps(GOOD)
        return good if alive[0] else ProviderError(FailureKind.TRANSPORT, "connection refused", provider_fault=True)

    provider = Scripted(script, latency=0)

    async def work(client: Client) -> None:
        for number in range(50):
            await client.ask(words(number), answer)
        assert len(provider.asked) == 3
        assert client.ledger.failures == {"transport": 3, "breaker": 47}
        await asyncio.sleep(0.25)
        await client.ask_many(questions(10, answer))
        assert len(provider.asked) == 4  # one probe
        alive[0] = True
        await asyncio.sleep(0.25)
        assert (await client.ask(words(1), answer)).ok
        assert all(reply.ok for reply in await client.ask_many(questions(10, answer)))

    talk(provider, work)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_bad_answers_do_not_open_the_breaker(answer: Answer) -> None:
    provider = Scripted(lambda number: "nonsense", latency=0)
    talk(provider, lambda client: client.ask_many(questions(30, answer)))
    assert len(provider.asked) == 30


def test_a_provider_that_raises_anything_is_a_transport_failure(answer: Answer) -> None:
    def script(number: int) -> str:
        raise RuntimeError("secret things")

    reply = talk(Scripted(script), lambda client: client.ask(words(), answer))
    assert reply.failure is not None
    assert reply.failure.kind == "transport"
    assert "secret" not in repr(reply)


def test_bad_input_from_a_provider_is_reported_and_stops_requests(answer: Answer) -> None:
    def script(number: int) -> str:
        raise BadInput("xllamacpp cannot load x.gguf; check that it is complete.")

    provider = Scripted(script)
    replies = talk(provider, lambda client: client.ask_many(questions(20, answer)), preset=ONE_BY_ONE)
    assert str(replies[0].failure) == "refused: xllamacpp cannot load x.gguf; check that it is complete."
    assert len(provider.asked) == 1


def test_a_long_rate_limit_is_logged_once_and_a_short_one_never(
    answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    def script(number: int) -> str | ProviderError:
        after = {0: 0.01, 5: 86_400.0}.get(number)
        limit = ProviderError(
            FailureKind.TRANSPORT, "HTTP 429", "rate_limit", retry=True, after=after, provider_fault=True
        )
        return limit if after and provider.asked.count(number) == 1 else json.dumps(GOOD)

    provider = Scripted(script, latency=0)
    replies = talk(provider, lambda client: client.ask_many(questions(20, answer)), preset=ONE_BY_ONE)
    assert [reply.ok for reply in replies] == [True] * 5 + [False] * 15
    assert [record.getMessage() for record in caplog.records] == ["pausing requests to scripted for 1 s: HTTP 429"]


def test_a_retry_after_of_a_day_pauses_no_longer_than_the_deadline(answer: Answer) -> None:
    def script(number: int) -> str | ProviderError:
        limit = ProviderError(
            FailureKind.TRANSPORT, "HTTP 429", "rate_limit", retry=True, after=99_999.0, provider_fault=True
        )
        return limit if number == 0 else json.dumps(GOOD)

    async def work(client: Client) -> list[bool]:
        found = []
        for number, pause in enumerate((0.0, 0.9, 0.2)):
            await asyncio.sleep(pause)
            found.append((await client.ask(words(number), answer)).ok)
        return found

    provider = Scripted(script, latency=0)
    assert talk(provider, work) == [False, False, True]
    assert provider.asked == [0, 2]


def test_the_stop_policy_raises_when_too_many_fail(answer: Answer) -> None:
    def script(number: int) -> str:
        return "nonsense" if number % 2 else json.dumps(GOOD)

    policy = FailurePolicy(failure_policy="stop", share=0.4, window=10)
    with pytest.raises(
        TooManyFailures, match="5 of the last 10 questions to the model failed, most recently: not_json"
    ):
        talk(Scripted(script), lambda client: client.ask_many(questions(10, answer)), policy=policy)
    for tolerant in (FailurePolicy(failure_policy="stop", share=0.6, window=10), FailurePolicy()):
        talk(Scripted(script), lambda client: client.ask_many(questions(10, answer)), policy=tolerant)


def test_backoff_doubles_up_to_a_limit_and_jitter_at_most_halves_it() -> None:
    limits = Limits(backoff=0.5, longest_backoff=8.0)
    assert [limits.wait(attempt, 1.0) for attempt in range(1, 8)] == [0.5, 1, 2, 4, 8, 8, 8]
    assert limits.wait(1, 0.0) == 0.25


def test_the_breaker_lets_one_probe_through_at_a_time() -> None:
    now = [0.0]
    breaker = Breaker(Limits(breaker_failures=1, breaker_rest=10), clock=lambda: now[0])
    assert breaker.failed(ProviderError(FailureKind.TRANSPORT, "gone", provider_fault=True))
    with pytest.raises(ProviderError, match="gone"):
        breaker.check()
    now[0] = 11.0
    breaker.check()
    with pytest.raises(ProviderError):
        breaker.check()
    breaker.succeeded()
    breaker.check()
