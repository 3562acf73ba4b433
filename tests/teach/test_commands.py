"""`kibitz teach`: exit codes, and mistakes as one sentence."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kibitz.teach import sft
from kibitz.teach.examples import data
from kibitz.teach.examples.data import Lesson, write_rows
from kibitz.train.run.folder import written_by_us
from tests.teach.test_export import write_adapter
from tests.train import toy


@pytest.mark.parametrize("stopped", [True, False])
def test_only_ctrl_c_ends_a_training_with_130(
    stopped: bool, kibitz: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`--minutes` also stops it early, but as wanted."""

    def train(options: Any, out: Path, resume: bool, minutes: Any, report: Any, stopping: Any) -> dict[str, Any]:
        if stopped:
            signal.raise_signal(signal.SIGINT)
        assert stopping() == stopped
        return {"finished": False}

    monkeypatch.setattr(sft, "train", train)
    done = kibitz("teach", "sft", "--data", "rows.jsonl", "--out", str(tmp_path), "--json")
    assert (done.returncode, done.stdout) == (130 if stopped else 0, '{"finished": false}\n')


def test_a_place_that_cannot_be_written_is_one_sentence(kibitz: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = kibitz("teach", "data", "--out", str(tmp_path / "file" / "rows.jsonl"), "--rows", "1")
    assert done.returncode == 2
    assert "cannot be written (" in done.stderr and done.stderr.count("\n") == 1


def test_a_return_that_no_episode_reaches_ends_the_drawing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "MAX_EMPTY_BATCHES", 2)
    game = toy.build(False)
    with pytest.raises(data.BadInput, match="No position qualifies; lower --min-return"):
        write_rows(tmp_path / "rows.jsonl", game, game.default_options, Lesson(min_return=1e9), 10)


def test_ctrl_c_before_the_first_row_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: Any) -> Iterator[Any]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(data, "_mixed", interrupted)
    game = toy.build(False)
    with pytest.raises(KeyboardInterrupt):
        write_rows(tmp_path / "rows.jsonl", game, game.default_options, Lesson(), 10)
    assert not (tmp_path / "rows.jsonl").exists()


def test_a_style_that_is_never_shown_or_has_two_opponents_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "MAX_EMPTY_BATCHES", 2)
    monkeypatch.setattr(data, "judgements", lambda *given: iter([[], []]))
    game, file = toy.build(False), tmp_path / "rows.jsonl"
    with pytest.raises(data.BadInput, match="No episode qualifies; name another --style or --opponent"):
        write_rows(file, game, game.default_options, Lesson(styles=("bold",)), 10)
    both = Lesson(styles=("bold",), opponents={"random": 1, "heuristic": 1})
    with pytest.raises(data.BadInput, match="--style takes one --opponent"):
        write_rows(file, game, game.default_options, both, 10)
    assert not file.exists()


@pytest.mark.parametrize("words", [["sft", "--data", "rows"], ["dpo", "--data", "rows"], ["grpo"]])
def test_without_the_extra_every_training_says_what_to_install(
    words: list[str], kibitz: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "rows").write_text("{}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)
    done = kibitz("teach", *words, "--out", str(tmp_path / "run"), "--json")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "torch" in done.stderr and "pip install 'kibitz[teach]'" in done.stderr
    assert not (tmp_path / "run").exists()


def test_the_export_of_a_merged_folder_says_what_to_install(
    kibitz: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    adapter = write_adapter(tmp_path / "adapter", np.ones((4, 2), np.float32), np.ones((2, 4), np.float32))
    monkeypatch.setitem(sys.modules, "torch", None)
    done = kibitz(
        "teach", "export", "--adapter", str(adapter), "--out", str(tmp_path / "x"), "--format", "transformers"
    )
    assert done.returncode == 2 and "pip install 'kibitz[teach]'" in done.stderr


@pytest.mark.conformance
def test_a_device_that_does_not_exist_is_one_sentence(kibitz: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("{}\n")
    for device in ("cuda:9", "quantum"):
        given = ["--data", str(tmp_path / "rows"), "--out", str(tmp_path / "run"), "--device", device]
        done = kibitz("teach", "sft", *given, "--json")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert f"There is no device '{device}' here; choose cpu" in done.stderr


@pytest.mark.conformance
def test_a_folder_has_one_training_at_a_time(kibitz: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("{}\n")
    (tmp_path / "run").mkdir()
    with written_by_us(tmp_path / "run"):
        done = kibitz("teach", "dpo", "--data", str(tmp_path / "rows"), "--out", str(tmp_path / "run"))
    assert done.returncode == 2 and "Another training writes to" in done.stderr
