"""`kibitz bench hints`: the overhead of a language model's hints in a run whose answers are all cached.

It times the same host-stepped training with random hints and with an LLM's hints from a warm cache. A stand-in
model answers at once with a legal act, so the figures include everything except a model.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kibitz.advice.batch import COLUMNS, Hints, LLMHints, Looked, Source
from kibitz.llm.answers.answer import Answer
from kibitz.llm.answers.prompt import Prompt
from kibitz.llm.client.cache import Cache
from kibitz.llm.client.client import Client
from kibitz.llm.client.limits import Limits
from kibitz.llm.client.types import Completion, Messages
from kibitz.llm.presets import Preset
from kibitz.train.config import Job
from kibitz.train.program import Program, build

SIZES = {"num_envs": 256, "rollout": 32, "minibatch": 2048, "epochs": 4, "num_train_steps": 10**9}
LATENCY_SECONDS, CONCURRENCY = 0.1, 64


class StandIn:
    """Answers with the first legal values, after `latency` seconds."""

    name = "stand-in"
    max_concurrent: int | None = None
    has_logprobs = False

    def __init__(self, latency: float) -> None:
        self.latency = latency

    def request(self, messages: Messages, answer: Answer) -> Mapping[str, Any]:
        return {"model": self.name, "messages": list(messages)}

    async def ask(self, request: Mapping[str, Any], answer: Answer, seconds: float) -> Completion:
        await asyncio.sleep(self.latency)
        first = {f.name: [values[0] for values in f.choices] if f.array else f.choices[0][0] for f in answer.fields}
        return Completion(answer.write(first), 300, 20)

    async def close(self) -> None:
        pass


class HostHints:
    """Hints made on the host without a model: from the game's random bot, or none."""

    def __init__(self, program: Program, prompt: Prompt, silent: bool) -> None:
        self.counts = np.zeros((len(COLUMNS), program.job.seeds))
        self.prompt, self.silent, self.key = prompt, silent, jax.random.key(0)
        bot, settings, heads = program.game.bot("random"), program.settings, len(program.game.heads)

        def one(view: Any, masks: Any, u: Any) -> Any:
            return jnp.stack(bot.choose(settings, bot.start(settings, 0, u), view, masks, u)[1])

        def draw(look: Any, key: Any) -> Any:
            u = jax.random.uniform(key, (*look.length.shape, bot.uniforms))
            return jnp.moveaxis(jax.vmap(jax.vmap(one))(look.view, look.masks, u), -1, 0)

        self.draw, self.heads = jax.jit(draw), heads

    def hints(self, due: NDArray[np.bool_], places: NDArray[np.uint32], look: Callable[[], Looked]) -> Hints:
        if self.silent:
            return Hints(np.zeros((self.heads, *due.shape), np.int32), np.zeros(due.shape, np.float32), due & False)
        self.key, key = jax.random.split(self.key)
        return Hints(np.where(due, self.draw(look(), key), 0), due.astype(np.float32), due)

    def book(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass


def run(
    updates: int, repeats: int, changes: Mapping[str, Any], progress: Callable[[int], None] = lambda count: None
) -> dict[str, Any]:
    """Medians of `repeats` rounds; each round times all variants."""
    job = Job.read(
        {"train": {**SIZES, **changes.get("train", {})}, **{k: v for k, v in changes.items() if k != "train"}}
    )
    program = build(job, tuple(jax.local_devices()[:1]))
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "answers.sqlite"
        program = program.advised_by(llm_hints(program, cache))
        assert program.host is not None and program.source is not None
        prompt = program.source.prompt
        program.host.advance(program.begin(), program.settings, 0)  # compiles
        cold = timed(program, llm_hints(program, cache), updates)
        progress(1)
        makers: dict[str, Callable[[], Any]] = {
            "silent": lambda: HostHints(program, prompt, True),
            "random": lambda: HostHints(program, prompt, False),
            "llm": lambda: llm_hints(program, cache),
        }
        timed(program, makers["random"](), 1)  # compiles
        rounds: dict[str, list[float]] = {name: [] for name in makers}
        for _ in range(repeats):
            for name, make in makers.items():
                rounds[name].append(timed(program, make(), updates))
                progress(1)
        calls = throughput(program)
        progress(1)
    seconds = {name: statistics.median(times) for name, times in rounds.items()}
    ratios = {
        name: statistics.median(llm / other for llm, other in zip(rounds["llm"], rounds[name], strict=True))
        for name in ("silent", "random")
    }
    return {
        "games": program.config.num_envs,
        "steps": updates * program.config.batch,
        "seconds_random_hints": round(seconds["random"], 4),
        "seconds_warm_llm_hints": round(seconds["llm"], 4),
        "seconds_nobody_answers": round(seconds["silent"], 4),
        "seconds_cold_llm_hints": round(cold, 4),
        "llm_to_random": round(ratios["random"], 4),
        "llm_to_nobody": round(ratios["silent"], 4),
        **calls,
        "device": str(jax.devices()[0]),
    }


def llm_hints(program: Program, cache: Path | None, latency: float = 0.0) -> LLMHints:
    """The complete path of a language model's hint, with a stand-in for the model."""
    limits = Limits(concurrency=CONCURRENCY)
    preset = Preset(provider="openai", model="stand-in", base_url="http://localhost/v1", limits=limits)

    def connect(preset: Preset, *, cache: Path | None, **settings: Any) -> Client:
        return Client(preset, StandIn(latency), cache=None if cache is None else Cache(cache), **settings)

    prompt = Prompt.read(program.game.words.prompt)
    return LLMHints(program.game, program.settings, preset, prompt, program.job.seeds, cache=cache, connect=connect)


def timed(program: Program, source: Source, updates: int) -> float:
    """Seconds for `updates` updates from the same start, including opening and closing the source."""
    host = program.host
    assert host is not None
    learner = program.begin()
    host.source = source
    started = time.perf_counter()
    learner, _ = host.advance(learner, program.settings, updates)
    jax.block_until_ready(learner.weights)
    host.close()
    return time.perf_counter() - started


def throughput(program: Program) -> dict[str, float]:
    """One question of every game to a slow model, compared with the time that its latency imposes."""
    host = program.host
    assert host is not None
    best = float("inf")
    for _ in range(3):
        host.source = source = llm_hints(program, None, LATENCY_SECONDS)
        source.open()
        games = program.begin().games
        started = time.perf_counter()
        host.heed(games, program.settings)
        best = min(best, time.perf_counter() - started)
        calls = source.book()["calls"]
        host.close()
    bound = -(-calls // CONCURRENCY) * LATENCY_SECONDS
    return {"seconds_of_calls": round(best, 4), "latency_bound": round(bound, 4), "lost": round(best / bound - 1, 4)}
