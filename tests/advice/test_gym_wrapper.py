"""Hints in the ear of one environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import kibitz
from kibitz.core.errors import BadInput
from kibitz.games.deal_or_no_deal.envs.wrappers import FlatActions
from tests.advice.conftest import KEY, Prompts

OPTIONS = {"context": {"counts": [1, 2, 3], "my_utilities": [4, 2, 2], "partner_utilities": [1, 1, 1]}}
FIRM = {"act_type": 1, "oA": np.array([1, 2, 3])}  # asks for everything: the partner never agrees


def env(provider: str = "random", cadence_k: int = 1, **settings: Any) -> Any:
    bare: Any = gymnasium.make("kibitz:DealOrNoDialog-v0", agent_starts=True).unwrapped
    return kibitz.HintInjectorEnv(bare, provider, cadence_k, **settings)


def walk(wrapped: Any, steps: int, options: Any = OPTIONS) -> list[dict[str, Any]]:
    infos = [wrapped.reset(seed=5, options=options)[1]]
    for _ in range(steps):
        _, _, over, _, info = wrapped.step(FIRM)
        infos.append(info)
        if over:
            break
    return infos


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version.*:UserWarning")
@pytest.mark.parametrize("provider", ["random", "expert"])
def test_the_checker_accepts_it(provider: str) -> None:
    check_env(env(provider))


def test_features_are_ten_numbers_of_a_legal_act() -> None:
    for info in walk(env(), 4)[:-1]:
        features = info["hint_features"]
        assert features.shape == (10,)
        assert features.dtype == np.float32
        assert features[:5].sum() == 1
        assert info["action_mask"][features[:5].argmax()]
        assert ((features >= 0) & (features <= 1)).all()
        assert features[8:].tolist() == [1, 1]
        assert info["hint"] == {"source": "random", "available": True, "latency": 0.0, "attempts": 0, "failure": ""}


def test_a_hint_comes_on_reset_and_after_every_kth_step_and_never_at_the_end() -> None:
    infos = walk(env(cadence_k=2), 20)
    there = [info["hint"]["available"] for info in infos]
    assert there[:-1] == [i % 2 == 0 for i in range(len(there) - 1)]
    assert there[-1] is False
    assert all(not info["hint_features"].any() for info in infos if not info["hint"]["available"])


def test_random_hints_come_from_the_episodes_own_seed() -> None:
    first, again = walk(env(), 4), walk(env(), 4)
    assert all((a["hint_features"] == b["hint_features"]).all() for a, b in zip(first, again, strict=True))
    wrapped = env()
    many = [tuple(wrapped.reset(seed=seed, options=OPTIONS)[1]["hint_features"]) for seed in range(20)]
    assert len(set(many)) > 5


def test_the_cadence_does_not_change_the_hints_of_an_expert_with_memory() -> None:
    every, some = walk(env("expert"), 4), walk(env("expert", 2), 4)
    for a, b in list(zip(every, some, strict=True))[::2]:
        assert (a["hint_features"] == b["hint_features"]).all()
    assert every[0]["hint"]["source"] == "expert:bayes"


def test_a_question_has_the_real_dialogue_and_no_private_values_of_the_partner(prompts: Prompts) -> None:
    summary = []
    for theirs in ([1, 1, 1], [3, 3, 3]):  # the partner acts alike with both
        options = {"context": {**OPTIONS["context"], "partner_utilities": theirs}}
        wrapped = env("llm:fake-good")
        wrapped.reset(seed=0, options=options)
        wrapped.step(FIRM)
        summary.append((list(wrapped._history), prompts()[-2:]))
        wrapped.close()
    assert summary[0][0][0] == {"seat": 0, "act": (1, 1, 2, 3)}
    assert summary[0][0][1]["seat"] == 1
    assert "You: INSIST: I keep 1 book, 2 hats and 3 balls" in summary[0][1][1]
    assert "\nPartner: " in summary[0][1][1]
    assert summary[0] == summary[1]


def test_the_recorded_history_agrees_with_the_observations() -> None:
    bare: Any = gymnasium.make("kibitz:DealOrNoDialog-v0", opponent="random", disagree_ends=False).unwrapped
    wrapped = kibitz.HintInjectorEnv(bare)
    for seed in range(10):
        observation, info = wrapped.reset(seed=seed)
        over = False
        while not over:
            said = [entry["act"] for entry in wrapped._history if entry["seat"] == 1]
            assert bool(said) == bool(info["partner_has_spoken"])
            if said:
                assert said[-1][0] == observation["last_partner_act"]
            if said and said[-1][0] in (0, 1):
                left = observation["counts"] - np.array(said[-1][1:])
                assert (left == observation["last_partner_offer_for_me"]).all()
            action = {"act_type": 1, "oA": observation["counts"]}
            observation, _, over, _, info = wrapped.step(action)


@pytest.mark.usefixtures("presets")
def test_a_models_hint_is_its_answer_as_features() -> None:
    wrapped = env("llm", preset="fake-good")
    info = wrapped.reset(seed=0, options=OPTIONS)[1]
    wrapped.close()
    assert np.allclose(info["hint_features"], [1, 0, 0, 0, 0, 1, 0, 2 / 3, 0.7, 1])
    assert info["hint"]["attempts"] == 1
    assert info["hint"]["latency"] > 0


@pytest.mark.usefixtures("presets")
@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("always-500", "transport"),
        ("rate-limit-400s", "transport"),
        ("cut", "transport"),
        ("html", "transport"),
        ("no-choices", "empty"),
        ("broken-json", "not_json"),
        ("nan", "not_json"),
        ("length-cut", "not_json"),
        ("repeated-key", "wrong_shape"),
        ("boolean", "wrong_shape"),
        ("illegal-act", "illegal"),
        ("above-cap", "illegal"),
        ("401", "refused"),
        ("control", "not_json"),
        ("prose", "not_json"),
        ("good", ""),
    ],
)
def test_a_failed_hint_has_zero_features_and_names_the_failure(model: str, kind: str) -> None:
    wrapped = env(f"llm:fake-{model}")
    info = wrapped.reset(seed=0, options=OPTIONS)[1]
    wrapped.close()
    assert info["hint"]["failure"] == kind
    assert info["hint"]["available"] is (kind == "")
    assert info["hint_features"].any() == (kind == "")
    assert KEY not in json.dumps(info["hint"])


@pytest.mark.usefixtures("presets")
def test_an_unreachable_server_is_a_failed_hint() -> None:
    wrapped = env("llm:refused")
    assert wrapped.reset(seed=0)[1]["hint"]["failure"] == "transport"
    wrapped.close()


def test_a_cached_answer_is_not_asked_for_again(prompts: Prompts, tmp_path: Path) -> None:
    infos = []
    for _ in range(2):
        wrapped = env("llm:fake-good", cache=tmp_path / "answers.sqlite")
        infos.append(wrapped.reset(seed=0, options=OPTIONS)[1])
        wrapped.close()
    assert len(prompts()) == 1
    assert (infos[0]["hint_features"] == infos[1]["hint_features"]).all()
    assert KEY.encode() not in (tmp_path / "answers.sqlite").read_bytes()


def test_the_wrapper_works_on_top_of_other_wrappers() -> None:
    bare: Any = gymnasium.make("kibitz:DealOrNoDialog-v0")
    wrapped = kibitz.HintInjectorEnv(FlatActions(bare))
    wrapped.reset(seed=1)
    wrapped.step(wrapped.env.action_space.sample())
    assert any(entry["seat"] == 0 for entry in wrapped._history)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"provider": "nobody"}, "Unknown hint provider 'nobody'"),
        ({"cadence_k": 0}, "cadence_k is 0"),
        ({"provider": "llm:nobody"}, "no preset 'nobody'"),
        ({"provider": "llm:embedded", "prompt": "no/such/file"}, "no file"),
        ({"provider": "expert", "checkpoint": "no/such/run"}, "no checkpoint"),
    ],
)
def test_invalid_arguments_are_refused_at_the_start(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        env(**settings)


def test_environments_of_other_packages_are_refused() -> None:
    with pytest.raises(BadInput, match="environment of kibitz"):
        kibitz.HintInjectorEnv(gymnasium.make("CartPole-v1"))
