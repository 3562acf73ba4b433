"""Hints in vector environments and in observations: the same as in single environments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from kibitz.core.envs.gym_env import GameEnv
from kibitz.core.envs.gym_vector import GameVectorEnv
from kibitz.core.errors import BadInput
from kibitz.games import get_game
from kibitz.hints import (
    HintAdapter,
    HintInjectorEnv,
    HintInjectorVectorEnv,
    HintObservationEnv,
    HintObservationVectorEnv,
)
from kibitz.train.run.run import Run
from tests.advice.conftest import Prompts
from tests.train import toy
from tests.train.conftest import tiny_job

GAMES = 3
MODES = [mode.value for mode in AutoresetMode]
NEGOTIATION = "kibitz:DealOrNoDialog-v0"
TOY = toy.build(False)


def toy_pair(provider: str, mode: str = "NextStep", cadence_k: int = 2) -> tuple[Any, Any]:
    """One vector environment of the toy, and the same number of single ones; both with hints in their observations."""

    def single() -> Any:
        return HintObservationEnv(HintInjectorEnv(GameEnv(TOY, rounds=5), provider, cadence_k))

    together = HintInjectorVectorEnv(GameVectorEnv(GAMES, TOY, autoreset_mode=mode, rounds=5), provider, cadence_k)
    return HintObservationVectorEnv(together), SyncVectorEnv([single] * GAMES, autoreset_mode=AutoresetMode(mode))


def assert_same(ours: Any, theirs: Any, where: str = "infos") -> None:
    """Infos with the same keys and values; Gymnasium's have no entry where no environment has one."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys(), where
        for name in theirs:
            assert_same(ours[name], theirs[name], f"{where}[{name!r}]")
    elif isinstance(theirs, tuple) or (isinstance(theirs, np.ndarray) and theirs.dtype.kind == "O"):
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other, where)
    else:
        np.testing.assert_array_equal(ours, theirs, err_msg=where)


@pytest.mark.conformance
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("provider", ["random", "expert"])
def test_a_vector_environment_has_the_hints_of_single_environments_in_every_autoreset_mode(
    provider: str, mode: str
) -> None:
    together, apart = toy_pair(provider, mode)
    rng = np.random.default_rng(0)
    results = [envs.reset(seed=7) for envs in (together, apart)]
    over = np.zeros(GAMES, bool)
    for _ in range(13):
        assert_same(*results)
        if mode == "Disabled" and over.any():
            results = [envs.reset(options={"reset_mask": over.copy()}) for envs in (together, apart)]
            assert_same(*results)
        actions = np.stack([rng.integers(0, size, GAMES) for size in TOY.sizes], axis=1)
        results = [envs.step(actions) for envs in (together, apart)]
        over = results[0][2]
    assert together.observation_space == apart.observation_space


def negotiation(count: int, provider: str, **settings: Any) -> Any:
    return HintInjectorVectorEnv(gymnasium.make_vec(NEGOTIATION, num_envs=count), provider, **settings)


def firm(count: int, kept: Any) -> dict[str, Any]:
    """Asks for everything: the partner never agrees."""
    return {"act_type": np.ones(count, np.int64), "oA": kept}


@pytest.mark.conformance
def test_a_model_is_asked_about_all_games_at_once_and_hears_what_single_environments_hear(prompts: Prompts) -> None:
    together = negotiation(GAMES, "llm:fake-good")
    apart = SyncVectorEnv([lambda: HintInjectorEnv(gymnasium.make(NEGOTIATION), "llm:fake-good")] * GAMES)
    asked: list[list[str]] = []
    for envs in (together, apart):
        before = len(prompts())
        observations, infos = envs.reset(seed=3)
        for _ in range(9):  # longer than an episode
            assert (infos["hint_features"].any(1) == infos["hint"]["available"]).all()
            observations, _, _, _, infos = envs.step(firm(GAMES, observations["counts"]))
        envs.close()
        asked.append(sorted(prompts()[before:]))
    assert len(asked[0]) > 3 * GAMES
    assert sorted(set(asked[0])) == sorted(set(asked[1])), "equal questions at the same time are asked once"
    assert any("You: INSIST" in question and "\nPartner: " in question for question in asked[0])


@pytest.mark.conformance
@pytest.mark.usefixtures("presets")
def test_a_failed_hint_of_a_vector_is_zeros_and_names_the_failure() -> None:
    envs = negotiation(2, "llm:fake-broken-json")
    infos = envs.reset(seed=0)[1]
    envs.close()
    assert not infos["hint_features"].any()
    assert infos["hint"]["failure"].tolist() == ["not_json"] * 2
    assert infos["hint"]["attempts"].tolist() == [1, 1]


@pytest.mark.conformance
@pytest.mark.parametrize("revealed", [False, True])
def test_the_adapters_numbers_are_those_that_a_network_of_kibitz_reads(revealed: bool) -> None:
    options = {"reveal_partner_utilities": revealed}
    env = HintInjectorEnv(gymnasium.make(NEGOTIATION, **options))
    adapter, base, game = HintAdapter(env), env._base, get_game("deal_or_no_deal")
    game = get_game("deal_or_no_deal", game.options.read(options, "option"))
    observation, info = env.reset(seed=4)
    over = False
    while not over:
        numbers = adapter(observation, info)
        seen = env._reader.read(base.settings, base._vector)
        features = np.asarray(jax.jit(game.learning.features)(base.settings, seen.view))
        assert numbers.shape == (len(features) + 10,) == adapter.space.shape == ((28 if revealed else 25),)
        np.testing.assert_allclose(numbers, np.concatenate([features, info["hint_features"]]), rtol=2e-7)
        assert adapter.space.contains(numbers)
        observation, _, over, _, info = env.step({"act_type": 1, "oA": observation["counts"]})


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version.*:UserWarning")
def test_the_checker_accepts_observations_with_hints() -> None:
    check_env(HintObservationEnv(HintInjectorEnv(GameEnv(TOY))), skip_render_check=True)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: HintObservationEnv(GameEnv(TOY)).reset(seed=0), "no hint_features; wrap the environment"),
        (lambda: HintAdapter(gymnasium.make("CartPole-v1")), "environment of kibitz"),
        (lambda: HintInjectorVectorEnv(gymnasium.make_vec("CartPole-v1")), "vector environment of kibitz"),
        (lambda: HintInjectorVectorEnv(GameVectorEnv(2, TOY), "nobody"), "Unknown hint provider 'nobody'"),
        (lambda: HintInjectorVectorEnv(GameVectorEnv(2, TOY), cadence_k=0), "cadence_k is 0"),
    ],
)
def test_what_cannot_give_hints_is_refused_with_a_sentence(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        make()


def test_observations_of_a_vector_end_with_its_hints() -> None:
    envs = HintObservationVectorEnv(HintInjectorVectorEnv(GameVectorEnv(GAMES, TOY), "oracle"))
    observations, infos = envs.reset(seed=1)
    assert observations.shape == (GAMES, 3 + 5) == envs.observation_space.shape
    for _ in range(4):
        np.testing.assert_array_equal(observations[:, 3:], infos["hint_features"])
        np.testing.assert_array_equal(observations[:, 4] > 0, observations[:, 0] > 0, "the oracle names the lucky arm")
        observations, _, _, _, infos = envs.step(envs.action_space.sample(envs.action_masks()))


def same_hints(together: Any, single: Callable[[], Any], steps: int) -> None:
    apart = SyncVectorEnv([single] * together.num_envs)
    shown = [envs.reset(seed=5)[1] for envs in (together, apart)]
    for _ in range(steps):
        assert_same(shown[0]["hint"], shown[1]["hint"])
        np.testing.assert_array_equal(shown[0]["hint_features"], shown[1]["hint_features"])
        actions = together.action_space.sample(together.action_masks())
        shown = [envs.step(actions)[4] for envs in (together, apart)]


@pytest.mark.conformance
def test_the_reference_advises_a_vector_as_it_advises_single_environments() -> None:
    """The Bayesian player remembers what the partner has refused."""
    same_hints(negotiation(2, "expert"), lambda: HintInjectorEnv(gymnasium.make(NEGOTIATION), "expert"), 12)


@pytest.mark.conformance
def test_a_trained_policy_advises_a_vector_as_it_advises_single_environments(tmp_path: Path) -> None:
    toy.register()
    try:
        Run(tiny_job(), tmp_path / "run").train()
    finally:
        toy.unregister()
    source = f"policy:{tmp_path / 'run'}"
    envs = HintInjectorVectorEnv(GameVectorEnv(2, TOY), source)
    same_hints(envs, lambda: HintInjectorEnv(GameEnv(TOY), source), 8)
    assert envs.reset(seed=0)[1]["hint"]["source"][0] == source
