"""The notebook in `examples/` runs from top to bottom."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
TINY = {
    "steps": 512,
    "options": {
        "train.num_envs": 16, "train.rollout": 16, "train.minibatch": 64,
        "logging.eval_episodes": 32, "logging.tensorboard": False,
    },
}  # fmt: skip


@pytest.mark.conformance  # trains two policies
def test_the_notebook_trains_compares_and_plots(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from kibitz.train import start

    train = start.train
    monkeypatch.setattr(start, "train", lambda **given: train(**{**given, **TINY}))  # minutes otherwise
    cells = json.loads((ROOT / "examples" / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert not cell["outputs"], "save the notebook without outputs"
            text = "".join(cell["source"]).replace("EPISODES = 40_000, 3, 500", "EPISODES = 512, 2, 50")
            exec(compile(text, cell["id"], "exec"), names)
    shown = capsys.readouterr().out
    assert "% of the ceiling" in shown and "returns:" in shown
    assert (names["RUNS"] / "curves.pdf").read_bytes().startswith(b"%PDF")
    assert [row["seeds"] for row in names["comparison"].summary()["runs"]] == [2, 2]
    assert len(names["axes"].patches) == 3
