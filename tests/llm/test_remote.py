"""Misbehaving servers over real HTTP: the right kind of failure, never past the deadline."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from kibitz.llm.answers.answer import Answer
from kibitz.llm.client.blocking import BlockingClient
from kibitz.llm.client.cache import Cache
from kibitz.llm.client.client import Client, make_provider
from kibitz.llm.client.limits import Budget
from kibitz.llm.presets import Preset
from kibitz.llm.providers import remote as remote_module
from kibitz.llm.providers.remote import retry_after
from tests.llm.conftest import QUICK, ask, questions, words
from tests.llm.fake_server import GOOD, RETRY_DATE, FakeServer

Remote = Callable[..., Preset]
SLACK = 5.0  # seconds that a busy machine may add; the faults guarded against take much longer


CHATTY = ["prose", "fences", "thinking", "megabyte-of-prose", "control", "markup"]


@pytest.mark.parametrize(
    "model", ["good", "no-usage", "invalid-usage", "cut-then-good", "error-object-429-then-good", *CHATTY]
)
def test_a_legal_answer_is_found(model: str, remote: Remote, answer: Answer) -> None:
    (reply,), client = ask(remote(model, lenient=model in CHATTY), answer)
    assert reply.ok
    assert reply.fields == {**GOOD, "act_type": 1 if model == "thinking" else 0}
    assert client.ledger.answered == 1
    assert len(reply.text) <= 2_000
    assert reply.text.isprintable()


@pytest.mark.parametrize("model", CHATTY)
def test_an_answer_with_other_text_is_refused_and_counted(model: str, remote: Remote, answer: Answer) -> None:
    (reply,), client = ask(remote(model), answer)
    assert reply.failure is not None
    assert (reply.failure.kind, client.ledger.failures["not_json"]) == ("not_json", 1)
    assert "is not one JSON object on one line" in reply.failure.reason


FAILURES = {
    "rate-limit-400s": ("transport", "rate_limit", 1),
    "rate-limit-99999s": ("transport", "rate_limit", 1),
    "error-object": ("transport", "error_object", 1),
    "error-object-502": ("transport", "error_object", 3),
    "error-in-choice": ("transport", "error_object", 1),
    "out-of-money": ("refused", "http_429", 1),
    "always-500": ("transport", "http_500", 3),
    "hang": ("transport", None, 2),
    "slow-drip": ("transport", None, 2),
    "cut": ("transport", "connection", 3),
    "cut-stream": ("transport", "connection", 3),
    "nothing": ("transport", "connection", 3),
    "html": ("transport", "protocol", 1),
    "broken-body": ("transport", "protocol", 1),
    "array-body": ("transport", "protocol", 1),
    "null-body": ("transport", "protocol", 1),
    "redirect": ("transport", "http_302", 1),
    "too-large": ("transport", "protocol", 1),
    "no-choices": ("empty", "empty", 1),
    "null-choice": ("empty", "empty", 1),
    "null-content": ("empty", "empty", 1),
    "blank": ("empty", "empty", 1),
    "length-empty": ("empty", "length", 1),
    "broken-json": ("not_json", "not_json", 1),
    "no-json": ("not_json", "not_json", 1),
    "nan": ("not_json", "not_json", 1),
    "huge-number": ("not_json", "not_json", 1),
    "length": ("not_json", "length", 1),
    "length-cut": ("not_json", "length", 1),
    "schema-broken": ("not_json", "http_400", 1),
    "megabyte": ("not_json", "not_json", 1),
    "deep": ("not_json", "not_json", 1),
    "repeated-key": ("wrong_shape", "wrong_shape", 1),
    "boolean": ("wrong_shape", "wrong_shape", 1),
    "boolean-inside": ("wrong_shape", "wrong_shape", 1),
    "float-act": ("wrong_shape", "wrong_shape", 1),
    "extra-key": ("wrong_shape", "wrong_shape", 1),
    "missing-key": ("wrong_shape", "wrong_shape", 1),
    "short-array": ("wrong_shape", "wrong_shape", 1),
    "markup-in-value": ("wrong_shape", "wrong_shape", 1),
    "schema-form": ("wrong_shape", "wrong_shape", 1),
    "illegal-act": ("illegal", "illegal", 1),
    "no-such-act": ("illegal", "illegal", 1),
    "above-cap": ("illegal", "illegal", 1),
    "negative": ("illegal", "illegal", 1),
    "too-sure": ("illegal", "illegal", 1),
    "refusal": ("refused", "refused", 1),
    "filtered": ("refused", "refused", 1),
    "401": ("refused", "http_401", 1),
    "404": ("refused", "http_404", 1),
    "400": ("refused", "http_400", 1),
}


@pytest.mark.parametrize("model", FAILURES)
def test_a_bad_answer_is_counted_by_kind_within_the_deadline(
    model: str, remote: Remote, answer: Answer, server: FakeServer
) -> None:
    kind, detail, requests = FAILURES[model]
    deadline, timeout = (3.0, 1.6) if model in ("hang", "slow-drip") else (QUICK["deadline"], QUICK["timeout"])
    started = time.monotonic()
    (reply,), client = ask(remote(model, {"deadline": deadline, "timeout": timeout}), answer)
    assert time.monotonic() - started < deadline + SLACK
    assert reply.latency < deadline + SLACK
    assert reply.fields is None
    assert reply.failure is not None
    assert reply.failure.kind == kind, reply.failure
    assert detail is None or reply.failure.detail == detail
    assert client.ledger.as_dict()["failures"][kind] == 1
    assert client.ledger.as_dict()["failed"] == 1
    assert reply.attempts == len(server.of(model)) == requests
    assert len(reply.failure.reason) < 500
    assert reply.failure.reason.isprintable()


def test_retry_after_seconds_is_respected(remote: Remote, answer: Answer, server: FakeServer) -> None:
    (reply,), _ = ask(remote("rate-limit-seconds"), answer)
    first, second = server.of("rate-limit-seconds")
    assert reply.ok
    assert reply.attempts == 2
    assert 0.4 <= second.at - first.at < 0.4 + 2 * SLACK


def test_retry_after_a_date_is_respected(
    remote: Remote, answer: Answer, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_module, "time", SimpleNamespace(time=lambda: RETRY_DATE - 0.4))
    (reply,), _ = ask(remote("rate-limit-date"), answer)
    first, second = server.of("rate-limit-date")
    assert reply.ok
    assert 0.4 <= second.at - first.at < 0.4 + 2 * SLACK


def test_retry_after_beyond_the_deadline_fails_all_calls_at_once(
    remote: Remote, answer: Answer, server: FakeServer
) -> None:
    started = time.monotonic()
    replies, client = ask(remote("rate-limit-400s", {"deadline": 30.0}), answer, count=20)
    assert time.monotonic() - started < 1.0 + 2 * SLACK
    assert all(reply.failure and reply.failure.kind == "transport" for reply in replies)
    assert len(server.of("rate-limit-400s")) == 1  # the other calls know without asking
    assert client.ledger.calls == 1


def test_without_retry_after_the_wait_doubles(remote: Remote, answer: Answer, server: FakeServer) -> None:
    preset = remote("rate-limit-bare", {"backoff": 0.1, "attempts": 4})
    (reply,), _ = ask(preset, answer, draw=lambda: 1.0)
    first, second, third = (request.at for request in server.of("rate-limit-bare"))
    assert reply.ok
    assert 0.1 <= second - first < 0.1 + SLACK
    assert 0.2 <= third - second < 0.2 + SLACK


def test_an_invalid_retry_after_is_ignored(remote: Remote, answer: Answer) -> None:
    (reply,), _ = ask(remote("rate-limit-invalid"), answer)
    assert reply.ok
    assert reply.attempts == 2


def test_server_errors_are_retried(remote: Remote, answer: Answer) -> None:
    (reply,), client = ask(remote("500-then-good"), answer)
    assert reply.ok
    assert reply.attempts == client.ledger.calls == 3
    assert client.ledger.as_dict()["failed"] == 0


def test_a_refused_connection_is_a_transport_failure(answer: Answer) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    preset = Preset.read(
        {"provider": "openai", "base_url": f"http://127.0.0.1:{port}/v1", "model": "x", "limits": QUICK}
    )
    started = time.monotonic()
    (reply,), _ = ask(preset, answer)
    assert time.monotonic() - started < 1.0 + 2 * SLACK
    assert reply.failure is not None
    assert (reply.failure.kind, reply.attempts) == ("transport", 3)


def test_an_unknown_host_is_a_transport_failure(answer: Answer) -> None:
    preset = Preset.read({"provider": "openai", "base_url": "http://nowhere.invalid/v1", "model": "x", "limits": QUICK})
    (reply,), _ = ask(preset, answer)
    assert reply.failure is not None
    assert reply.failure.kind == "transport"


def test_no_concurrent_call_outlives_its_deadline(remote: Remote, answer: Answer) -> None:
    preset = remote("hang", {"deadline": 0.6, "timeout": 0.6, "attempts": 1, "concurrency": 64})

    async def concurrent() -> list[float]:
        client = Client(preset, make_provider(preset))
        replies = await client.ask_many(questions(64, answer))
        await client.close()
        assert all(reply.failure and reply.failure.kind == "transport" for reply in replies)
        return [reply.latency for reply in replies]

    started = time.monotonic()
    assert max(asyncio.run(concurrent())) < 0.6 + SLACK
    assert time.monotonic() - started < 0.6 + 2 * SLACK


def test_ask_many_accepts_a_time_limit_of_its_own(remote: Remote, answer: Answer) -> None:
    preset = remote("slow", {"concurrency": 1})  # 0.1 s each, one at a time

    async def concurrent() -> list[bool]:
        client = Client(preset, make_provider(preset))
        replies = await client.ask_many(questions(40, answer), within=1.95)
        await client.close()
        return [reply.ok for reply in replies]

    answered = asyncio.run(concurrent())
    assert 1 <= sum(answered) < 20
    assert answered == sorted(answered, reverse=True)


def test_a_bad_key_is_sent_once_and_logged_once(
    remote: Remote, answer: Answer, server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    replies, client = ask(remote("401"), answer, count=200)
    assert len(server.of("401")) == 1
    assert client.ledger.failures == {"refused": 1, "breaker": 199}
    assert [record.levelno for record in caplog.records if record.name == "kibitz.llm"] == [logging.WARNING]
    assert replies[-1].failure is not None
    assert "401" in replies[-1].failure.reason


def test_no_log_error_or_cache_contains_a_key(
    remote: Remote,
    answer: Answer,
    server: FakeServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    key = "sk-very-secret-0123456789"
    monkeypatch.setenv("FAKE_KEY", key)
    caplog.set_level(logging.DEBUG)
    seen = []
    for model in ("401", "good", "html", "cut", "hang"):
        preset = remote(model, {"attempts": 1, "timeout": 0.2 if model == "hang" else 10.0}, key_env="FAKE_KEY")
        cache = Cache(tmp_path / "answers.sqlite")
        (reply,), client = ask(preset, answer, cache=cache)
        seen += [repr(reply), repr(client.ledger), repr(preset), str(reply.failure), repr(client.provider)]
    assert server.of("good")[0].headers["authorization"] == f"Bearer {key}"  # the key was sent
    files = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert key not in "".join(seen)
    assert key not in caplog.text
    assert key.encode() not in files
    assert b"confidence" in files


def test_a_key_that_a_gateway_echoes_with_http_200_is_removed(
    remote: Remote, answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_KEY", "sk-very-secret-0123456789")
    preset = remote("leaky", key_env="FAKE_KEY", lenient=True)
    replies, _ = ask(preset, answer, count=3, cache=Cache(tmp_path / "answers.sqlite"))
    files = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert [reply.ok for reply in replies] == [True, False, False]
    assert "sk-very" not in repr(replies)
    assert b"sk-very" not in files
    assert b"confidence" in files


def test_a_placeholder_key_may_occur_in_an_answer(
    remote: Remote, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_KEY", "0")
    (reply,), _ = ask(remote("good", key_env="FAKE_KEY"), answer)
    assert reply.fields == GOOD


def test_a_key_with_a_line_break_is_refused_and_not_shown(
    remote: Remote, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_KEY", "sk-secret\nX-Evil: 1")
    (reply,), _ = ask(remote("good", key_env="FAKE_KEY"), answer)
    assert reply.failure is not None
    assert reply.failure.kind == "refused"
    assert "secret" not in repr(reply)


def test_remote_calls_demand_one_line_of_json(remote: Remote, answer: Answer, server: FakeServer) -> None:
    ask(remote("good"), answer)
    system, user = server.of("good")[0].body["messages"]
    assert system["role"] == "system"
    assert "one JSON object on a single line" in system["content"]
    assert "act_type, oA, confidence" in system["content"]
    assert user == words()[0]


def test_a_schema_contains_only_enums_and_its_flat_answer_is_accepted(
    remote: Remote, answer: Answer, server: FakeServer
) -> None:
    for model in ("schema-form", "good"):  # a server may ignore the schema and follow the prompt
        (reply,), _ = ask(remote(model, structure="schema"), answer)
        assert reply.fields == GOOD
    sent = server.of("good")[0].body["response_format"]["json_schema"]["schema"]
    assert sent["properties"]["oA_1"] == {"type": "integer", "enum": [0, 1, 2]}
    assert sent["required"] == list(sent["properties"]) == ["act_type", "oA_0", "oA_1", "oA_2", "confidence"]


def test_each_server_gets_the_grammar_in_its_own_field(remote: Remote, answer: Answer, server: FakeServer) -> None:
    ask(remote("good", structure="vllm"), answer)
    assert server.of("good")[0].body["structured_outputs"] == {"grammar": answer.grammar()}
    ask(remote("good", structure="llamacpp", extra={"top_k": 5}), answer)
    body = server.of("good")[0].body
    assert body["grammar"] == answer.grammar()
    assert body["top_k"] == 5


def test_tokens_and_money_are_counted(remote: Remote, answer: Answer) -> None:
    (reply,), client = ask(remote("good", price={"prompt": 1.0, "completion": 10.0}), answer)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (300, 20)
    assert reply.usage.money == pytest.approx(300e-6 + 200e-6)
    assert client.ledger.money == pytest.approx(reply.usage.money)


@pytest.mark.parametrize(
    ("model", "completions"),
    [("illegal-act", 1), ("no-json", 1), ("boolean", 1), ("blank", 1), ("length-cut", 1), ("refusal", 1),
     ("filtered", 1), ("error-object", 1), ("error-object-502", 3), ("error-in-choice", 1), ("paid-500-then-good", 3)],
)  # fmt: skip
def test_tokens_of_failed_answers_and_attempts_are_counted(
    model: str, completions: int, remote: Remote, answer: Answer
) -> None:
    (reply,), client = ask(remote(model, price={"prompt": 1.0, "completion": 10.0}), answer)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (300 * completions, 20 * completions)
    assert client.ledger.tokens == reply.usage.tokens
    assert client.ledger.money == pytest.approx(reply.usage.money) == pytest.approx(500e-6 * completions)


def test_a_budget_of_tokens_includes_failed_attempts(remote: Remote, answer: Answer) -> None:
    budget = Budget(tokens=700)  # two attempts of 320 tokens, but not a third
    (reply,), client = ask(remote("error-object-502", sampling={"max_tokens": 20}), answer, budget=budget)
    assert reply.attempts == 2
    assert client.ledger.tokens == 640


def test_missing_token_counts_are_estimated(remote: Remote, answer: Answer) -> None:
    (reply,), _ = ask(remote("no-usage"), answer)
    assert reply.usage.prompt_tokens > 0
    assert reply.usage.completion_tokens > 0


def test_connections_are_reused(remote: Remote, answer: Answer) -> None:
    preset = remote("good")

    async def talk() -> int:
        client = Client(preset, make_provider(preset))
        for number in range(5):
            assert (await client.ask(words(number), answer)).ok
        kept = len(client.provider.http.idle)  # type: ignore[attr-defined]
        await client.close()
        return kept

    assert asyncio.run(talk()) == 1


def test_the_blocking_client_asks_without_an_event_loop(remote: Remote, answer: Answer) -> None:
    preset = remote("echo")
    with BlockingClient(lambda: Client(preset, make_provider(preset))) as client:
        assert client.ask(words(7), answer).fields == {**GOOD, "confidence": 0.007}
        assert len(client.ask_many(questions(10, answer))) == 10


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 40.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:10 GMT"}, 0.0),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_every_format(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, now=60.0) == seconds
