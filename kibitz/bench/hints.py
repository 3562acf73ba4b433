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

from kibitz.advice.batch import HintContext, Hints, HintSource, LLMHints
from kibitz.llm.answers.answer import Answer
from kibitz.llm.answers.prompt import Prompt
from kibitz.llm.client.cache import Cache
from kibitz.llm.client.client import Client
from kibitz.llm.client.limits import Limits
from kibitz.llm.client.types import Completion, Messages
from kibitz.llm.client.usage import UsageLedger
from kibitz.llm.presets import Preset
from kibitz.train.config import Job
from kibitz.train.llm_hints.loop import HostHintLoop
from kibitz.train.phase import TrainingPhase, build

ENV_ID = "DealOrNoDialog-v0"
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

    about = "hints"

    def __init__(self, phase: TrainingPhase, prompt: Prompt, silent: bool) -> None:
        self.ledgers = [UsageLedger() for _ in range(phase.job.seeds)]
        self.prompt, self.silent, self.key = prompt, silent, jax.random.key(0)
        bot, settings, heads = phase.game.bot("random"), phase.settings, len(phase.game.heads)

        def one(view: Any, masks: Any, u: Any) -> Any:
            return jnp.stack(bot.choose(settings, bot.start(settings, 0, u), view, masks, u)[1])

        def draw(context: Any, key: Any) -> Any:
            u = jax.random.uniform(key, (*context.length.shape, bot.uniforms))
            return jnp.moveaxis(jax.vmap(jax.vmap(one))(context.view, context.masks, u), -1, 0)

        self.draw, self.heads = jax.jit(draw), heads

    def hints(self, due: NDArray[np.bool_], keys: NDArray[np.uint32], context: Callable[[], HintContext]) -> Hints:
        if self.silent:
            return Hints(np.zeros((self.heads, *due.shape), np.int32), np.zeros(due.shape, np.float32), due & False)
        self.key, key = jax.random.split(self.key)
        return Hints(np.where(due, self.draw(context(), key), 0), due.astype(np.float32), due)

    def close(self) -> None:
        pass


def run(
    updates: int, repeats: int, changes: Mapping[str, Any], progress: Callable[[int], None] = lambda count: None
) -> dict[str, Any]:
    """Medians of `repeats` rounds; each round times all variants."""
    values = {"env": {"id": ENV_ID}, **changes, "train": {**SIZES, **changes.get("train", {})}}
    job = Job.read(values)
    phase = build(job, tuple(jax.local_devices()[:1]))
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "answers.sqlite"
        phase = phase.advised_by(llm_hints(phase, cache))
        assert phase.host is not None and phase.source is not None
        prompt = phase.source.prompt
        phase.host.advance(phase.begin(), phase.settings, 0)  # compiles
        cold = timed(phase, llm_hints(phase, cache), updates)
        progress(1)
        makers: dict[str, Callable[[], Any]] = {
            "silent": lambda: HostHints(phase, prompt, True),
            "random": lambda: HostHints(phase, prompt, False),
            "llm": lambda: llm_hints(phase, cache),
        }
        timed(phase, makers["random"](), 1)  # compiles
        rounds: dict[str, list[float]] = {name: [] for name in makers}
        for _ in range(repeats):
            for name, make in makers.items():
                rounds[name].append(timed(phase, make(), updates))
                progress(1)
        calls = _throughput(phase)
        progress(1)
    seconds = {name: statistics.median(times) for name, times in rounds.items()}
    ratios = {
        name: statistics.median(llm / other for llm, other in zip(rounds["llm"], rounds[name], strict=True))
        for name in ("silent", "random")
    }
    return {
        "games": phase.config.num_envs,
        "steps": updates * phase.config.batch,
        "seconds_random_hints": round(seconds["random"], 4),
        "seconds_warm_llm_hints": round(seconds["llm"], 4),
        "seconds_nobody_answers": round(seconds["silent"], 4),
        "seconds_cold_llm_hints": round(cold, 4),
        "llm_to_random": round(ratios["random"], 4),
        "llm_to_nobody": round(ratios["silent"], 4),
        **calls,
        "device": str(jax.devices()[0]),
    }


def llm_hints(phase: TrainingPhase, cache: Path | None, latency: float = 0.0) -> LLMHints:
    """The complete path of a language model's hint, with a stand-in for the model."""
    limits = Limits(concurrency=CONCURRENCY)
    preset = Preset(provider="openai", model="stand-in", base_url="http://localhost/v1", limits=limits)

    def connect(preset: Preset, *, cache: Path | None, **settings: Any) -> Client:
        return Client(preset, StandIn(latency), cache=None if cache is None else Cache(cache), **settings)

    prompt = Prompt.read(phase.game.words.prompt)
    return LLMHints(phase.game, phase.settings, preset, prompt, phase.job.seeds, cache=cache, connect=connect)


def timed(phase: TrainingPhase, source: HintSource, updates: int) -> float:
    """Seconds for `updates` updates from the same start, including opening and closing the source."""
    host = phase.host
    assert host is not None
    learner = phase.begin()
    host.source = source
    started = time.perf_counter()
    learner, _ = host.advance(learner, phase.settings, updates)
    jax.block_until_ready(learner.weights)
    host.close()
    return time.perf_counter() - started


def _throughput(phase: TrainingPhase) -> dict[str, float]:
    """One question of every game to a slow model, compared with the time that its latency imposes."""
    host = phase.host
    assert isinstance(host, HostHintLoop)
    best = float("inf")
    for _ in range(3):
        host.source = source = llm_hints(phase, None, LATENCY_SECONDS)
        source.open()
        games = phase.begin().games
        started = time.perf_counter()
        host.attach_hints(games, phase.settings)
        best = min(best, time.perf_counter() - started)
        calls = source.ledger.calls
        host.close()
    bound = -(-calls // CONCURRENCY) * LATENCY_SECONDS
    return {"seconds_of_calls": round(best, 4), "latency_bound": round(bound, 4), "lost": round(best / bound - 1, 4)}
