"""What hints of a language model cost: limited by the steps, announced before the first question, then shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from rich.console import Console

from kibitz.cli import output
from kibitz.cli.train import _summary
from kibitz.train.config import Job
from kibitz.train.llm_hints.plan import announcement, fitted, whole_updates
from kibitz.train.phase import build_phases
from kibitz.train.run.run import Run
from tests.llm.fake_server import FakeServer
from tests.train import toy
from tests.train.conftest import tiny_job

NEGOTIATION = "DealOrNoDialog-v0"


@pytest.fixture(autouse=True)
def toy_game() -> Iterator[None]:
    toy.register()
    yield
    toy.unregister()


@pytest.fixture
def prompt(tmp_path: Path) -> Path:
    file = tmp_path / "words.txt"
    file.write_text("Lucky {{ lucky }}, cap {{ cap }}, {{ left }} left.", encoding="utf-8")
    return file


def job(steps: int, mode: str = "llm", algo: str = "ppo", **train: int) -> Job:
    sizes = {"num_envs": 64, "rollout": 128, "minibatch": 64, **train}
    values = {"algo": algo, "env": {"id": NEGOTIATION}, "hints": {"mode": mode}}
    return Job.read({**values, "train": {**sizes, "num_train_steps": steps}}, "key")


@pytest.mark.parametrize("algo", ["ppo", "reinforce"])
@pytest.mark.parametrize("steps", [1, 7, 64, 100, 8192, 8193, 10_000, 1_000_000])
def test_a_run_with_a_models_hints_plays_no_more_steps_than_asked_for(steps: int, algo: str) -> None:
    train = (found := fitted(job(steps, algo=algo))[0]).train
    episode = 6  # REINFORCE plays episodes to their end: ten turns are at most six of the learner
    played = train.updates * train.batch if algo == "ppo" else train.num_train_steps
    assert played == train.num_train_steps
    assert 0.8 * steps <= played <= (steps if algo == "ppo" else max(steps, episode))
    assert train.updates <= 2 * -(-steps // 8192) or algo == "reinforce"
    assert Job.read(found.model_dump(), "key") == found, "its config can be read again"
    assert fitted(found) == (found, [])


def test_a_run_without_a_model_keeps_its_updates() -> None:
    assert fitted(job(64, "expert")) == (job(64, "expert"), [])
    assert fitted(job(16_384)) == (job(16_384), [])


@pytest.mark.parametrize("algo", ["ppo", "reinforce"])
def test_whole_updates_are_not_changed_so_that_runs_can_be_compared(algo: str) -> None:
    whole = whole_updates(job(10_000, algo=algo))
    assert fitted(whole) == (whole, [])
    assert 10_000 <= whole.train.num_train_steps < 10_000 + 8192
    assert whole.train.num_envs == 64 and whole_updates(whole) == whole


def hinted(prompt: Path, model: str = "good", **changes: Any) -> Job:
    hints = {"mode": "llm", "provider": f"fake-{model}", "prompt_path": str(prompt), "cache": None}
    return tiny_job(hints=hints, **changes)


@pytest.mark.usefixtures("presets")
def test_questions_and_their_price_are_announced(prompt: Path) -> None:
    said = announcement(build_phases(hinted(prompt, seeds=2), tuple(jax.local_devices()[:1])))
    assert "at most 80 questions per update (16 games x 4 steps) and 1,296 in all" in said
    dollars = 80 * ((len("Lucky 0, cap 0, 5 left.") + 400) / 3 * 1.0 + 256 * 2.0) / 1e6
    assert f"at most {dollars:.2f} per update" in said
    assert announcement(build_phases(tiny_job(), tuple(jax.local_devices()[:1]))) == ""


@pytest.mark.conformance
def test_a_short_run_asks_no_more_than_announced_and_shows_how_far_it_is(
    prompt: Path, presets: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kibitz.train.llm_hints.loop.REPORT_SECONDS", 0.0)
    seen: list[dict[str, Any]] = []
    run = Run(hinted(prompt, "no-json", train={"num_train_steps": 12}), tmp_path / "run", report=seen.append)
    assert "at most 15 questions per update (3 games x 4 steps) and 15 in all" in announcement(run.phases)
    found = run.train()
    assert found["steps"] == 12 and found["hints"]["asked"] <= 15
    assert found["hints"]["calls"] == len(presets.of("no-json")) <= 15
    asking = [metrics for metrics in seen if "hints_wanted" in metrics]
    assert asking[0]["hints_answered"] < 3, "shown before the first answer"
    assert asking[-1]["hints_answered"] == 15 == asking[-1]["hints_wanted"]
    assert "hints/s" in _summary(asking[-1])
    table = Console(width=200, record=True)
    table.print(output.training_table(found))
    words = " ".join(table.export_text().split())
    assert "hints given │ 0" in words and "hints failed │ 15" in words and "not_json 15" in words
