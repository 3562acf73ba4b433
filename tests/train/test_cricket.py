"""The generic trainer on cricket: tiny runs with hints, and the captain of the config."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from kibitz.evaluate.packs import evaluate_pack
from kibitz.games import get_game, get_pack
from kibitz.train.config import Job, read_job
from kibitz.train.run.run import Run
from tests.conftest import ROOT
from tests.train.conftest import rows

TINY: dict[str, Any] = {
    "env": {"id": "Cricket-v0", "max_overs": 1, "shaping": 0.5},
    "opponent": "balanced",
    "train": {"num_envs": 8, "rollout": 16, "minibatch": 64, "epochs": 1, "hidden": [8], "num_train_steps": 256},
    "logging": {"tensorboard": False, "eval_episodes": 16, "eval_every": 256, "save_every": 256},
}


@pytest.mark.conformance  # half a minute, nearly all of it compiling
def test_the_same_trainer_runs_on_cricket_with_hints(tmp_path: Path) -> None:
    job = Job.read(TINY | {"hints": {"mode": "expert"}})
    run = Run(job, tmp_path / "run")
    summary = run.train(False)
    assert summary["finished"] and 0 <= summary["win"][0] <= 1
    found = rows(tmp_path / "run" / "metrics.csv")
    assert all(math.isfinite(row["entropy"]) for row in found)


@pytest.mark.optimised
@pytest.mark.conformance
def test_a_twelfth_of_the_configs_balls_makes_a_captain_who_beats_the_best_heuristics_on_the_default_pack(
    tmp_path: Path,
) -> None:
    more = {"logging": {"tensorboard": False}, "train": {"num_train_steps": 500_000}}
    job = read_job(ROOT / "configs" / "ppo_cricket.yaml", more)
    Run(job, tmp_path / "captain").train(False)
    game, pack = get_game("cricket"), get_pack("cricket", "default")
    for opponent in ("balanced", "defensive", "shrewd"):
        found = evaluate_pack(game, pack, f"policy:{tmp_path / 'captain'}", opponent)
        assert found["win_share_ci95"][0] > 0.5, (opponent, found["win_share"])
