"""Preference training: the loss is TRL's, it learns, and it resumes where it stopped."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from kibitz.core.errors import BadInput
from tests.teach.models import tiny_model
from tests.teach.test_sft import weights

pytestmark = [pytest.mark.conformance, pytest.mark.usefixtures("one_thread")]  # needs the extra `teach`


@pytest.fixture(scope="module")
def lesson(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model and 96 pairs."""
    folder = tmp_path_factory.mktemp("dpo")
    lines = []
    for i in range(96):
        said = [{"role": "assistant", "content": f'{{"arm":{arm}}}'} for arm in (1, 0)]
        asked = [{"role": "user", "content": f"{'pull ' * (i % 3)}{i}"}]
        lines.append(json.dumps({"prompt": asked, "chosen": said[:1], "rejected": said[1:], "margin": 1.0}))
    (folder / "pairs.jsonl").write_text("\n".join(lines) + "\n")
    return tiny_model(folder / "model"), folder / "pairs.jsonl"


def options(lesson: tuple[Path, Path], **more: Any) -> Any:
    from kibitz.teach.dpo import DpoOptions

    base, rows = lesson
    return DpoOptions.read({"data": (str(rows),), "base": str(base), "batch": 16, "lr": 3e-3, "rank": None} | more)


def test_chosen_answers_become_likelier_than_rejected_ones(lesson: tuple[Path, Path], tmp_path: Path) -> None:
    from kibitz.teach.dpo import train

    found = train(options(lesson, epochs=7), tmp_path)
    with (tmp_path / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert found["finished"] and float(rows[-1]["loss"]) < float(rows[0]["loss"]) < 0.7
    assert float(rows[-1]["accuracy"]) > 0.9 and float(rows[-1]["reward_margin"]) > 0


def test_a_resumed_training_equals_one_that_was_never_stopped(lesson: tuple[Path, Path], tmp_path: Path) -> None:
    from kibitz.teach.dpo import train

    chosen = options(lesson, rank=4)
    train(chosen, tmp_path / "whole")
    calls = iter(range(1000))
    assert train(chosen, tmp_path / "part", stopping=lambda: next(calls) == 4)["steps"] == 5
    assert train(chosen, tmp_path / "part", resume=True)["finished"]
    one, other = weights(tmp_path / "whole" / "adapter"), weights(tmp_path / "part" / "adapter")
    assert all((one[name] == other[name]).all() for name in one)


def test_the_loss_is_that_of_trl(lesson: tuple[Path, Path], tmp_path: Path) -> None:
    """Of a model that has moved away from its base; TRL reads the rows as they are."""
    import torch
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM
    from trl import DPOConfig, DPOTrainer

    from kibitz.teach.dpo import Preference, train
    from kibitz.teach.job import ModelLearner

    base, pairs = lesson
    rows = tmp_path / "pairs.jsonl"
    rows.write_text("\n".join(pairs.read_text().splitlines()[:8]) + "\n")
    train(options(lesson, batch=24), tmp_path / "run")
    moved = tmp_path / "run" / "model"
    learner = ModelLearner(options(lesson), torch)
    method = Preference(options(lesson, data=(str(rows),), batch=8), learner)
    trained = AutoModelForCausalLM.from_pretrained(moved)
    for name, weight in trained.named_parameters():
        if name in learner.exact:
            learner.exact[name].copy_(weight.detach())
            learner.weights[name].data.copy_(weight.detach())
    ours = float(method.gradients(next(method.batches(0)))["loss"])
    config = DPOConfig(
        str(tmp_path / "trl"), beta=0.1, per_device_train_batch_size=8, report_to=[], use_cpu=True, bf16=False
    )
    trainer = DPOTrainer(
        trained,
        AutoModelForCausalLM.from_pretrained(base),
        config,
        train_dataset=load_dataset("json", data_files=str(rows), split="train"),
        processing_class=method.encoder.tokenizer,
    )
    theirs = trainer.compute_loss(trainer.model, next(iter(trainer.get_train_dataloader()))).item()
    assert ours == pytest.approx(theirs, abs=1e-4) and abs(ours - 0.6931) > 0.001


def test_a_row_without_a_pair_is_refused(lesson: tuple[Path, Path], tmp_path: Path) -> None:
    from kibitz.teach.dpo import train

    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"messages": []}) + "\n")
    with pytest.raises(BadInput, match="`prompt`, `chosen` and `rejected`"):
        train(options(lesson, data=(str(rows),)), tmp_path / "run")
