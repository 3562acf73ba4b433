"""Gymnasium's checker on every form of the environment, and our vector environment against Gymnasium's."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from kibitz.games.deal_or_no_deal.envs.gym_env import NegotiationVectorEnv
from kibitz.games.deal_or_no_deal.envs.wrappers import FlatActions, MultiDiscreteActions

pytestmark = pytest.mark.conformance

ID = "kibitz:DealOrNoDialog-v0"
FORMS = [lambda env: env.unwrapped, FlatActions, MultiDiscreteActions]
FORM_NAMES = ["plain", "flat", "multi_discrete"]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"reveal_partner_utilities": True, "opponent": "random", "agent_starts": False},
    {"disagree_ends": False, "max_turns": 4, "illegal": "penalty"},
    {"min_count": 2, "max_count": 7, "clip_offers": True, "agent_starts": True},
    {"points_budget": 10, "partner": {"heuristic": 1.0, "stubborn": 2.0}, "partner_threshold": (0.4, 0.6)},
]


# the checker suggests checking the bare environment; this test checks the wrapper
@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version.*:UserWarning")
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("form", FORMS, ids=FORM_NAMES)
def test_gymnasium_accepts_every_form(form: Any, options: dict[str, Any]) -> None:
    check_env(form(gymnasium.make(ID, **options)))


@pytest.mark.parametrize("form", FORMS, ids=FORM_NAMES)
def test_samples_of_the_action_space_are_legal_by_the_mask(form: Any) -> None:
    env = form(gymnasium.make(ID))
    env.action_space.seed(3)
    for seed in range(100):
        env.reset(seed=seed)
        ended = False
        while not ended:
            action = env.action_space.sample()
            assert env.action_space.contains(action)
            if isinstance(env, FlatActions):
                assert env.action_masks()[action]
            if isinstance(env, MultiDiscreteActions):
                starts = np.cumsum([0, *env.action_space.nvec[:-1]])
                assert env.action_masks()[starts + action].all()
            _, _, ended, _, _ = env.step(action)


@pytest.mark.parametrize("form", FORMS, ids=FORM_NAMES)
def test_spaces_can_be_copied_and_pickled(form: Any) -> None:
    env = form(gymnasium.make(ID))
    for space in (env.action_space, env.observation_space):
        assert copy.deepcopy(space) == space
        assert pickle.loads(pickle.dumps(space)) == space


def assert_same(ours: Any, theirs: Any, where: str) -> None:
    """Values and structure; types may differ, because Gymnasium stacks scalars unchanged."""
    if isinstance(theirs, dict):
        assert set(ours) == set(theirs), where
        for name, value in theirs.items():
            assert_same(ours[name], value, f"{where}[{name!r}]")
    elif isinstance(theirs, np.ndarray) and theirs.dtype == object:
        for mine, other in zip(ours, theirs, strict=True):
            assert_same(mine, other, where)
    else:
        np.testing.assert_array_equal(ours, theirs, err_msg=where)


# the random opponent sometimes ends the game before the learner's first act
WILD = {"opponent": "random", "disagree_ends": False, "illegal": "penalty"}


def random_actions(observations: Any, mask: Any, rng: np.random.Generator, wild: bool) -> dict[str, Any]:
    """Half of them offers, so that games last; wild ones may be illegal."""
    games = len(mask)
    kinds = [rng.integers(2) if rng.random() < 0.5 else rng.choice(np.flatnonzero(row)) for row in mask]
    most = np.full((games, 3), 4) if wild else observations["counts"]
    return {"act_type": np.array(kinds), "oA": rng.integers(0, most + 1)}


@pytest.mark.parametrize(
    ("mode", "options"),
    [(AutoresetMode.NEXT_STEP, {}), *((mode, WILD) for mode in AutoresetMode)],
)
def test_make_vec_agrees_with_gymnasiums_own_vector_environment(mode: AutoresetMode, options: dict[str, Any]) -> None:
    ours = gymnasium.make_vec(ID, 6, vectorization_mode="vector_entry_point", autoreset_mode=mode.value, **options)
    theirs = gymnasium.make_vec(ID, 6, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}, **options)
    assert isinstance(ours, NegotiationVectorEnv)
    assert ours.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"] == mode
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    rng, ended = np.random.default_rng(0), 0
    observations, infos = ours.reset(seed=11)
    assert_same(
        {"observations": observations, "infos": infos},
        dict(zip(("observations", "infos"), theirs.reset(seed=11), strict=True)),
        "reset",
    )
    mask = infos["action_mask"]
    for turn in range(60):
        actions = random_actions(observations, mask, rng, wild=options.get("illegal") == "penalty")
        result, expected = ours.step(actions), theirs.step(actions)
        for name, mine, other in zip(
            ("observations", "rewards", "ends", "cuts", "infos"), result, expected, strict=True
        ):
            assert_same(mine, other, f"turn {turn}: {name}")
        observations, _, ends, _, infos = result
        assert ours.observation_space.contains(observations)
        mask, ended = infos["action_mask"], ended + int(ends.sum())
        if mode is AutoresetMode.DISABLED and ends.any():
            observations, infos = ours.reset(options={"reset_mask": ends.copy()})
            expected = theirs.reset(options={"reset_mask": ends.copy()})
            assert_same(observations, expected[0], f"turn {turn}: observations of the reset")
            assert_same(infos, expected[1], f"turn {turn}: infos of the reset")
            # the infos of a reset describe only the environments that were reset
            mask = np.where(ends[:, None], infos["action_mask"], mask)
    assert ended > 20


def test_an_opponents_first_act_can_end_the_game() -> None:
    env = gymnasium.make(ID, opponent="random", agent_starts=False)
    short, paid = 0, 0.0
    for seed in range(200):
        _, info = env.reset(seed=seed)
        _, reward, ended, _, info = env.step({"act_type": 0, "oA": np.zeros(3, int)})
        if ended:
            assert reward == info["payoffs"][0]
            short, paid = short + 1, paid + reward
    assert short > 50
    assert paid > 0
