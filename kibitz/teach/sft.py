"""`kibitz teach sft`: supervised training of a LoRA adapter, or of all weights, on rows of chat messages.

TRL's SFTTrainer reads the same rows. It computes the logits of every token, though, and here most tokens belong to
the prompt: for a vocabulary of 49,152 and answers of twenty tokens that is more work than the small model itself.
So the loop is our own, and it computes logits for the ends of the rows only.
"""

from __future__ import annotations

import json
import math
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from pydantic import Field

from kibitz.core import interrupt
from kibitz.core.errors import BadInput
from kibitz.core.options import Options
from kibitz.core.paths import write_whole
from kibitz.teach.batches import Batch, Encoder, batches, count_rows
from kibitz.teach.libraries import load_model, load_tokenizer, require
from kibitz.train.logs import Rows, Tensorboard

CHECKPOINT = "checkpoint"
METRIC_STEPS = 20  # steps per row of metrics.csv


class SftOptions(Options):
    data: tuple[str, ...]  # files of JSON Lines, mixed in proportion to their sizes
    base: str = "embedded"  # or a GGUF file, or a folder of transformers
    rank: int | None = Field(16, ge=1)  # of the LoRA adapter; None: all weights
    lr: float = Field(1e-3, gt=0)
    batch: int = Field(64, ge=1)  # rows
    epochs: int = Field(1, ge=1)
    max_tokens: int = Field(512, ge=16)  # longer rows are left out
    seed: int = Field(0, ge=0)
    workers: int = Field(0, ge=0)  # processes that prepare batches; part of what fixes their order
    device: str = "auto"
    checkpoint_steps: int = Field(500, ge=1)


def train(
    options: SftOptions,
    out: Path,
    resume: bool = False,
    minutes: float | None = None,
    report: Callable[[dict[str, Any]], None] = lambda metrics: None,
    stopping: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Trains and saves to `out`; when it stops early, the checkpoint there continues with `resume`."""
    (torch,) = require("torch")
    files = [Path(file) for file in options.data]
    for file in files:
        if not file.is_file():
            raise BadInput(f"There is no file {str(file)!r}; write one with `kibitz teach data`.")
    out.mkdir(parents=True, exist_ok=True)
    saved = out / CHECKPOINT
    if resume != saved.is_dir():
        there = "has no checkpoint; omit --resume" if resume else "already holds a checkpoint; add --resume"
        raise BadInput(f"{out} {there} or name another folder with --out.")
    torch.manual_seed(options.seed)
    trainer = Trainer(options, torch)
    first = trainer.steps = trainer.load(saved) if resume else 0

    def rescue() -> None:
        if trainer.steps > first:
            trainer.save(saved)

    write_whole(out / "job.json", options.model_dump_json(indent=2))
    total = max(1, math.ceil(count_rows(files) / options.batch)) * options.epochs
    notes: list[str] = []
    table, board = Rows(out / "metrics.csv", first), Tensorboard(out, notes)
    began, rows, sums = time.monotonic(), 0, [0.0, 0.0, 0]
    stopped = False
    with interrupt.rescue(rescue), closing(table), closing(board):
        for step, batch in enumerate(_stream(options, files, first), first + 1):
            loss, right = trainer.step(batch, _rate(options.lr, step, total))
            rows += len(batch.tokens)
            sums = [sums[0] + loss, sums[1] + right, sums[2] + 1]
            if step % METRIC_STEPS == 0:
                metrics = _metrics(step, total, sums, rows / (time.monotonic() - began))
                if not math.isfinite(metrics["loss"]):
                    raise BadInput(f"The loss is not finite at step {step}; resume with a smaller --lr.")
                table.add(metrics)
                board.add("sft", metrics, step)
                report(metrics)
                sums = [0.0, 0.0, 0]
            late = minutes is not None and time.monotonic() - began > 60 * minutes
            asked = stopping()
            if asked:
                interrupt.finishing()
            stopped = asked or late
            if stopped or step % options.checkpoint_steps == 0:
                trainer.save(saved)
            if stopped:
                break
    if not trainer.steps:
        raise BadInput(f"Every row has more than {options.max_tokens} tokens; raise --max-tokens.")
    if not stopped:
        trainer.save(saved)
        trainer.export(out / ("adapter" if options.rank else "model"))
    seconds = time.monotonic() - began
    found = {"out": str(out), "steps": trainer.steps, "of": total, "rows": rows, "seconds": round(seconds, 1)}
    return found | {"rows_per_s": round(rows / max(seconds, 1e-9), 1), "finished": not stopped, "notes": notes}


def _metrics(step: int, total: int, sums: list[Any], rate: float) -> dict[str, Any]:
    loss, right, count = (float(x) for x in sums)
    return {"step": step, "steps": total, "loss": loss / count, "agreement": right / count, "rows_per_s": rate}


def _rate(peak: float, step: int, total: int) -> float:
    """A linear start over the first 2 % of the steps, then half a cosine down to zero."""
    warm = max(1.0, 0.02 * total)
    return peak * (step / warm if step < warm else 0.5 * (1 + math.cos(math.pi * min(1.0, step / total))))


def _stream(options: SftOptions, files: list[Path], first: int) -> Iterator[Batch]:
    """The batches of all epochs, without the first ones, which a resumed training has seen."""
    (data,) = require("torch.utils.data")
    encoder = Encoder(load_tokenizer(options.base), options.max_tokens)

    class Stream(data.IterableDataset):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Iterator[Batch]:
            info = data.get_worker_info()
            share = (0, 1) if info is None else (info.id, info.num_workers)
            for epoch in range(options.epochs):
                yield from batches(files, encoder, options.batch, options.seed + epoch, share)

    loader = data.DataLoader(Stream(), batch_size=None, num_workers=options.workers, collate_fn=lambda batch: batch)
    for number, batch in enumerate(loader):
        if number >= first:
            yield batch


class Trainer:
    """A model and its optimiser."""

    def __init__(self, options: SftOptions, torch: Any) -> None:
        self.options, self.torch, self.steps = options, torch, 0
        self._whole = threading.RLock()  # held while weights change, so that no checkpoint has half a step
        self.device = ("cuda" if torch.cuda.is_available() else "cpu") if options.device == "auto" else options.device
        self.mixed = self.device.startswith("cuda")
        frozen = options.rank is not None and self.mixed
        model = load_model(options.base, torch.bfloat16 if frozen else torch.float32)
        if options.rank is not None:
            (peft,) = require("peft")
            config = peft.LoraConfig(
                r=options.rank, lora_alpha=2 * options.rank, target_modules="all-linear", task_type="CAUSAL_LM"
            )
            model = peft.get_peft_model(model, config, autocast_adapter_dtype=False)
        self.model = model.to(self.device).train()
        self.weights = {name: w for name, w in self.model.named_parameters() if w.requires_grad}
        # an adapter computes in the precision of its frozen model and is updated in float32
        self.exact = {name: weight.detach().clone().float() for name, weight in self.weights.items()}
        self.optimiser = torch.optim.AdamW(self.exact.values(), lr=options.lr, weight_decay=0.0, fused=self.mixed)

    def step(self, batch: Batch, rate: float) -> tuple[Any, Any]:
        """One gradient step; the loss and the share of rows whose every answer token is the most likely one."""
        torch = self.torch
        tokens = torch.from_numpy(batch.tokens).to(self.device, non_blocking=True)
        taught = torch.from_numpy(batch.taught).to(self.device, non_blocking=True)
        start = int(batch.taught.argmax(1).min())  # the first column with an answer
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        full = self.mixed and self.options.rank is None
        with torch.autocast(self.device.split(":")[0], torch.bfloat16, enabled=full):
            keep = tokens.shape[1] - start + 1
            logits = self.model(input_ids=tokens, logits_to_keep=keep, use_cache=False).logits[:, :-1]
        asked = taught[:, start:]
        shown, wanted = logits[asked].float(), tokens[:, start:][asked]
        loss = torch.nn.functional.cross_entropy(shown, wanted)
        loss.backward()
        for name, weight in self.weights.items():
            self.exact[name].grad = None if weight.grad is None else weight.grad.float()
            weight.grad = None
        torch.nn.utils.clip_grad_norm_(self.exact.values(), 1.0)
        with self._whole:
            self.optimiser.step()
            self.steps += 1
        with torch.no_grad():
            torch._foreach_copy_(list(self.weights.values()), list(self.exact.values()))
            wrong = torch.zeros(asked.shape, dtype=torch.bool, device=self.device)
            wrong[asked] = shown.argmax(-1) != wanted
            right = 1 - wrong.any(1).float().mean()
        return loss.detach(), right

    def save(self, folder: Path) -> None:
        """A checkpoint that is complete or absent; any thread may ask for it."""
        with self._whole:
            self._save(folder)

    def _save(self, folder: Path) -> None:
        part = folder.with_name(f".{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        state = {"weights": {name: weight.cpu() for name, weight in self.exact.items()}}
        self.torch.save(state | {"optimiser": self.optimiser.state_dict()}, part / "state.pt")
        (part / "about.json").write_text(json.dumps({"step": self.steps, "job": self.options.model_dump(mode="json")}))
        old = folder.with_name(f".{folder.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.rename(old)
        part.rename(folder)
        shutil.rmtree(old, ignore_errors=True)

    def load(self, folder: Path) -> int:
        try:
            about = json.loads((folder / "about.json").read_text())
            state = self.torch.load(folder / "state.pt", map_location=self.device, weights_only=True)
        except Exception as error:  # a damaged file raises whatever its reader meets first
            raise BadInput(f"Cannot read the checkpoint {folder} ({type(error).__name__}); start again.") from None
        job = self.options.model_dump(mode="json")
        free = {"device", "checkpoint_steps", "lr"}
        differs = [name for name, value in about["job"].items() if name not in free and job.get(name) != value]
        if differs:
            name = differs[0]
            raise BadInput(f"The checkpoint was trained with {name} {about['job'][name]}, not {job.get(name)}.")
        with self.torch.no_grad():
            for name, weight in self.weights.items():
                self.exact[name].copy_(state["weights"][name])
                weight.copy_(self.exact[name])
        self.optimiser.load_state_dict(state["optimiser"])
        return int(about["step"])

    def export(self, folder: Path) -> None:
        """A peft adapter, or a folder of transformers; with the tokenizer."""
        self.model.save_pretrained(folder)
        load_tokenizer(self.options.base).save_pretrained(folder)
