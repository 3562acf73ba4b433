"""A small model inside the process, without network or key: xllamacpp runs a GGUF file on the CPU.

The model generates a token only where it can choose, and a grammar keeps each choice legal; log-probabilities give the
confidence. The engine keeps the last question and answer it has read, so prompts should begin with constant text.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from kibitz.core.errors import BadInput
from kibitz.core.play.thinking import HEAR
from kibitz.core.work.cores import usable_cores
from kibitz.llm.answers.answer import Answer
from kibitz.llm.answers.stepwise import write
from kibitz.llm.client.types import Completion, FailureKind, Messages, ProviderError, Token, clean, transport_error
from kibitz.llm.presets import Preset
from kibitz.llm.providers import weights

MAX_THREADS = 8  # more do not help a model of this size
LOADAVG = Path("/proc/loadavg")  # Linux; its fourth field is running/existing threads of all processes
GLANCES, GLANCE_SECONDS = 3, 0.001  # a thread that runs in all of them is busy; others only woke up
OTHER_START = "-"  # no answer starts like this
TOP_LOGPROBS = 40  # alternatives per token; legal values are few


class Embedded:
    """One model, one question at a time: concurrent questions would only share the same cores."""

    max_concurrent: int | None = 1
    has_logprobs = True

    def __init__(self, preset: Preset) -> None:
        self.preset = preset
        self.file = weights.locate(preset.model)
        self.name = f"embedded:{self.file.stem}"
        self.sha256 = weights.identity(self.file)
        self.worker = ThreadPoolExecutor(1, thread_name_prefix="kibitz-embedded")

    def request(self, messages: Messages, answer: Answer) -> Mapping[str, Any]:
        sampling = self.preset.sampling
        return {
            "model": self.sha256,  # not the name: answers of other weights must not be reused
            "messages": list(messages),
            "start": answer.prefix,
            "temperature": 0.0 if sampling.temperature is None else sampling.temperature,
            "top_p": sampling.top_p or 1.0,
            "seed": sampling.seed or 0,
        }

    async def ask(self, request: Mapping[str, Any], answer: Answer, seconds: float) -> Completion:
        cancelled = threading.Event()
        work = (request, answer, time.monotonic() + seconds, cancelled, HEAR.get())
        try:
            return await asyncio.get_running_loop().run_in_executor(self.worker, self._answer, *work)
        except asyncio.CancelledError:
            cancelled.set()  # the worker stops at the next token
            raise

    async def close(self) -> None:
        self.worker.shutdown(wait=False, cancel_futures=True)

    def _answer(
        self,
        request: Mapping[str, Any],
        answer: Answer,
        deadline: float,
        cancelled: threading.Event,
        hear: Callable[[str], None] | None,
    ) -> Completion:
        threads = self.preset.threads or _threads()
        server = _server(self.file, self.sha256, threads, self.preset.context)
        sampling = {name: request[name] for name in ("temperature", "top_p", "seed")}
        tokens: list[Token] = []
        prompt_tokens = 0

        def generate(start: str, grammar: str, max_tokens: int = 1) -> _Generated:
            """Continue an answer. The engine keeps what it has read, so it reads only the new part of `start`."""
            nonlocal prompt_tokens
            messages = [*request["messages"], {"role": "assistant", "content": start}]
            seed = request["seed"] + len(tokens)  # with a temperature, each choice needs chance of its own
            body = {**sampling, "seed": seed, "messages": messages, "grammar": grammar, "max_tokens": max_tokens}
            made = _generate(server, body, deadline, cancelled)
            if not tokens and made.read == 1:  # the last question again: one token is computed unlike those of a batch
                forget = [*request["messages"], {"role": "assistant", "content": OTHER_START}]
                _generate(server, {**body, "messages": forget, "grammar": ""}, deadline, cancelled)
                made = _generate(server, body, deadline, cancelled)
            if made.end is None:
                raise self._error(made.last, deadline)
            tokens.extend(one._replace(start=len(start) if i == 0 else None) for i, one in enumerate(made.tokens))
            prompt_tokens = prompt_tokens or made.prompt_tokens
            if hear is not None:
                hear(start + made.text)
            return made

        truncated = False
        if all(field.choices for field in answer.fields):
            text = write(answer, lambda start, grammar: generate(start, grammar).text)
        else:  # a token has at least one character, so no answer is truncated
            made = generate(answer.prefix, answer.grammar(after_prefix=True), answer.max_chars)
            text, truncated = answer.prefix + made.text, made.end == "length"
        if not tokens:  # an answer without any choice
            return Completion(text, 0, 0)
        return Completion(text, prompt_tokens, len(tokens), truncated=truncated, tokens=tokens)

    def _error(self, last: Mapping[str, Any], deadline: float) -> ProviderError:
        if time.monotonic() > deadline:
            return transport_error("the embedded model did not finish in time", "deadline")
        error = last.get("error", last)
        message = error.get("message", "no answer") if isinstance(error, Mapping) else str(error)
        return ProviderError(FailureKind.REFUSED, f"the embedded model refused: {clean(str(message), 200)}")


class _Generated(NamedTuple):
    text: str
    tokens: list[Token]
    prompt_tokens: int
    read: int  # of the prompt's tokens; the engine still had the others
    end: str | None  # why the generation ended; None: it failed
    last: Mapping[str, Any]  # the last chunk, which contains the error


def _generate(server: Any, body: Mapping[str, Any], deadline: float, cancelled: threading.Event) -> _Generated:
    """One request to the engine, streamed so that it can be stopped between two batches or tokens."""
    written: list[str] = []
    tokens: list[Token] = []
    last: dict[str, Any] = {}

    def take(chunk: Any) -> bool:
        """Take one streamed chunk; True ends the generation."""
        chunk = json.loads(chunk) if isinstance(chunk, (str, bytes)) else chunk
        last.update(chunk)
        for choice in chunk.get("choices", []):
            written.append(choice.get("delta", {}).get("content") or "")
            for entry in (choice.get("logprobs") or {}).get("content") or []:
                alternatives = {one["token"]: one["logprob"] for one in [*entry["top_logprobs"], entry]}
                tokens.append(Token(entry["token"], alternatives))
            last["end"] = choice.get("finish_reason") or last.get("end")
        return cancelled.is_set() or time.monotonic() > deadline

    stream = {"stream": True, "return_progress": True, "cache_prompt": True, "logprobs": True}
    server.handle_chat_completions({**body, **stream, "top_logprobs": TOP_LOGPROBS}, take)
    count = last.get("timings", {})
    read = int(count.get("prompt_n", 0))
    return _Generated("".join(written), tokens, read + int(count.get("cache_n", 0)), read, last.get("end"), last)


_servers: dict[tuple[str, int, int], Any] = {}
_loading = threading.Lock()


def _threads() -> int:
    """All cores while nothing else runs, otherwise one less: a thread that shares its core delays all others."""
    cores = usable_cores()
    return max(1, min(cores if cores <= MAX_THREADS and _alone() else cores - 1, MAX_THREADS))


def _alone() -> bool:
    """Whether no thread but this one runs on the machine; False where the system does not say."""
    for glance in range(GLANCES):
        if glance:
            time.sleep(GLANCE_SECONDS)
        try:
            running = int(LOADAVG.read_text().split()[3].partition("/")[0])
        except (OSError, ValueError, IndexError):
            return False
        if running <= 1:
            return True
    return False


def _server(file: Path, sha256: str, threads: int, context: int) -> Any:
    """The loaded model; a process loads it once."""
    with _loading:
        if (sha256, threads, context) not in _servers:
            _servers[sha256, threads, context] = _load(file, threads, context)
        return _servers[sha256, threads, context]


def _load(file: Path, threads: int, context: int) -> Any:
    xllamacpp = _engine()
    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.n_ctx, params.n_parallel = context, 1
    params.n_batch = params.n_ubatch = 128  # a cancelled question ends between two batches
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.n_gpu_layers, params.warmup, params.verbosity, params.ui = 0, False, -1, False
    params.cache_ram_mib = 0  # caching old prompts is not worth gigabytes
    # flash attention computes long and short batches differently, so an answer would depend on the question before it
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    # the library must listen somewhere: on a Unix socket in a private folder that is deleted at once
    with tempfile.TemporaryDirectory() as folder:
        params.hostnames = [str(Path(folder) / "s.sock")]
        try:
            return xllamacpp.Server(params)
        except RuntimeError:
            raise BadInput(f"xllamacpp cannot load {file}; check that it is a complete GGUF file.") from None


def _engine() -> Any:
    """Its threads wait for each other many times per token: they spin, but sleep soon if the other has no core."""
    before = dict(os.environ)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # both are read when the library is loaded
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    try:
        return import_module("xllamacpp")
    except ImportError:
        raise BadInput("xllamacpp is not installed; run `kibitz llm install`.") from None
    finally:
        for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
            if name not in before:
                del os.environ[name]
