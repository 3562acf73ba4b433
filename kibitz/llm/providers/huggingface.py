"""Hugging Face models on this machine: transformers generates, xgrammar keeps it legal. Extra `hf`."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from kibitz.core.errors import BadInput
from kibitz.llm.answers.answer import Answer
from kibitz.llm.client.types import Completion, Messages, Token, transport_error
from kibitz.llm.presets import Preset

TOP_LOGPROBS = 20  # alternatives per token; the grammar has removed illegal ones


class _Job(NamedTuple):
    messages: list[dict[str, str]]
    answer: Answer
    deadline: float
    future: asyncio.Future[Completion]
    cancelled: threading.Event


class LocalHF:
    """Generates waiting questions in batches, each under its own grammar."""

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
            "grammar": answer.grammar(),
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
    """A hub name, or a folder with the state of its files, which further training may change."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return [model]
    files = [(file.name, file.stat()) for file in sorted(folder.iterdir()) if file.is_file()]
    return [str(folder.resolve()), *([name, state.st_size, state.st_mtime_ns] for name, state in files)]


class _Model:
    """The only place that touches torch, transformers and xgrammar."""

    def __init__(self, name: str) -> None:
        try:
            torch, transformers = import_module("torch"), import_module("transformers")
            xgrammar, processors = import_module("xgrammar"), import_module("xgrammar.contrib.hf")
        except ImportError as error:
            raise BadInput(f"{error.name} is not installed; run `pip install 'kibitz[hf]'`.") from None
        self.torch, self.transformers, self.processor = torch, transformers, processors.LogitsProcessor
        transformers.utils.logging.disable_progress_bar()  # the caller shows its own
        path = str(Path(name).expanduser()) if name.startswith(("~", ".", "/")) else name
        try:
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(path, padding_side="left")
            self.model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype="auto").eval()
        except (OSError, ValueError) as error:
            raise BadInput(f"transformers cannot load {name!r}: {str(error).splitlines()[0]}") from None
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model.to(self.device)
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        size = self.model.config.get_text_config().vocab_size
        info = xgrammar.TokenizerInfo.from_huggingface(self.tokenizer, vocab_size=size)
        self.compiler = xgrammar.GrammarCompiler(info)

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
        torch, transformers = self.torch, self.transformers
        prompts = [self._prompt(messages) for messages, _ in questions]
        inputs = self.tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False).to(self.device)
        grammars = [self.compiler.compile_grammar(answer.grammar()) for _, answer in questions]

        def out_of_time(ids: Any, scores: Any, **_: Any) -> Any:
            return torch.full((ids.shape[0],), bool(stop()), dtype=torch.bool, device=ids.device)

        torch.manual_seed(seed)
        sampled = {"temperature": temperature, "top_p": top_p} if temperature > 0 else {}
        settings = transformers.GenerationConfig(
            max_new_tokens=max(answer.max_chars for _, answer in questions) + 1,  # a token has at least one character
            pad_token_id=self.tokenizer.pad_token_id,
            eos_token_id=self.tokenizer.eos_token_id,
            return_dict_in_generate=True,
            output_scores=True,
            do_sample=bool(sampled),
            **sampled,
        )
        with torch.inference_mode():
            output = self.model.generate(
                **inputs,
                generation_config=settings,
                # a processor cannot be reused
                logits_processor=transformers.LogitsProcessorList([self.processor(grammars)]),
                stopping_criteria=transformers.StoppingCriteriaList([out_of_time]),
            )
        start = inputs["input_ids"].shape[1]
        return [self._completion(row, output, start, inputs) for row in range(len(questions))]

    def _prompt(self, messages: list[dict[str, str]]) -> str:
        if self.tokenizer.chat_template:
            return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
        return "\n\n".join(message["content"] for message in messages) + "\n"

    def _completion(self, row: int, output: Any, start: int, inputs: Any) -> Completion | None:
        ids = output.sequences[row, start:].tolist()
        if self.tokenizer.eos_token_id not in ids:
            return None
        ids = ids[: ids.index(self.tokenizer.eos_token_id)]
        tokens = [self._token(i, output.scores[step][row]) for step, i in enumerate(ids)]
        text = self.tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        complete = "".join(token.text for token in tokens) == text  # some tokenizers drop a leading space
        return Completion(
            text,
            int(inputs["attention_mask"][row].sum()),
            len(ids) + 1,
            tokens=tokens if complete else (),
        )

    def _token(self, written: int, scores: Any) -> Token:
        """Scores are masked by the grammar: illegal tokens are at minus infinity."""
        logps = self.torch.log_softmax(scores.float(), dim=-1)
        best = self.torch.topk(logps, min(TOP_LOGPROBS, logps.shape[-1]))
        alternatives = {
            self.tokenizer.decode([int(i)]): float(logp)
            for logp, i in zip(best.values, best.indices, strict=True)
            if float(logp) > float("-inf")
        }
        text = self.tokenizer.decode([written])
        return Token(text, {**alternatives, text: float(logps[written])})
