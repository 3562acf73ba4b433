"""A training job: what `kibitz teach sft`, `dpo` and `grpo` share.

`train` owns the folder: its lock, metrics, checkpoints, the end by Ctrl-C or by the clock, and the final export. A
`ModelLearner` is a model with its optimiser. A `Method` says where gradients come from; only this part differs.
"""

from __future__ import annotations

import json
import math
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

from pydantic import Field

from kibitz.core.errors import BadInput
from kibitz.core.options import Options
from kibitz.core.system import interrupt
from kibitz.core.system.paths import write_whole
from kibitz.teach.libraries import find_device, fuse, load_model, load_tokenizer, require, with_adapter
from kibitz.train.run.folder import new_folder, written_by_us
from kibitz.train.run.logs import CsvRows, Tensorboard

JOB, CHECKPOINT = "job.json", "checkpoint"
FREE = {"device", "checkpoint_steps", "lr"}  # may differ when a job resumes; see `JobOptions.fixed`


class JobOptions(Options):
    base: str = "embedded"  # or a GGUF file, a folder of transformers, or one of an earlier `kibitz teach`
    rank: int | None = Field(16, ge=1)  # of the LoRA adapter; None: all weights
    adapter: str = ""  # an adapter of this base and rank to train further; empty: a new one
    lr: float = Field(1e-3, gt=0)
    seed: int = Field(0, ge=0)
    device: str = "auto"
    checkpoint_steps: int = Field(500, ge=1)

    def fixed(self) -> dict[str, Any]:
        """What a checkpoint depends on."""
        return {name: value for name, value in self.model_dump(mode="json").items() if name not in FREE}


class Method(Protocol):
    name: str  # of its metrics in TensorBoard
    steps: int  # of the whole job
    metric_steps: int  # per row of metrics.csv

    def batches(self, first: int) -> Iterator[Any]:
        """What each step after the first ones works on; a resumed job has seen those."""

    def gradients(self, batch: Any) -> Mapping[str, Any]:
        """Adds the batch's gradients to the learner's weights. Numbers for metrics.csv; `rows` is a count."""

    def rate(self, step: int) -> float:
        """The learning rate."""

    def state(self) -> dict[str, Any]:
        """Tensors that a checkpoint has to keep beside the learner."""

    def restore(self, state: Mapping[str, Any]) -> None: ...


def train(
    options: JobOptions,
    out: Path,
    method_of: Callable[[ModelLearner], Method],
    resume: bool = False,
    minutes: float | None = None,
    report: Callable[[dict[str, Any]], None] = lambda metrics: None,
    stopping: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Trains and saves to `out`; when it stops early, the checkpoint there continues with `resume`."""
    (torch,) = require("torch")
    with new_folder(out):
        out.mkdir(parents=True, exist_ok=True)
    saved = out / CHECKPOINT
    with written_by_us(out):
        if not saved.is_dir() and (old := _old(saved)).is_dir():
            old.rename(saved)  # a process was killed between the two renames of `ModelLearner.save`
        if resume != saved.is_dir():
            there = "has no checkpoint; omit --resume" if resume else "already holds a checkpoint; add --resume"
            raise BadInput(f"{out} {there} or name another folder with --out.")
        torch.manual_seed(options.seed)
        learner = ModelLearner(options, torch)
        method = method_of(learner)
        if resume:
            method.restore(learner.load(saved))
        return _train(learner, method, out, minutes, report, stopping)


def _train(
    learner: ModelLearner, method: Method, out: Path, minutes: float | None, report: Callable[..., None], stopping: Any
) -> dict[str, Any]:
    saved, first, options = out / CHECKPOINT, learner.steps, learner.options

    def save() -> None:
        learner.save(saved, method.state)

    def rescue() -> None:
        if learner.steps > first:
            save()

    write_whole(out / JOB, options.model_dump_json(indent=2))
    notes: list[str] = []
    began, rows, stopped = time.monotonic(), 0, False
    with (
        interrupt.rescue(rescue),
        closing(CsvRows(out / "metrics.csv", first)) as table,
        closing(Tensorboard(out, notes)) as board,
    ):
        recent: list[dict[str, Any]] = []  # since the last row of metrics

        def log() -> None:
            means = {name: float(sum(one[name] for one in recent)) / len(recent) for name in recent[0]}
            if not math.isfinite(means["loss"]):
                raise BadInput(f"The loss is not finite at step {learner.steps}; resume with a smaller --lr.")
            metrics = {"step": learner.steps, "steps": method.steps, **means}
            metrics["rows_per_s"] = rows / (time.monotonic() - began)
            table.add(metrics)
            board.add(method.name, metrics, learner.steps)
            report(metrics)
            recent.clear()

        for step, batch in enumerate(method.batches(first), first + 1):
            numbers = dict(method.gradients(batch))
            learner.update(method.rate(step))
            rows += numbers.pop("rows")
            recent.append(numbers)
            if step % method.metric_steps == 0:
                log()
            late = minutes is not None and time.monotonic() - began > 60 * minutes
            asked = stopping()
            if asked:
                interrupt.finishing()
            stopped = asked or late
            if stopped or step % options.checkpoint_steps == 0:
                save()
            if stopped:
                break
        if not learner.steps:
            raise BadInput("Every row has too many tokens; raise --max-tokens.")
        if recent and not stopped:
            log()
        if not stopped:
            save()
            learner.export(out / ("adapter" if options.rank else "model"))
    seconds = time.monotonic() - began
    found = {"out": str(out), "steps": learner.steps, "of": method.steps, "rows": rows, "seconds": round(seconds, 1)}
    return found | {"rows_per_s": round(rows / max(seconds, 1e-9), 1), "finished": not stopped, "notes": notes}


def cosine(peak: float, step: int, total: int) -> float:
    """A linear start over the first 2 % of the steps, then half a cosine down to zero."""
    warm = max(1.0, 0.02 * total)
    return peak * (step / warm if step < warm else 0.5 * (1 + math.cos(math.pi * min(1.0, step / total))))


def _old(checkpoint: Path) -> Path:
    """Where a checkpoint lies while the next one takes its place."""
    return checkpoint.with_name(f".{checkpoint.name}.old")


class ModelLearner:
    """A model and its optimiser."""

    def __init__(self, options: JobOptions, torch: Any) -> None:
        self.options, self.torch, self.steps = options, torch, 0
        self._whole = threading.RLock()  # held while weights change, so that no checkpoint has half a step
        self.device = find_device(options.device)
        self.mixed = self.device.startswith("cuda")
        frozen = options.rank is not None and self.mixed
        model = load_model(options.base, torch.bfloat16 if frozen else torch.float32)
        if options.rank is not None:
            model = with_adapter(model, options.base, options.rank, options.adapter)
        self.model = model.to(self.device).train()
        if self.mixed:
            fuse(self.model)
        self.weights = {name: w for name, w in self.model.named_parameters() if w.requires_grad}
        # an adapter computes in the precision of its frozen model and is updated in float32
        self.exact = {name: weight.detach().clone().float() for name, weight in self.weights.items()}
        self.optimiser = torch.optim.AdamW(self.exact.values(), lr=options.lr, weight_decay=0.0, fused=self.mixed)

    def logits(self, tokens: Any, start: int, **more: Any) -> Any:
        """f[rows, length - start, vocabulary]: what the model predicts for the columns from `start` on."""
        full = self.mixed and self.options.rank is None
        with self.torch.autocast(self.device.split(":")[0], self.torch.bfloat16, enabled=full):
            keep = tokens.shape[1] - start + 1
            return self.model(input_ids=tokens, logits_to_keep=keep, use_cache=False, **more).logits[:, :-1]

    def update(self, rate: float) -> None:
        """One step of the optimiser with the gradients that the model's weights have."""
        torch = self.torch
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        for name, weight in self.weights.items():
            self.exact[name].grad = None if weight.grad is None else weight.grad.float()
            weight.grad = None
        torch.nn.utils.clip_grad_norm_(self.exact.values(), 1.0)
        with self._whole:
            self.optimiser.step()
            self.steps += 1
        with torch.no_grad():
            torch._foreach_copy_(list(self.weights.values()), list(self.exact.values()))

    def copy(self) -> dict[str, Any]:
        """The weights as they are now."""
        return {name: weight.detach().clone() for name, weight in self.exact.items()}

    @contextmanager
    def wearing(self, weights: Mapping[str, Any]) -> Iterator[None]:
        """Within this block the model computes with these weights; the learner's own stay in `exact`."""
        torch = self.torch
        with torch.no_grad():
            torch._foreach_copy_(list(self.weights.values()), [weights[name] for name in self.weights])
            try:
                yield
            finally:
                torch._foreach_copy_(list(self.weights.values()), list(self.exact.values()))

    def save(self, folder: Path, more: Callable[[], dict[str, Any]]) -> None:
        """A checkpoint that is complete or absent; any thread may ask for it."""
        with self._whole:
            self._save(folder, more())

    def _save(self, folder: Path, more: dict[str, Any]) -> None:
        part = folder.with_name(f".{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        state = {"weights": {name: weight.cpu() for name, weight in self.exact.items()}, "more": more}
        self.torch.save(state | {"optimiser": self.optimiser.state_dict()}, part / "state.pt")
        (part / "about.json").write_text(json.dumps({"step": self.steps, "job": self.options.fixed()}))
        old = _old(folder)
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.rename(old)
        part.rename(folder)
        shutil.rmtree(old, ignore_errors=True)

    def load(self, folder: Path) -> dict[str, Any]:
        """Continues from a checkpoint; returns what the method kept in it."""
        try:
            about = json.loads((folder / "about.json").read_text())
            state = self.torch.load(folder / "state.pt", map_location=self.device, weights_only=True)
        except Exception as error:  # a damaged file raises whatever its reader meets first
            raise BadInput(f"Cannot read the checkpoint {folder} ({type(error).__name__}); start again.") from None
        job = self.options.fixed()
        # an earlier version did not know every option, and did what is the default now
        then = {name: type(self.options).model_fields[name].default for name in job} | about["job"]
        differs = [name for name in {**then, **job} if name not in FREE and job.get(name) != then.get(name)]
        if differs:
            name = differs[0]
            raise BadInput(f"The checkpoint was trained with {name} {then.get(name)}, not {job.get(name)}.")
        with self.torch.no_grad():
            for name, weight in self.weights.items():
                self.exact[name].copy_(state["weights"][name])
                weight.copy_(self.exact[name])
        self.optimiser.load_state_dict(state["optimiser"])
        self.steps = int(about["step"])
        more: dict[str, Any] = state.get("more", {})
        return more

    def export(self, folder: Path) -> None:
        """A peft adapter, or a folder of transformers; with the tokenizer."""
        self.model.save_pretrained(folder)
        load_tokenizer(self.options.base).save_pretrained(folder)
