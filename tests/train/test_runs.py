"""Runs: the same seed twice, many seeds at once, crashes, Ctrl-C, and the contents of the rows."""

from __future__ import annotations

import json
import math
import random
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from kibitz.cli import app
from kibitz.core.errors import BadInput
from kibitz.train.phase import TrainingPhase
from kibitz.train.run.run import Run
from kibitz.train.start import prepare
from tests.train.conftest import TINY, Command, assert_same_run, last_checkpoint, merged, rows, tiny_job

# a row every update, so that a signal lands between rows; checkpoints at other steps than evaluations
LONG = {
    "train": {"num_train_steps": 32 * 300},
    "logging": {"log_every": 32, "eval_every": 32 * 50, "save_every": 32 * 40},
}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("config") / "long.yaml"
    path.write_text(yaml.safe_dump(merged(TINY, LONG)), encoding="utf-8")
    return str(path)


@pytest.fixture
def never_stopped(train: Callable[..., Any]) -> Path:
    folder, summary = train("never-stopped", **LONG)
    assert summary["finished"]
    assert summary["steps"] == 9600
    return folder


def crash_after(step: int) -> Callable[[dict[str, Any]], None]:
    def report(summary: dict[str, Any]) -> None:
        if summary["step"] >= step:
            raise RuntimeError("power cut")

    return report


def test_the_same_seed_gives_the_same_run_and_another_seed_another(train: Callable[..., Any]) -> None:
    one, _ = train("one", seed=3)
    again, _ = train("again", seed=3)
    assert_same_run(one, again)
    other, _ = train("other", seed=4)
    for name in ("metrics.csv", "evaluations.csv"):
        assert (one / name).read_bytes() != (other / name).read_bytes()


@pytest.mark.conformance
def test_seeds_trained_together_are_those_trained_alone(train: Callable[..., Any]) -> None:
    """Equal up to float32 rounding in a short run: products are batched over the seeds."""
    together, summary = train("together", seed=3, seeds=3, train={"num_train_steps": 160})
    assert len(summary["return_mean"]) == 3
    found = rows(together / "metrics.csv")
    assert [row["seed"] for row in found] == [3, 4, 5] * (len(found) // 3)
    alone, _ = train("alone", seed=4, train={"num_train_steps": 160})
    mine = [row for row in found if row["seed"] == 4]
    for a, b in zip(mine, rows(alone / "metrics.csv"), strict=True):
        assert a == pytest.approx(b, rel=1e-3, abs=1e-5)
    assert len({row["return"] for row in found if row["step"] == 160}) > 1, "seeds differ from each other"


@pytest.mark.conformance
def test_kill_9_at_random_moments_then_resume_equals_an_uninterrupted_run(
    never_stopped: Path, command: Command, config: str, tmp_path: Path
) -> None:
    folder = tmp_path / "killed"
    first, second = sorted(random.SystemRandom().sample(range(45, 250), 2))
    words = ("train", "--config", config, "--out", str(folder), "--json")
    code, _, _ = command.stopped(folder, first, signal.SIGKILL, *words)
    assert code == -signal.SIGKILL, f"killed at row {first}"
    code, _, err = command.stopped(folder, second, signal.SIGKILL, "train", "--resume", "--out", str(folder), "--json")
    assert code == -signal.SIGKILL, f"killed at rows {first} and {second}: {err}"
    done = command(*words, "--resume")  # the same command resumes it
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["finished"]
    assert_same_run(never_stopped, folder)


def test_ctrl_c_saves_and_ends_cleanly_and_resume_equals_an_uninterrupted_run(
    never_stopped: Path, command: Command, config: str, tmp_path: Path
) -> None:
    folder = tmp_path / "stopped"
    words = ("train", "--config", config, "--out", str(folder), "--json")
    code, out, err = command.stopped(folder, 60, signal.SIGINT, *words)
    assert code == 130, err
    assert "Traceback" not in err
    summary = json.loads(out)
    assert summary["finished"] is False
    assert 60 * 32 <= summary["steps"] < 9600
    assert last_checkpoint(folder).name == f"step_{summary['steps']:012d}.safetensors"
    assert not list(folder.rglob("*.part"))
    Run(tiny_job(**LONG), folder).train(resume=True)
    assert_same_run(never_stopped, folder)


def test_a_truncated_checkpoint_is_refused_and_the_previous_one_used(train: Callable[..., Any]) -> None:
    whole, _ = train("whole")
    with pytest.raises(RuntimeError, match="power cut"):
        train("cut", report=crash_after(448))
    folder = whole.parent / "cut"
    newest = last_checkpoint(folder)
    assert newest.name == "step_000000000384.safetensors"
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    _, summary = train("cut", resume=True)
    refused = [note for note in summary["notes"] if newest.name in note]
    assert len(refused) == 1
    assert "not a complete checkpoint" in refused[0]
    assert refused[0] in json.loads((folder / "run.json").read_text())["notes"]
    assert_same_run(whole, folder)


def test_resuming_a_finished_run_changes_nothing(train: Callable[..., Any], tmp_path: Path) -> None:
    folder, summary = train("done")
    shutil.copytree(folder, tmp_path / "copy")
    _, again = train("done", resume=True)
    assert again["finished"]
    assert again["return_mean"] == summary["return_mean"]
    assert_same_run(folder, tmp_path / "copy")


def test_a_finished_run_given_more_steps_equals_one_that_had_them_from_the_start(
    train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = train("whole")
    folder, _ = train("part", train={"num_train_steps": 320})
    run = prepare(out=str(folder), resume=True, steps=640)
    monkeypatch.delattr(TrainingPhase, "compile_ahead")  # what it would compile, only a new run needs
    assert run.train(resume=True)["steps"] == 640
    assert_same_run(whole, folder)
    assert prepare(out=str(folder), resume=True).job.train.num_train_steps == 640  # the config has them, too


def test_a_run_of_an_earlier_version_resumes_with_the_config_that_started_it(tmp_path: Path) -> None:
    config, folder = tmp_path / "job.yaml", tmp_path / "run"
    config.write_text(yaml.safe_dump(TINY), encoding="utf-8")
    folder.mkdir()
    then = tiny_job().model_dump(mode="json")
    then["train"]["fused"] = False  # the default of that time, which every run recorded
    del then["train"]["autoregressive"]
    (folder / "config.yaml").write_text(yaml.safe_dump(then), encoding="utf-8")
    job = prepare(config=str(config), out=str(folder), resume=True, steps=1280).job
    assert (job.train.num_train_steps, job.train.autoregressive) == (1280, False)
    changed = ["train.autoregressive=true"]
    with pytest.raises(BadInput, match=r"train\.autoregressive is True here but False in .*; --resume can only add"):
        prepare(config=str(config), out=str(folder), resume=True, steps=1280, options=changed)


def test_a_run_without_a_complete_checkpoint_starts_again(train: Callable[..., Any]) -> None:
    whole, _ = train("whole")
    with pytest.raises(RuntimeError, match="power cut"):
        train("early", report=crash_after(64))
    train("early", resume=True)
    assert_same_run(whole, whole.parent / "early")


def test_a_folder_that_is_not_empty_is_refused(train: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "notes.txt").write_text("my notes")
    with pytest.raises(BadInput, match="is not empty"):
        train("mine")
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_rows_have_the_mean_over_ended_episodes(train: Callable[..., Any]) -> None:
    """Updates of 2 steps, episodes of 4: half of the updates end none, which must not count as zeros."""
    shape = {"rollout": 2, "num_train_steps": 160}
    folder, _ = train("pairs", train=shape, logging={"log_every": 32, "eval_every": 160, "save_every": 160})
    found = rows(folder / "metrics.csv")
    assert [row["length"] for row in found] == [4.0] * 5
    assert all(row["return"] > 2 for row in found), "even random pulls earn about 4"


def test_a_row_without_an_ended_episode_has_no_return(train: Callable[..., Any]) -> None:
    shape = {"rollout": 2, "num_train_steps": 64}
    folder, _ = train("odd", train=shape, logging={"log_every": 16, "eval_every": 64, "save_every": 64})
    found = rows(folder / "metrics.csv")
    assert [row["episodes"] for row in found] == [0, 8, 0, 8]
    assert [math.isnan(row["return"]) for row in found] == [True, False, True, False]


def test_an_undefined_measure_is_null_without_a_warning(tmp_path: Path) -> None:
    """No act is ever paid, so ceiling and win size are undefined. Warnings are errors in tests."""
    path = tmp_path / "poor.yaml"
    poor = {"env": {"pays": False}, "train": {"num_train_steps": 64}}
    path.write_text(yaml.safe_dump(merged(TINY, poor)), encoding="utf-8")
    done = CliRunner().invoke(app, ["train", "--config", str(path), "--out", str(tmp_path / "poor"), "--json"])
    assert done.exit_code == 0, done.output
    assert "Warning" not in done.stderr
    summary = json.loads(done.stdout)
    assert summary["return_mean"] == [0.0]
    assert summary["win_size"] == [None]
    assert summary["share_of_ceiling"] == [None]


def test_training_works_off_the_main_thread_and_leaves_ctrl_c_alone(train: Callable[..., Any]) -> None:
    before = signal.getsignal(signal.SIGINT)
    summary: list[Any] = []
    worker = threading.Thread(target=lambda: summary.append(train("thread", train={"num_train_steps": 64})[1]))
    worker.start()
    worker.join()
    assert summary[0]["finished"]
    assert signal.getsignal(signal.SIGINT) is before


def test_the_folder_records_job_versions_and_devices(train: Callable[..., Any]) -> None:
    folder, summary = train("known", seed=7)
    about = json.loads((folder / "run.json").read_text())
    assert (about["seed"], about["game"], about["game_version"]) == (7, "two_arms", 1)
    assert all(about[name] for name in ("kibitz", "jax", "optax", "python", "devices"))
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["train"]["num_train_steps"] == 640
    assert config["train"]["gamma"] == 0.99, "resolved: defaults are written too"
    assert (folder / "learning_curve.png").read_bytes()[:4] == b"\x89PNG"
    assert [row["step"] for row in rows(folder / "evaluations.csv")] == [160, 320, 480, 640]
    assert {path.name for path in (folder / "checkpoints").iterdir()} == {
        f"step_{step:012d}.safetensors" for step in (128, 256, 384, 512, 640)
    }
    assert np.isfinite(summary["return_mean"]).all()


@pytest.mark.conformance
def test_entropy_and_learning_rate_end_where_they_should(train: Callable[..., Any]) -> None:
    folder, _ = train("annealed", train={"ent": 0.2, "ent_final": 0.0, "lr_final": 0.0}, logging={"log_every": 32})
    ent = [row["ent"] for row in rows(folder / "metrics.csv")]
    assert ent == pytest.approx(np.linspace(0.2, 0.0, 20).tolist(), abs=1e-6)


def test_the_clock_of_a_resumed_run_continues(train: Callable[..., Any]) -> None:
    folder, _ = train("clock", train={"num_train_steps": 320})
    timing = rows(folder / "timing.csv")
    shifted = [{**row, "seconds": row["seconds"] + 1000} for row in timing]
    text = "step,seconds,steps_per_s\n" + "".join(f"{r['step']},{r['seconds']},{r['steps_per_s']}\n" for r in shifted)
    (folder / "timing.csv").write_text(text, encoding="utf-8")
    last_checkpoint(folder).unlink()  # so that there is something to do again
    train("clock", resume=True, train={"num_train_steps": 320})
    assert all(row["seconds"] >= 1000 for row in rows(folder / "timing.csv"))


def test_a_scale_in_the_config_overrides_the_games(train: Callable[..., Any]) -> None:
    short: dict[str, Any] = {"num_train_steps": 64}
    losses = {
        scale: rows(train(f"scale-{scale}", train={**short, "scale": scale})[0] / "metrics.csv")[0]["value_loss"]
        for scale in (None, 8.0, 1.0)  # the toy's own is twice its four rounds
    }
    assert losses[None] == losses[8.0] < losses[1.0]
