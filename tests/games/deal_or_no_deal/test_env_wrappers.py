"""Flat and MultiDiscrete actions, with the masks that trainers need."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from kibitz.games.deal_or_no_deal.envs.wrappers import FlatActions, MultiDiscreteActions
from tests.games.deal_or_no_deal.envs import CONTEXT, error_of, make
from tests.games.deal_or_no_deal.oracle import AGREE, DISAGREE, INSIST


# Gymnasium suggests checking the environment inside the wrapper, which test_env does
@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version:UserWarning")
@pytest.mark.parametrize("wrapper", [FlatActions, MultiDiscreteActions])
def test_gymnasium_accepts_the_wrapped_environment(wrapper: Any) -> None:
    # illegal acts must not raise, because the checker samples without a mask
    check_env(wrapper(make(illegal="penalty")))


def test_flat_actions_contain_every_act_once() -> None:
    env = FlatActions(make())
    assert env.action_space == gym.spaces.Discrete(2 + 3 * 5**3)
    acts = [env.action(i) for i in range(2 + 3 * 5**3)]
    assert len({(a["act_type"], *a["oA"].tolist()) for a in acts}) == len(acts)


@pytest.mark.parametrize("wrapper", [FlatActions, MultiDiscreteActions])
@pytest.mark.parametrize("agent_starts", [True, False])
def test_the_wrappers_masks_are_set_exactly_for_legal_acts(wrapper: Any, agent_starts: bool) -> None:
    env = wrapper(make())
    env.reset(seed=0, options={"context": CONTEXT, "agent_starts": agent_starts})
    mask = env.action_masks()
    assert mask.dtype == bool
    if wrapper is MultiDiscreteActions:
        assert env.action_space.nvec.tolist() == [5, 5, 5, 5]
        acts, *counts = np.split(mask, [5, 10, 15])
        assert acts.tolist() == [True, True, not agent_starts, True, True]
        assert [np.flatnonzero(c).tolist() for c in counts] == [[0, 1, 2, 3, 4], [0, 1], [0, 1, 2]]
        return
    assert mask.shape == (env.action_space.n,)
    for index in range(env.action_space.n):
        chosen = env.action(index)
        inside = chosen["act_type"] in (AGREE, DISAGREE) or (chosen["oA"] <= CONTEXT["counts"]).all()
        assert mask[index] == (inside and (chosen["act_type"] != AGREE or not agent_starts))
    assert mask.sum() == 3 * 5 * 2 * 3 + 1 + (not agent_starts)


@pytest.mark.parametrize("wrapper", [FlatActions, MultiDiscreteActions])
def test_masked_samples_of_the_wrappers_never_raise(wrapper: Any) -> None:
    env = wrapper(make())
    rng = np.random.default_rng(0)
    deals = 0
    for seed in range(80):
        env.reset(seed=seed)
        over = False
        while not over:
            mask = env.action_masks()
            if wrapper is FlatActions:
                action: Any = rng.choice(np.flatnonzero(mask))
            else:
                action = [rng.choice(np.flatnonzero(part)) for part in np.split(mask, [5, 10, 15])]
            *_, over, _, info = env.step(action)
        deals += info["agreement"]
    assert deals > 5


def test_both_wrappers_play_the_act_they_name() -> None:
    for wrapper, action in ((MultiDiscreteActions, np.array([INSIST, 4, 0, 1])), (FlatActions, None)):
        env = wrapper(make())
        env.reset(seed=0, options={"context": CONTEXT})
        if action is None:
            rows = env.acts.tolist()
            action = rows.index([INSIST, 4, 0, 1])
        assert env.step(action)[1] == 13.0


BAD_WRAPPED = [
    (FlatActions, -1, "377"),
    (FlatActions, 377, "377"),
    (FlatActions, 0.5, "377"),
    (FlatActions, "1", "377"),
    (FlatActions, None, "377"),
    (FlatActions, np.array([1, 2]), "377"),
    (MultiDiscreteActions, [0, 1, 1], "4"),
    (MultiDiscreteActions, 3, "4"),
    (MultiDiscreteActions, [0, 0.5, 0, 0], "4"),
    (MultiDiscreteActions, ["0", "0", "0", "0"], "4"),
    (MultiDiscreteActions, None, "4"),
    (MultiDiscreteActions, [5, 0, 0, 0], "4"),
]


@pytest.mark.parametrize(("wrapper", "action", "right"), BAD_WRAPPED)
def test_a_wrapped_action_of_the_wrong_shape_or_type_is_refused(wrapper: Any, action: Any, right: str) -> None:
    env = wrapper(make(illegal="penalty"))
    env.reset(seed=0)
    sentence = error_of(lambda: env.step(action))
    assert right in sentence or str(int(right) - 1) in sentence


def test_a_wrapper_around_another_environment_is_refused() -> None:
    other: Any = gym.make("CartPole-v1")
    for wrapper in (FlatActions, MultiDiscreteActions):
        assert "DealOrNoDialog-v0" in error_of(lambda wrapper=wrapper: wrapper(other))  # type: ignore[misc]


def test_masks_before_the_first_reset_need_a_reset() -> None:
    for wrapper in (FlatActions, MultiDiscreteActions):
        with pytest.raises(gym.error.ResetNeeded):
            wrapper(make()).action_masks()
