"""Supervised training: it learns, resumes where it stopped, and says what is wrong."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from kibitz.core.errors import BadInput
from kibitz.teach.examples.data import Lesson, write_rows
from tests.teach.models import tiny_model
from tests.train import toy

pytestmark = [pytest.mark.conformance, pytest.mark.usefixtures("one_thread")]  # needs the extra `teach`


@pytest.fixture(scope="module")
def lesson(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model and 512 rows."""
    folder = tmp_path_factory.mktemp("teach")
    game = toy.build(False)
    write_rows(folder / "rows.jsonl", game, game.default_options, Lesson(random_share=0), 512)
    return tiny_model(folder / "model"), folder / "rows.jsonl"


def options(lesson: tuple[Path, Path], **more: Any) -> Any:
    from kibitz.teach.batches import RowOptions

    base, rows = lesson
    given = {"data": (str(rows),), "base": str(base), "batch": 16, "lr": 1e-2, "epochs": 2, "rank": None}
    return RowOptions.read(given | more)


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.numpy import load_file

    (file,) = folder.glob("*.safetensors")
    return load_file(file)


def test_training_lowers_the_loss_and_writes_its_metrics(lesson: tuple[Path, Path], tmp_path: Path) -> None:
    from kibitz.teach.sft import train

    found = train(options(lesson), tmp_path / "run")
    with (tmp_path / "run" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert found["finished"] and float(rows[-1]["loss"]) < 0.5 * float(rows[0]["loss"])


def test_the_faster_forward_pass_gives_the_same_logits_and_gradients(lesson: tuple[Path, Path]) -> None:
    import torch
    from peft import LoraConfig, get_peft_model

    from kibitz.teach.libraries import fuse, load_model

    torch.manual_seed(0)
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False)
    model: Any = get_peft_model(load_model(str(lesson[0]), torch.float32), config)
    tokens = torch.arange(60).reshape(3, 20)

    def computed() -> list[Any]:
        model.zero_grad()
        logits = model(input_ids=tokens, use_cache=False).logits
        logits.square().mean().backward()
        with model.disable_adapter(), torch.no_grad():
            plain = model(input_ids=tokens, use_cache=False).logits
        assert not torch.allclose(plain, logits)
        return [logits.detach(), plain, *(w.grad.clone() for w in model.parameters() if w.grad is not None)]

    before = computed()
    fuse(model)
    assert len(before) > 20
    for old, new in zip(before, computed(), strict=True):
        torch.testing.assert_close(new, old, rtol=1e-4, atol=1e-6)


def test_a_resumed_training_equals_one_that_was_never_stopped(lesson: tuple[Path, Path], tmp_path: Path) -> None:
    from kibitz.teach.sft import train

    chosen = options(lesson, rank=4)
    whole = train(chosen, tmp_path / "whole")
    calls = iter(range(1000))
    part = train(chosen, tmp_path / "part", stopping=lambda: next(calls) == 10)
    assert not part["finished"] and part["steps"] == 11
    with pytest.raises(BadInput, match="add --resume"):
        train(chosen, tmp_path / "part")
    about = tmp_path / "part" / "checkpoint" / "about.json"
    job = json.loads(about.read_text())
    del job["job"]["adapter"]  # as written by a version without this option
    about.write_text(json.dumps(job))
    (tmp_path / "part" / "checkpoint").rename(tmp_path / "part" / ".checkpoint.old")  # killed between two renames
    again = train(chosen, tmp_path / "part", resume=True)
    assert again["finished"] and again["steps"] == whole["steps"]
    one, other = weights(tmp_path / "whole" / "adapter"), weights(tmp_path / "part" / "adapter")
    assert set(one) == set(other) and all((one[name] == other[name]).all() for name in one)


def test_a_checkpoint_of_another_job_is_refused(lesson: tuple[Path, Path], tmp_path: Path) -> None:
    from kibitz.teach.sft import train

    train(options(lesson), tmp_path, stopping=lambda: True)
    with pytest.raises(BadInput, match="trained with batch 16, not 8"):
        train(options(lesson, batch=8), tmp_path, resume=True)


def test_a_damaged_checkpoint_is_refused(lesson: tuple[Path, Path], tmp_path: Path) -> None:
    from kibitz.teach.sft import train

    train(options(lesson), tmp_path, stopping=lambda: True)
    (tmp_path / "checkpoint" / "state.pt").write_bytes(b"half a file")
    with pytest.raises(BadInput, match="Cannot read the checkpoint"):
        train(options(lesson), tmp_path, resume=True)


def test_a_row_without_an_answer_is_refused(lesson: tuple[Path, Path], tmp_path: Path) -> None:
    from kibitz.teach.sft import train

    (tmp_path / "rows.jsonl").write_text('{"messages": []}\n')
    with pytest.raises(BadInput, match="end with the assistant's answer"):
        train(options(lesson, data=(str(tmp_path / "rows.jsonl"),)), tmp_path / "run")


def test_trl_reads_the_same_rows(lesson: tuple[Path, Path], tmp_path: Path) -> None:
    pytest.importorskip("trl")
    from datasets import load_dataset
    from trl import SFTConfig, SFTTrainer

    base, rows = lesson
    config = SFTConfig(
        str(tmp_path), max_steps=1, per_device_train_batch_size=2, report_to=[], use_cpu=True, bf16=False
    )
    trainer = SFTTrainer(str(base), config, train_dataset=load_dataset("json", data_files=str(rows), split="train"))
    assert trainer.train().global_step == 1


def test_a_process_that_is_ended_keeps_its_whole_steps(lesson: tuple[Path, Path], tmp_path: Path) -> None:
    """Ctrl-C during a long step: another thread saves, and the training that continues equals a whole one."""
    from kibitz.core.system import interrupt
    from kibitz.teach.sft import train

    chosen = options(lesson, epochs=1)
    train(chosen, tmp_path / "whole")
    calls = iter(range(1000))

    def ended() -> bool:
        if next(calls) == 6:
            interrupt._rescues[-1]()
            raise SystemExit
        return False

    with pytest.raises(SystemExit):
        train(chosen, tmp_path / "part", stopping=ended)
    again = train(chosen, tmp_path / "part", resume=True)
    assert again["finished"] and again["rows"] == 512 - 7 * 16
    one, other = weights(tmp_path / "whole" / "model"), weights(tmp_path / "part" / "model")
    assert all((one[name] == other[name]).all() for name in one)


def test_rows_that_are_all_too_long_are_an_error(lesson: tuple[Path, Path], tmp_path: Path) -> None:
    from kibitz.teach.sft import train

    with pytest.raises(BadInput, match="Every row has too many tokens"):
        train(options(lesson, max_tokens=16), tmp_path)


def test_a_folder_without_weights_is_one_sentence(lesson: tuple[Path, Path], tmp_path: Path) -> None:
    from kibitz.teach.sft import train

    (tmp_path / "config.json").write_text((lesson[0] / "config.json").read_text())
    with pytest.raises(BadInput, match="transformers cannot read"):
        train(options(lesson, base=str(tmp_path)), tmp_path / "run")


def test_a_training_goes_on_from_an_earlier_one(lesson: tuple[Path, Path], tmp_path: Path) -> None:
    """An adapter on top of an adapter begins where the first one ended."""
    from kibitz.teach.sft import train

    train(options(lesson, rank=8), tmp_path / "first")
    train(options(lesson, rank=8, epochs=1, lr=1e-9, base=str(tmp_path / "first")), tmp_path / "second")
    first, second = ((tmp_path / name / "metrics.csv").read_text().splitlines() for name in ("first", "second"))
    begun, ended, then = (float(line.split(",")[2]) for line in (first[1], first[-1], second[1]))
    assert ended < begun - 0.1 and then == pytest.approx(ended, abs=0.05)


def test_an_adapter_is_trained_further_where_it_stopped(lesson: tuple[Path, Path], tmp_path: Path) -> None:
    import numpy as np

    from kibitz.teach.sft import train

    first = options(lesson, rank=4, epochs=1)
    train(first, tmp_path / "first")
    still = options(lesson, rank=4, epochs=1, lr=1e-12, adapter=str(tmp_path / "first"))
    train(still, tmp_path / "still")
    before, after = weights(tmp_path / "first" / "adapter"), weights(tmp_path / "still" / "adapter")
    assert all(np.allclose(before[name], after[name], atol=1e-6) for name in before)
    with pytest.raises(BadInput, match="has rank 4; add --rank 4"):
        train(options(lesson, rank=2, adapter=str(tmp_path / "first" / "adapter")), tmp_path / "rank")
    with pytest.raises(BadInput, match=r"belongs to .*; name that model as --base"):
        train(options(lesson, rank=4, base="embedded", adapter=str(tmp_path / "first")), tmp_path / "base")
    with pytest.raises(BadInput, match="holds no adapter"):
        train(options(lesson, rank=4, adapter=str(tmp_path)), tmp_path / "none")
