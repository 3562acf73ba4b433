"""Hugging Face models on this machine, by transformers. Extra `hf`."""

from __future__ import annotations

import asyncio
import io
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kibitz.core.errors import BadInput
from kibitz.llm.answers.answer import Answer
from kibitz.llm.client.types import Completion, Messages, Token, transport_error
from kibitz.llm.presets import Preset
from kibitz.llm.providers import weights
from kibitz.llm.providers.batched import BatchWriter, Written, drawn


class _Job(NamedTuple):
    messages: list[dict[str, str]]
    answer: Answer
    deadline: float
    future: asyncio.Future[Completion]
    cancelled: threading.Event


class LocalHF:
    """Answers waiting questions in batches."""

    has_logprobs = True

    def __init__(self, preset: Preset) -> None:
        self.preset = preset
        self.name = f"local_hf:{preset.model}"
        self.identity = _identity(preset.model)
        self.max_concurrent: int | None = 2 * preset.batch  # one batch running, one waiting
        self.worker = ThreadPoolExecutor(1, thread_name_prefix="kibitz-hf")
        self.waiting: list[_Job] = []
        self.busy = False
        self.model: _Model | None = None

    def request(self, messages: Messages, answer: Answer) -> Mapping[str, Any]:
        sampling = self.preset.sampling
        return {
            "model": self.identity,
            "messages": list(messages),
            "temperature": sampling.temperature or 0.0,
            "top_p": sampling.top_p or 1.0,
            "seed": sampling.seed or 0,
        }

    async def ask(self, request: Mapping[str, Any], answer: Answer, seconds: float) -> Completion:
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        cancelled = threading.Event()
        plain = [dict(message) for message in request["messages"]]
        self.waiting.append(_Job(plain, answer, time.monotonic() + seconds, future, cancelled))
        if not self.busy:
            self.busy = True
            self.task = asyncio.create_task(self._work())
        try:
            return await future
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def close(self) -> None:
        self.worker.shutdown(wait=False, cancel_futures=True)

    async def _work(self) -> None:
        """Generate batches until no question waits."""
        try:
            while self.waiting:
                await asyncio.sleep(0)  # lets concurrent questions join the batch
                jobs = [job for job in self.waiting[: self.preset.batch] if not job.cancelled.is_set()]
                del self.waiting[: self.preset.batch]
                if jobs:
                    await self._batch(jobs)
        finally:
            self.busy = False

    async def _batch(self, jobs: list[_Job]) -> None:
        try:
            results = await asyncio.get_running_loop().run_in_executor(self.worker, self._generate, jobs)
        except Exception as error:
            for job in jobs:
                if not job.future.done():
                    job.future.set_exception(error)
            return
        for job, result in zip(jobs, results, strict=True):
            if job.future.done():
                continue
            if result is None:
                job.future.set_exception(transport_error("the local model did not finish in time", "deadline"))
            else:
                job.future.set_result(result)

    def _generate(self, jobs: list[_Job]) -> list[Completion | None]:
        if self.model is None:
            self.model = _Model(self.preset.model)
        sampling = self.preset.sampling
        latest = max(job.deadline for job in jobs)
        return self.model.write(
            [(job.messages, job.answer) for job in jobs],
            lambda: time.monotonic() > latest or all(job.cancelled.is_set() for job in jobs),
            temperature=sampling.temperature or 0.0,
            top_p=sampling.top_p or 1.0,
            seed=sampling.seed or 0,
        )


def _identity(model: str) -> list[Any]:
    """A hub name, the hash of a GGUF file, or a folder with the state of its files, which training may change."""
    folder = Path(model).expanduser()
    if model in (weights.SMOLLM2, weights.TAUGHT) or folder.suffix == ".gguf":
        return [weights.identity(weights.locate(model))]
    if not folder.is_dir():
        return [model]
    files = [(file.name, file.stat()) for file in sorted(folder.iterdir()) if file.is_file()]
    return [str(folder.resolve()), *([name, state.st_size, state.st_mtime_ns] for name, state in files)]


class _Model:
    """A folder of transformers, a hub name, or a GGUF file; on the GPU if there is one."""

    def __init__(self, name: str) -> None:
        try:
            torch, transformers = import_module("torch"), import_module("transformers")
        except ImportError as error:
            raise BadInput(f"{error.name} is not installed; run `pip install 'kibitz[hf]'`.") from None
        transformers.utils.logging.disable_progress_bar()  # the caller shows its own
        source = model_source(name)
        try:
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(**source)
            with redirect_stderr(io.StringIO()):  # the bar of a GGUF file's conversion
                model = transformers.AutoModelForCausalLM.from_pretrained(**source, dtype="auto").eval()
        except (OSError, ValueError, ImportError) as error:
            raise BadInput(f"transformers cannot load {name!r}: {str(error).splitlines()[0]}") from None
        on_gpu = torch.cuda.is_available()
        if "gguf_file" in source and on_gpu:  # numbers of 8 bits, which transformers reads as 32
            model = model.to(torch.bfloat16)
        self.writer = BatchWriter(model.to("cuda" if on_gpu else "cpu"), self.tokenizer, torch)

    def write(
        self,
        questions: list[tuple[list[dict[str, str]], Answer]],
        stop: Callable[[], bool],
        *,
        temperature: float,
        top_p: float,
        seed: int,
    ) -> list[Completion | None]:
        """One completion per question; None where time ran out."""
        prompts = [self.writer.encode(self._prompt(messages)) for messages, _ in questions]
        dice = np.random.default_rng(seed)

        def pick(logps: NDArray[np.float32]) -> int:
            return drawn(logps, dice.random(), temperature, top_p) if temperature else int(logps.argmax())

        with self.writer.torch.inference_mode():
            written = self.writer.write(prompts, [answer for _, answer in questions], pick, stop)
        if written is None:
            return [None] * len(questions)
        return [_completion(one, len(prompt)) for one, prompt in zip(written, prompts, strict=True)]

    def _prompt(self, messages: list[dict[str, str]]) -> str:
        if self.tokenizer.chat_template:
            return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
        return "\n\n".join(message["content"] for message in messages) + "\n"


def _completion(written: Written, prompt_tokens: int) -> Completion:
    tokens = [
        Token(one.texts[one.chosen], dict(zip(one.texts, one.logps, strict=True)), one.start) for one in written.chosen
    ]
    return Completion(written.text, prompt_tokens, len(tokens), tokens=tokens)


def model_source(name: str) -> dict[str, str]:
    """How transformers finds a model: one in the box or another GGUF file, a folder, or a hub name."""
    path = Path(name).expanduser()
    if name in (weights.SMOLLM2, weights.TAUGHT):
        path = weights.locate(name)
    if path.suffix == ".gguf":
        return {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    return {"pretrained_model_name_or_path": str(path) if name.startswith(("~", ".", "/")) else name}
