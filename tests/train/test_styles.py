"""Rewards for styles: paid by the true function, or by a judge that is asked between rollouts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import yaml

from kibitz.core.errors import BadInput
from kibitz.train.phase import build
from tests.advice.conftest import fake, presets  # noqa: F401
from tests.llm import fake_server
from tests.llm.fake_server import CannedResponse, FakeServer, completion
from tests.train.conftest import rows, tiny_job

ONE_DEVICE = tuple(jax.local_devices()[:1])
BOLD = {"mode": "style", "style": "bold"}
JUDGED = {"mode": "llm_judge", "style": "bold", "provider": "truthful", "cache": None}
Train = Callable[..., tuple[Path, dict[str, Any]]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": {"mode": "style", "style": "calm"}}, "two_arms has no style 'calm'; choose one of bold, shy"),
        ({"reward": {"mode": "style"}}, "reward.style names no style"),
        ({"reward": {"style": "bold"}}, "reward.mode is payoff"),
        ({"reward": BOLD, "algo": "supervised"}, "--algo supervised imitates the expert"),
        ({"reward": JUDGED, "hints": {"mode": "llm", "provider": "embedded"}}, "cannot be combined with --hint llm"),
        ({"reward": JUDGED | {"prompt_path": "configs/llm_prompt.txt", "provider": "groq"}}, "unknown variables"),
    ],
)
def test_a_reward_that_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as error:
        build(tiny_job(**changes), ONE_DEVICE)
    assert message in str(error.value)


def truthful(request: Any) -> CannedResponse:
    """Answers as the style's function does, from the transcript alone."""
    said = request.body["messages"][-1]["content"]
    pulled = said.split("Alice pulled ")[1].split(" and won")[0].split(", ")
    return CannedResponse(completion(json.dumps({"answer": "yes" if set(pulled) == {"1"} else "no"})))


@pytest.fixture
def judge(presets: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeServer:  # noqa: F811
    monkeypatch.setitem(fake_server.MODELS, "truthful", truthful)
    file = tmp_path / "presets.yaml"
    known = yaml.safe_load(file.read_text(encoding="utf-8"))
    known["presets"]["truthful"] = known["presets"]["fake-good"] | {"model": "truthful"}
    file.write_text(yaml.safe_dump(known), encoding="utf-8")
    return presets


@pytest.mark.conformance
def test_a_learner_paid_for_a_style_shows_it(train: Train) -> None:
    _, shy = train("shy", reward={"mode": "style", "style": "shy"}, train={"num_train_steps": 4000})
    assert shy["style_shy"][0] > 0.95 and shy["style_bold"][0] < 0.05
    assert shy["ones"][0] < 0.1


@pytest.mark.conformance
@pytest.mark.parametrize("algo", ["ppo", "reinforce"])
def test_a_judge_that_tells_the_truth_pays_what_the_styles_function_pays(
    train: Train, judge: FakeServer, algo: str
) -> None:
    own, _ = train("own", algo=algo, reward=BOLD, seeds=2, train={"num_train_steps": 320})
    told, summary = train("told", algo=algo, reward=JUDGED, seeds=2, train={"num_train_steps": 320})
    for one, other in zip(rows(own / "metrics.csv"), rows(told / "metrics.csv"), strict=True):
        assert one["return"] == pytest.approx(other["return"], abs=1e-6)
        assert one["policy_loss"] == pytest.approx(other["policy_loss"], abs=1e-4)
    used = json.loads((told / "run.json").read_text())["judge"]
    episodes = sum(row["episodes"] for row in rows(told / "metrics.csv"))
    assert used["asked"] == episodes == sum(row["judge_given"] for row in rows(told / "metrics.csv"))
    assert used["calls"] == len(judge.requests) < used["asked"], "equal transcripts are asked once per rollout"
    assert summary["style_bold"] and "Alice" in (told / "prompt.txt").read_text()


@pytest.mark.conformance
def test_a_second_training_finds_every_judgement_in_the_cache(train: Train, judge: FakeServer, tmp_path: Path) -> None:
    short = {"num_train_steps": 128}
    cached = JUDGED | {"cache": str(tmp_path / "answers.sqlite")}
    cold, _ = train("cold", reward=cached, train=short)
    asked = len(judge.requests)
    assert asked > 0
    warm, _ = train("warm", reward=cached, train=short)
    assert len(judge.requests) == asked, "no request was sent"
    used = json.loads((warm / "run.json").read_text())["judge"]
    assert used["calls"] == 0 and used["asked"] == json.loads((cold / "run.json").read_text())["judge"]["asked"] > 0
    returns = [[row["return"] for row in rows(folder / "metrics.csv")] for folder in (cold, warm)]
    assert returns[0] == returns[1]
    train("uncached", reward=JUDGED, train=short)
    assert len(judge.requests) > asked, "it was the file that answered"


@pytest.mark.conformance
def test_without_answers_a_judged_run_goes_on_and_counts_them(train: Train, judge: FakeServer) -> None:
    limited = JUDGED | {"budget": {"calls": 5}}
    folder, _ = train("limited", reward=limited, train={"num_train_steps": 128})
    used = json.loads((folder / "run.json").read_text())["judge"]
    assert used["calls"] == 5 and used["failures"]["budget"] > 0
    assert all(np.isfinite(row["return"]) for row in rows(folder / "metrics.csv"))


@pytest.mark.conformance
def test_a_judge_that_fails_too_often_stops_the_run_where_the_policy_says_so(train: Train, judge: FakeServer) -> None:
    failing = JUDGED | {"provider": "refused", "failure_policy": "stop", "failure_window": 10}
    with pytest.raises(BadInput, match=r"of the last 10 questions to the model failed.*saved at step"):
        train("failing", reward=failing)
