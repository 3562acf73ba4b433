"""`kibitz teach`: exit codes, and mistakes as one sentence."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kibitz.teach import data, sft
from kibitz.teach.data import Lesson, write_rows
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
    with pytest.raises(data.BadInput, match=r"No position qualifies after 0 rows, .*lower --min-return"):
        write_rows(tmp_path / "rows.jsonl", game, game.default_options, Lesson(min_return=1e9), 10)
