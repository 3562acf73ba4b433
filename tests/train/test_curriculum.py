"""Phases of a curriculum, and earlier selves as opponents."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from kibitz.core.errors import BadInput
from kibitz.llm.client.limits import TooManyFailures
from kibitz.train.config import read_job
from kibitz.train.llm_hints.loop import HostHintLoop
from kibitz.train.opponents import bot_of_run, job_at
from kibitz.train.phase import build
from kibitz.train.run import checkpoint
from tests.train import toy
from tests.train.conftest import assert_same_run, rows, tiny_job
from tests.train.test_runs import crash_after

pytestmark = pytest.mark.conformance  # compiles a dozen training programs

ONE_DEVICE = tuple(jax.local_devices()[:1])

# slow enough to play as at the start for a while; the same for most tests, so that they share what is compiled
SLOW = {"lr": 1e-5, "scale": 8.0, "num_train_steps": 640}

# an update is 32 steps; 150 is not a whole number of updates, so that phase ends at 160
PHASES = {
    "train": {**SLOW, "num_train_steps": 480},
    "logging": {"log_every": 32, "eval_every": 160, "save_every": 64},
    "curriculum": [
        {"until": 150, "env": {"rounds": 2}},
        {"until": 320, "env": {"pays": False}, "hints": {"mode": "expert", "cadence_k": 2}},
        {"opponent": "oracle"},
    ],
}


def test_phases_change_the_game_at_the_right_step(train: Callable[..., Any]) -> None:
    folder, summary = train("phases", **PHASES)
    found = rows(folder / "metrics.csv")
    assert [row["step"] for row in found] == list(range(32, 481, 32))
    assert [row["length"] for row in found] == [2.0] * 5 + [4.0] * 10
    assert [row["return"] > 0 for row in found] == [True] * 5 + [False] * 5 + [True] * 5
    advisers = json.loads((folder / "run.json").read_text())["advisers"]
    assert advisers[0] == advisers[2] == "none"
    assert "oracle" in advisers[1]
    assert summary["adviser"] == "none"


def test_resuming_inside_a_later_phase_gives_the_same_curve(train: Callable[..., Any]) -> None:
    whole, _ = train("whole", **PHASES)
    for name, step in (("inside", 416), ("border", 352)):
        with pytest.raises(RuntimeError, match="power cut"):
            train(name, report=crash_after(step), **PHASES)
        train(name, resume=True, **PHASES)
        assert_same_run(whole, whole.parent / name)


def test_a_phase_can_change_the_opponent(train: Callable[..., Any]) -> None:
    """A learner that hardly learns earns 1 less for every hit against the oracle, half of that against arm 0."""
    folder, _ = train(
        "harder",
        train={**SLOW, "num_train_steps": 5120},
        logging={"log_every": 2560, "eval_every": 5120, "save_every": 5120},
        curriculum=[{"until": 2560}, {"opponent": "oracle"}],
    )
    easy, hard = (row["return"] for row in rows(folder / "metrics.csv"))
    assert easy == pytest.approx(3.5, abs=0.35)
    assert hard == pytest.approx(2.5, abs=0.35)


def test_phases_that_need_another_network_are_refused_before_anything_is_written(
    train: Callable[..., Any], tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match="curriculum"):
        train("misfit", curriculum=[{"until": 320}, {"env": {"wide": True}}])
    assert not (tmp_path / "misfit").exists()


def test_hints_that_fail_at_the_start_of_a_phase_leave_a_run_that_can_be_resumed(
    train: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    presets, prompt = tmp_path / "presets.yaml", tmp_path / "prompt.txt"
    presets.write_text("presets: {dead: {provider: openai, base_url: 'http://127.0.0.1:9/v1', model: m}}")
    prompt.write_text("Lucky {{ lucky }}.")
    monkeypatch.setenv("KIBITZ_LLM_PRESETS", str(presets))

    def fails(self: HostHintLoop, learner: Any, settings: Any, count: int) -> Any:
        if count:
            raise TooManyFailures("The model does not answer.")
        return learner, {}

    monkeypatch.setattr(HostHintLoop, "advance", fails)
    border = tmp_path / "border" / "checkpoints" / "step_000000000032.safetensors"
    written: list[Any] = []
    changes = {
        "train": SLOW,
        "logging": {"log_every": 32, "save_every": 32, "eval_every": 640},
        "hints": {"provider": "dead", "prompt_path": str(prompt), "cache": None},
        "curriculum": [{"until": 32}, {"hints": {"mode": "llm"}}],
    }
    for resume in (False, True):  # the second one finds what the first has saved
        with pytest.raises(BadInput, match=r"The model does not answer\. .* saved at step 32; --resume continues"):
            train("border", resume, lambda summary: written.append(load_file(border)), **changes)
    (before,), after = written, load_file(border)
    assert all(before[name].tobytes() == after[name].tobytes() for name in {**before, **after})


def test_a_run_plays_with_the_adviser_of_the_phase_it_was_saved_in() -> None:
    """The phase ends at 150, within an update, so a checkpoint at 160 belongs to it."""
    job = tiny_job(**PHASES)
    at = {step: job_at(job, step) for step in (0, 128, 160, 192, 320, 352, 480)}
    assert [found.hints.mode for found in at.values()] == ["none"] * 3 + ["expert"] * 2 + ["none"] * 2
    assert [found.env.options.get("rounds") for found in at.values()] == [2] * 3 + [None] * 4
    longer = job_at(tiny_job(**{**PHASES, "algo": "reinforce", "train": {"rollout": 64}}), 192)
    assert longer.hints.mode == "expert", "an update of REINFORCE is as long as the longest episode"


def test_a_player_gets_hints_from_the_adviser_of_its_last_phase(tmp_path: Path) -> None:
    job = tiny_job(curriculum=[{"until": 320}, {"hints": {"mode": "random"}}])
    learner = build(job, ONE_DEVICE).begin()
    for step, uniforms in ((320, 0), (640, 1)):
        path = checkpoint.write(tmp_path, learner, step, toy.build(False), job.model_dump(mode="json"))
        assert bot_of_run(str(path)).uniforms == uniforms, "the random adviser needs one, no adviser none"


def pool_of(path: Path) -> Any:
    (found,) = (leaf for leaf in load_file(path).values() if leaf.ndim == 3 and leaf.shape[1] == 16)
    return found[0]


def test_self_play_keeps_a_pool_of_earlier_selves(train: Callable[..., Any]) -> None:
    """In a short run the pool gains a self before each update; a full pool of sixteen drops the oldest."""
    folder, _ = train(
        "selves", opponent="self", train=SLOW, logging={"save_every": 32, "eval_every": 640, "log_every": 640}
    )
    paths = sorted((folder / "checkpoints").iterdir())
    weights = [load_file(path)["weights"][0] for path in paths]  # after updates 1, 2, ...
    last = pool_of(paths[-1])
    for place in range(16):
        update = place + 16 if place < 4 else place
        np.testing.assert_array_equal(last[place], weights[update - 1])
    assert len(np.unique(last, axis=0)) == 16
    assert len(np.unique(pool_of(paths[3]), axis=0)) == 4, "early on mostly the first self"


def test_the_pool_of_selves_follows_the_phases_and_survives_a_crash(train: Callable[..., Any]) -> None:
    changes = {
        "train": SLOW,
        "logging": {"log_every": 32, "save_every": 32, "eval_every": 640},
        "curriculum": [{"until": 128}, {"until": 256, "opponent": "self"}, {"opponent": "oracle"}],
    }
    whole, summary = train("whole", **changes)
    assert summary["finished"]
    with pytest.raises(RuntimeError, match="power cut"):
        train("crashed", report=crash_after(192), **changes)
    train("crashed", resume=True, **changes)
    assert_same_run(whole, whole.parent / "crashed")


def test_reinforce_counts_steps_alike_in_every_phase(train: Callable[..., Any]) -> None:
    """Whole episodes are longer in the second phase; no row may learn from more steps than it counts."""
    folder, _ = train(
        "longer",
        algo="reinforce",
        train={"num_train_steps": 192},
        logging={"log_every": 1, "eval_every": 192, "save_every": 192},
        curriculum=[{"until": 96, "env": {"rounds": 2}}],
    )
    found = rows(folder / "metrics.csv")
    steps = np.diff([0, *(row["step"] for row in found)])
    assert all(row["steps_learnt"] <= step for row, step in zip(found, steps, strict=True))
    assert {row["length"] for row in found} == {2.0, 4.0}


def test_phases_of_the_negotiation_change_turns_hints_partner_mix_and_opponent() -> None:
    parts = [
        {"until": 1000, "env": {"max_turns": 4}},
        {"until": 2000, "env": {"partner": {"heuristic": 1.0, "conceder": 3.0}}, "hints": {"mode": "random"}},
        {"until": 3000, "env": {"partner_threshold": 0.7}, "opponent": "partner:stubborn"},
    ]
    job = read_job(None, {"env": {"id": "DealOrNoDialog-v0"}, "curriculum": parts, "train": {"num_train_steps": 4000}})
    found = job.phases()
    assert [end for end, _ in found] == [1000, 2000, 3000, 4000]
    phases = [build(part, ONE_DEVICE) for _, part in found]
    assert [int(phase.settings.max_turns) for phase in phases] == [4, 10, 10, 10]
    assert [phase.settings.styles.weight.shape[1] for phase in phases] == [1, 2, 1, 1]
    assert [phase.advice for phase in phases] == ["none", "random legal acts", "none", "none"]
    assert [phase.compiled.opponent.name for phase in phases if phase.compiled.opponent] == [
        "heuristic", "heuristic", "partner:stubborn", "heuristic",
    ]  # fmt: skip
    assert float(phases[3].settings.styles.low[1, 0]) == pytest.approx(0.55)
