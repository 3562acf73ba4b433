"""A small model inside the process: no network, no key. xllamacpp runs a GGUF file on the CPU.

The grammar of the state makes every answer legal; log-probabilities give the confidence. Text that
was read before is not read again, so prompts should begin with what never changes.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

from kibitz.core.errors import BadInput
from kibitz.llm.answers.answer import Answer
from kibitz.llm.client.types import Completion, FailureKind, Messages, ProviderError, Token, clean
from kibitz.llm.presets import Preset
from kibitz.llm.providers import weights

SHOWN = 40  # alternatives looked at for each token; open values are few


class Embedded:
    """One model, one question at a time: more at once only share the same cores."""

    at_once: int | None = 1
    measures = True

    def __init__(self, preset: Preset, reuse_prefix: bool = True) -> None:
        self.preset, self.reuse_prefix = preset, reuse_prefix
        self.file = weights.locate(preset.model)
        self.name = f"embedded:{self.file.stem}"
        self.sha256 = weights.identity(self.file)
        self.worker = ThreadPoolExecutor(1, thread_name_prefix="kibitz-embedded")

    def request(self, messages: Messages, answer: Answer) -> Mapping[str, Any]:
        sampling = self.preset.sampling
        return {
            "model": self.sha256,  # a name is no proof: answers of other weights must not be found
            "messages": [*messages, {"role": "assistant", "content": answer.head}],  # goes on from there
            "grammar": answer.grammar(after_head=True),
            "max_tokens": answer.longest,  # a token is at least a character: a grammar is never cut
            "temperature": 0.0 if sampling.temperature is None else sampling.temperature,
            "top_p": sampling.top_p or 1.0,
            "seed": sampling.seed or 0,
        }

    async def ask(self, request: Mapping[str, Any], answer: Answer, seconds: float) -> Completion:
        given_up = threading.Event()
        work = (request, answer.head, time.monotonic() + seconds, given_up)
        try:
            return await asyncio.get_running_loop().run_in_executor(self.worker, self._generate, *work)
        except asyncio.CancelledError:
            given_up.set()  # the worker stops at the next token
            raise

    async def close(self) -> None:
        self.worker.shutdown(wait=False, cancel_futures=True)

    def _generate(
        self, request: Mapping[str, Any], head: str, deadline: float, given_up: threading.Event
    ) -> Completion:
        threads = self.preset.threads or max(1, (os.cpu_count() or 2) - 1)
        server = _server(self.file, self.sha256, threads, self.preset.context)
        written: list[str] = []
        tokens: list[Token] = []
        last: dict[str, Any] = {}

        def take(chunk: Any) -> bool:
            """One streamed chunk; True ends the generation."""
            chunk = json.loads(chunk) if isinstance(chunk, (str, bytes)) else chunk
            last.update(chunk)
            for choice in chunk.get("choices", []):
                written.append(choice.get("delta", {}).get("content") or "")
                for entry in (choice.get("logprobs") or {}).get("content") or []:
                    others = {other["token"]: other["logprob"] for other in [*entry["top_logprobs"], entry]}
                    tokens.append(Token(entry["token"], others))
                last["end"] = choice.get("finish_reason") or last.get("end")
            return given_up.is_set() or time.monotonic() > deadline

        stream = {"stream": True, "logprobs": True, "top_logprobs": SHOWN, "cache_prompt": self.reuse_prefix}
        stream["return_progress"] = True
        server.handle_chat_completions({**request, **stream}, take)
        if "end" not in last or last["end"] is None:
            self._complain(last, deadline)
        count = last.get("timings", {})
        return Completion(
            head + "".join(written),
            int(count.get("prompt_n", 0)) + int(count.get("cache_n", 0)),
            int(count.get("predicted_n", 0)),
            cut=last["end"] == "length",
            tokens=tokens,
            start=len(head),
        )

    def _complain(self, last: Mapping[str, Any], deadline: float) -> None:
        if time.monotonic() > deadline:
            raise ProviderError(
                FailureKind.TRANSPORT, "the embedded model did not finish in time", "deadline", provider_fault=True
            )
        error = last.get("error", last)
        message = error.get("message", "no answer") if isinstance(error, Mapping) else str(error)
        raise ProviderError(FailureKind.REFUSED, f"the embedded model refused: {clean(str(message), 200)}")


_servers: dict[tuple[str, int, int], Any] = {}
_loading = threading.Lock()


def _server(file: Path, sha256: str, threads: int, context: int) -> Any:
    """The loaded model, one for a process."""
    with _loading:
        if (sha256, threads, context) not in _servers:
            _servers[sha256, threads, context] = _load(file, threads, context)
        return _servers[sha256, threads, context]


def _load(file: Path, threads: int, context: int) -> Any:
    try:
        xllamacpp = import_module("xllamacpp")
    except ImportError:
        raise BadInput("xllamacpp is not installed; run `kibitz llm install`.") from None
    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.n_ctx, params.n_parallel = context, 1
    params.n_batch = params.n_ubatch = 128  # a question that was given up is noticed between batches
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.n_gpu_layers, params.warmup, params.verbosity, params.ui = 0, False, -1, False
    params.cache_ram_mib = 0  # old prompts are not worth gigabytes
    # the library insists on listening somewhere: on a socket that only we could open, gone at once
    with tempfile.TemporaryDirectory() as folder:
        params.hostnames = [str(Path(folder) / "s.sock")]
        try:
            return xllamacpp.Server(params)
        except RuntimeError:
            raise BadInput(f"xllamacpp cannot load {file}; is it a whole GGUF file?") from None
