"""It learns: the toy by every algorithm and on two devices, the negotiation in a few seconds."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from kibitz.train.config import read_job
from kibitz.train.run.run import Run
from tests.conftest import ROOT
from tests.train.conftest import TINY, TWO_DEVICES, Command, merged, rows
from tests.train.test_runs import crash_after

SOLVE: dict[str, dict[str, Any]] = {
    "ppo": {"lr": 0.02, "ent": 0.02, "ent_final": 0.0, "lr_final": 0.0, "epochs": 4, "minibatch": 64},
    "reinforce": {"lr": 0.02, "minibatch": 64},
    "supervised": {"lr": 0.02, "minibatch": 64},
}


def toy_changes(algo: str) -> dict[str, Any]:
    shape = {"num_envs": 64, "rollout": 4, "num_train_steps": 64 * 4 * 100}
    quiet = {"log_every": 1280, "eval_every": 12800, "save_every": 25600, "eval_episodes": 256}
    return {"algo": algo, "train": shape | SOLVE[algo], "logging": quiet}


@pytest.mark.parametrize("algo", list(SOLVE))
def test_the_two_arms_are_solved(train: Callable[..., Any], algo: str) -> None:
    _, summary = train(algo, **toy_changes(algo))
    assert summary["share_of_ceiling"][0] > 0.97


@pytest.mark.conformance  # a program of its own
def test_the_games_are_split_over_two_devices(command: Command, tmp_path: Path) -> None:
    """The same job on two devices solves the toy too, with the same schedules and counts."""
    path = tmp_path / "two.yaml"
    path.write_text(yaml.safe_dump(merged(TINY, toy_changes("ppo"))), encoding="utf-8")
    folder = tmp_path / "two"
    done = command(
        "train", "--config", str(path), "--out", str(folder), "--json",
        XLA_FLAGS=TWO_DEVICES,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert len(json.loads((folder / "run.json").read_text())["devices"]) == 2
    assert summary["steps"] == 25600
    assert summary["share_of_ceiling"][0] > 0.97
    found = rows(folder / "metrics.csv")
    assert found[-1]["ent"] == pytest.approx(0.0, abs=5e-4), "the schedule ends with the run"
    assert {row["length"] for row in found} == {4.0}
    assert sum(row["episodes"] for row in found) == 25600 / 4


EARLY = 65_536  # steps, 32 updates


@pytest.fixture(scope="module")
def negotiated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[float, float]]:
    """Share of the ceiling by steps for a short `ppo_fast.yaml`, by hint mode.

    Hints of the reference player cost ten times the rest, so that run ends at the early steps.
    """
    found = {}
    for mode in ("none", "expert"):
        changes = {
            "train": {"num_train_steps": 300_000},
            "logging": {"tensorboard": False, "eval_every": EARLY, "save_every": 300_000, "eval_episodes": 512},
            "hints": {"mode": mode},
        }
        job = read_job(ROOT / "configs" / "ppo_fast.yaml", changes)
        run = Run(job, tmp_path_factory.mktemp("negotiation") / mode)
        if mode == "expert":
            run.report = crash_after(EARLY)
        with suppress(RuntimeError):
            run.train()
        found[mode] = {row["step"]: row["share_of_ceiling"] for row in rows(run.folder / "evaluations.csv")}
    return found


@pytest.mark.optimised
@pytest.mark.conformance  # a minute of learning: where nothing else waits for it
def test_the_negotiation_is_learnt_within_300_k_steps(negotiated: dict[str, dict[float, float]]) -> None:
    """Well beyond the 83 % of the ceiling that the partner's first counter-offer is worth."""
    assert max(negotiated["none"]) > 300_000
    assert negotiated["none"][max(negotiated["none"])] > 0.86


@pytest.mark.optimised
@pytest.mark.conformance  # a minute of learning: where nothing else waits for it
def test_expert_hints_reach_more_in_the_same_steps(negotiated: dict[str, dict[float, float]]) -> None:
    assert negotiated["expert"][EARLY] > negotiated["none"][EARLY] + 0.015
