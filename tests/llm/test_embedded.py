"""The real embedded model: legal answers, a reused prefix, no call past its deadline."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from kibitz.advice.ask import Position, PositionAsker
from kibitz.games import get_game
from kibitz.llm.answers.answer import Answer
from kibitz.llm.answers.prompt import Prompt
from kibitz.llm.client.client import Client
from kibitz.llm.client.types import Question, Reply
from kibitz.llm.presets import Preset, read_presets
from kibitz.llm.providers import weights
from tests.advice.conftest import embedded as installed
from tests.llm.conftest import words

__all__ = ["installed"]
pytestmark = pytest.mark.usefixtures("installed")


def embedded(**limits: Any) -> Client:
    from kibitz.llm.providers.embedded import Embedded

    preset = read_presets()["embedded"]
    # one thread, because some tests measure processor time
    preset = preset.model_copy(update={"threads": 1, "limits": preset.limits.model_copy(update=limits)})
    return Client(preset, Embedded(preset))


def positions(count: int, seed: int) -> list[Question]:
    """Questions about random positions, some steps into the game."""
    game, prompt = get_game("deal_or_no_deal"), Prompt.read(max_history_turns=4)
    settings, random = game.options().settings(), np.random.default_rng(seed)
    new, step, legal = jax.jit(game.rules.new), jax.jit(game.rules.step), jax.jit(game.rules.legal, static_argnums=2)
    view, to_act = jax.jit(game.rules.view, static_argnums=2), jax.jit(game.rules.to_act)
    found: list[Question] = []
    while len(found) < count:
        state = new(settings, random.random(game.rules.new_uniforms, np.float32))
        history: list[Mapping[str, Any]] = []
        for _ in range(8):
            if not to_act(state).any():
                break
            seat = int(np.argmax(np.asarray(to_act(state))))
            masks = [np.asarray(mask) for mask in legal(settings, state, seat)]
            seen = jax.tree.map(np.asarray, view(settings, state, seat))
            if random.random() < 0.4:
                words_ = prompt.messages(game.words.prompt_variables(settings, seen, history))
                found.append(Question(words_, Answer.of(game.words.answer_fields(seen, tuple(masks)))))
            act = [random.choice(np.flatnonzero(mask)) for mask in masks]
            act[0] = random.choice([0, 1])  # keep the negotiation going
            history.append({"seat": seat, "act": act})
            chosen = tuple(np.int32(x) for x in act)
            state, *_ = step(settings, state, (chosen, chosen), np.zeros(game.rules.step_uniforms, np.float32))
    return found[:count]


def all_legal(asked: list[Question]) -> list[Reply]:
    async def talk() -> list[Reply]:
        client = embedded(deadline=600, timeout=600)  # a busy machine may take minutes
        replies = await client.ask_many(asked)
        assert client.ledger.as_dict()["failed"] == 0, client.ledger.as_dict()
        await client.close()
        return replies

    replies = asyncio.run(talk())
    for question, reply in zip(asked, replies, strict=True):
        assert question.answer.parse(reply.text) == reply.fields  # strict: complete and legal
        assert reply.fields is not None
        assert 0 <= reply.fields["confidence"] <= 1
    return replies


def test_every_answer_parses_and_is_legal() -> None:
    replies = all_legal(positions(2, seed=1))
    acts = {reply.fields["act_type"] for reply in replies if reply.fields}
    confidences = {reply.fields["confidence"] for reply in replies if reply.fields}
    assert len(confidences) > 1  # measured, not constant
    print("median", statistics.median(reply.latency for reply in replies), "acts", acts)


@pytest.mark.conformance
def test_ten_random_positions_all_parse_and_are_legal() -> None:
    all_legal(positions(10, seed=2))


@pytest.mark.conformance
def test_answers_written_choice_by_choice_equal_those_of_one_grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    """The taught model in both games; the fixed parts of an answer take no generation."""
    from kibitz.llm.providers import embedded as module

    weights.install_taught(lambda line: None)
    bodies: list[Any] = []
    generate = module._generate

    def counted(server: Any, body: Any, *rest: Any) -> Any:
        bodies.append(body)
        return generate(server, body, *rest)

    monkeypatch.setattr(module, "_generate", counted)
    for name in ("deal_or_no_deal", "cricket"):
        game = get_game(name)
        settings, chance = game.default_options.settings(), np.random.default_rng(7)
        new = jax.jit(lambda u, game=game, settings=settings: seen(game, settings, game.rules.new(settings, u)))
        with PositionAsker(game, "taught") as asker:
            for _ in range(3):
                bodies.clear()
                view, masks = jax.device_get(new(chance.random(game.rules.new_uniforms, np.float32)))
                one = Position(settings, view, masks, [])
                asked, (advice,) = asker.question(one), asker.ask([one])
                answer = asked.answer.without("confidence")
                start = {"role": "assistant", "content": answer.prefix}
                whole = {"messages": [*asked.messages, start], "grammar": answer.grammar(after_prefix=True)}
                sampling = {"temperature": 0.0, "top_p": 1.0, "seed": 0, "max_tokens": answer.max_chars}
                server = module._server(weights.locate(weights.TAUGHT), weights.TAUGHT_SHA256, *_loaded(module))
                made = generate(server, whole | sampling, time.monotonic() + 60, threading.Event())
                expected = answer.parse(answer.prefix + made.text)
                assert advice.reply.fields == expected | {"confidence": advice.confidence}
                assert all(body["max_tokens"] == 1 for body in bodies)
                assert len(bodies) < len(made.tokens) / 2


def seen(game: Any, settings: Any, state: Any) -> Any:
    return game.rules.view(settings, state, 0), game.rules.legal(settings, state, 0)


def _loaded(module: Any) -> tuple[int, int]:
    """Threads and context of the loaded model, so that it is not loaded again."""
    return next((threads, context) for sha256, threads, context in module._servers if sha256 == weights.TAUGHT_SHA256)


@pytest.mark.conformance
def test_a_known_prefix_halves_the_time() -> None:
    """In processor time, because other tests may keep the machine busy."""
    asked = positions(3, seed=3)

    async def times(known: bool) -> list[float]:
        client = embedded()
        taken = []
        for number, (messages, answer, _) in enumerate(asked if known else asked[1:]):
            text = messages[-1]["content"] if known else f"Question {number}. {messages[-1]['content']}"
            started = time.process_time()
            await client.ask([{"role": "user", "content": text}], answer)
            taken.append(time.process_time() - started)
        await client.close()
        return taken[1:] if known else taken  # the first one reads the prefix

    with_prefix, without = asyncio.run(times(True)), asyncio.run(times(False))
    ratio = statistics.median(with_prefix) / statistics.median(without)
    print(f"{statistics.median(with_prefix):.2f} s with, {statistics.median(without):.2f} s without: {ratio:.2f}")
    assert ratio <= 0.5


def test_an_answer_does_not_depend_on_the_questions_before_it() -> None:
    """The engine reads only what differs from its last question, in batches whose sizes differ therefore."""
    (whole, answer, _) = positions(1, seed=4)[0]
    text = whole[-1]["content"][-500:]
    messages = [{"role": "user", "content": text}]
    before = ["Something else.", text, text[:-40] + "?"]  # shares nothing; everything; all but the last tokens

    async def talk() -> list[Reply]:
        client = embedded()
        replies = []
        for other in before:
            await client.ask([{"role": "user", "content": other}], answer)
            replies.append(await client.ask(messages, answer))
        await client.close()
        return replies

    first, *others = asyncio.run(talk())
    assert first.source == "model" and first.fields is not None
    for reply in others:
        assert (reply.text, reply.fields, reply.likelihood) == (first.text, first.fields, first.likelihood)


def test_it_uses_every_core_only_while_nothing_else_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kibitz.llm.providers import embedded as module

    loadavg = tmp_path / "loadavg"
    monkeypatch.setattr(module, "LOADAVG", loadavg)
    monkeypatch.setattr(module, "usable_cores", lambda: 2)
    assert module._threads() == 1  # the system does not say what runs
    loadavg.write_text("7.93 4.02 2.11 1/346 4711\n")  # only the asking thread runs; the averages are of the past
    assert module._threads() == 2
    loadavg.write_text("0.00 0.00 0.00 2/346 4711\n")
    assert module._threads() == 1
    monkeypatch.setattr(module, "usable_cores", lambda: 1)
    assert module._threads() == 1
    monkeypatch.setattr(module, "usable_cores", lambda: 64)
    assert module._threads() == module.MAX_THREADS


@pytest.mark.conformance
def test_answers_are_the_same_with_one_and_with_two_threads(answer: Answer) -> None:
    from kibitz.llm.providers import embedded as module

    async def talk(threads: int) -> list[Any]:
        preset = read_presets()["embedded"].model_copy(update={"threads": threads})
        client = Client(preset, module.Embedded(preset))
        replies = [await client.ask(words(), answer), await client.ask([*words(), *words()], answer)]
        await client.close()
        assert any(key[1] == threads for key in module._servers)  # the preset's number counts
        return [(reply.text, reply.likelihood) for reply in replies]

    assert asyncio.run(talk(2)) == asyncio.run(talk(1))


def test_a_deadline_interrupts_generation(answer: Answer) -> None:
    async def interrupt() -> tuple[Reply, float, Reply]:
        client = embedded(deadline=0.15, timeout=0.15)
        long = [{"role": "user", "content": "books, hats and balls " * 400}]
        started = time.process_time()  # other tests may keep the machine busy
        late = await client.ask(long, answer)
        seconds = time.process_time() - started
        await client.close()
        unhurried = embedded()
        later = await unhurried.ask(words(), answer)
        await unhurried.close()
        return late, seconds, later

    late, seconds, later = asyncio.run(interrupt())
    assert late.failure is not None
    assert (late.failure.kind, late.failure.detail) == ("transport", "deadline")
    assert seconds < 3, "reading all of it takes about twelve"
    assert later.ok


def test_a_prompt_beyond_the_context_is_refused(answer: Answer) -> None:
    async def talk() -> Reply:
        client = embedded()
        reply = await client.ask([{"role": "user", "content": "books and hats " * 4_000}], answer)
        await client.close()
        return reply

    reply = asyncio.run(talk())
    assert reply.failure is not None
    assert reply.failure.kind == "refused"
    assert "context" in reply.failure.reason


def test_the_installed_weights_are_identified_without_reading_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(file: Path) -> str:
        raise AssertionError(f"{file} is read")

    monkeypatch.setattr(weights, "sha256", read)
    assert weights.identity(weights.locate()) == weights.SHA256


def test_a_file_that_is_not_a_model_is_refused(tmp_path: Any, answer: Answer) -> None:
    from kibitz.llm.providers.embedded import Embedded

    (tmp_path / "x.gguf").write_bytes(b"not a model")
    preset = Preset(provider="embedded", model=str(tmp_path / "x.gguf"))

    async def talk() -> Reply:
        client = Client(preset, Embedded(preset))
        reply = await client.ask(words(), answer)
        await client.close()
        return reply

    assert "check that it is a complete GGUF file" in str(asyncio.run(talk()).failure)
