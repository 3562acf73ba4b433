"""Short runs of the toy game: in this process, or as the command a user types."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from kibitz.train.config import Job
from kibitz.train.run.run import Run
from tests.train import toy

ROOT = Path(__file__).resolve().parents[2]

# 8 games x 4 steps: an update is 32 steps, an episode one update
TINY: dict[str, Any] = {
    "env": {"id": toy.ENV_ID},
    "train": {
        "num_envs": 8,
        "rollout": 4,
        "minibatch": 16,
        "epochs": 2,
        "hidden": [8],
        "lr": 0.01,
        "num_train_steps": 640,
    },
    "logging": {"tensorboard": False, "log_every": 64, "eval_every": 160, "save_every": 128, "eval_episodes": 32},
}


def merged(old: Any, new: Any) -> Any:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    return {**old, **{name: merged(old.get(name), value) for name, value in new.items()}}


def tiny_job(**changes: Any) -> Job:
    return Job.read(merged(TINY, changes))


def rows(path: Path) -> list[dict[str, float]]:
    with open(path, encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    return [{name: float(value) for name, value in row.items() if name != "hints_from"} for row in found]


def last_checkpoint(folder: Path) -> Path:
    return sorted((folder / "checkpoints").glob("*.safetensors"))[-1]


def assert_same_run(one: Path, other: Path) -> None:
    """Byte for byte in the tables, bit for bit in the last checkpoint."""
    for name in ("metrics.csv", "evaluations.csv"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), f"{name} differs"
    first, second = last_checkpoint(one), last_checkpoint(other)
    assert first.name == second.name
    a, b = load_file(first), load_file(second)
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].tobytes() == b[name].tobytes(), f"{name} of the last checkpoint differs"


@pytest.fixture(autouse=True)
def toy_game() -> Iterator[None]:
    """Every test of this folder finds the toy in the registry."""
    toy.register()
    yield
    toy.unregister()


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., tuple[Path, dict[str, Any]]]:
    """Trains a tiny job into a folder of this name; returns the folder and the run's summary."""

    def run(name: str, resume: bool = False, report: Any = lambda summary: None, **changes: Any) -> Any:
        one = Run(tiny_job(**changes), tmp_path / name, report)
        return one.folder, one.train(resume)

    return run


# for a process that is to see two devices and to compile as the others do
TWO_DEVICES = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"


class Command:
    """`kibitz` with the toy registered, as a process."""

    environment: dict[str, str]

    def __init__(self) -> None:
        self.environment = {**os.environ, "COLUMNS": "120", "PYTHONPATH": str(ROOT)}

    def start(self, *words: str, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.train.toy", *words],
            cwd=ROOT,
            env={**self.environment, **more},
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def __call__(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*words, **more)
        with process:
            out, err = process.communicate(timeout=240)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def stopped(self, folder: Path, rows_first: int, how: signal.Signals, *words: str) -> tuple[int, str, str]:
        """Sends the signal once metrics.csv has this many rows; returns exit code, output and errors."""
        with self.start(*words) as process:
            late = time.monotonic() + 120
            while process.poll() is None and time.monotonic() < late and row_count(folder) < rows_first:
                time.sleep(0.002)
            process.send_signal(how)
            out, err = process.communicate(timeout=120)
            return process.returncode, out, err


def row_count(folder: Path) -> int:
    """Finished rows of metrics.csv, the header not counted."""
    try:
        return max(0, (folder / "metrics.csv").read_text(encoding="utf-8").count("\n") - 1)
    except OSError:
        return 0


@pytest.fixture
def command() -> Command:
    return Command()
