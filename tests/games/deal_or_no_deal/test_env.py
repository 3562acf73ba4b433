"""`DealOrNoDialog-v0`: Gymnasium's own checks, observations, infos and rewards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from kibitz.core.envs import gym_env
from kibitz.games.deal_or_no_deal.envs.gym_env import NegotiationEnv
from tests.games.deal_or_no_deal.envs import CONTEXT, HEAVY, ID, act, at_table, make
from tests.games.deal_or_no_deal.oracle import AGREE, DISAGREE, INSIST, PROPOSE

OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "revealed": {"reveal_partner_utilities": True},
    "a disagreement loses a turn": {"disagree_ends": False},
    "the agent begins": {"agent_starts": True},
    "the partner begins": {"agent_starts": False},
    "two turns": {"max_turns": 2},
    "many turns": {"max_turns": 250},
    "a stubborn partner": {"partner": "stubborn"},
    "a threshold range": {"partner_threshold": [0.5, 0.7], "insist_threshold": 0.4},
    "illegal acts cost": {"illegal": "penalty", "illegal_penalty": 2.5},
    "offers are clipped": {"clip_offers": True},
    "another player by name": {"opponent": "partner:conceder"},
    "bayes": {"opponent": "bayes"},
    "drawn": {"render_mode": "ansi"},
    "a random partner": {"partner": "random"},
    "one turn": {"max_turns": 1},
    "one turn, the partner's": {"max_turns": 1, "agent_starts": False},
}


OWN_PROGRAM = ("another player by name", "bayes")  # tests/conformance/test_gymnasium.py has more of them


@pytest.mark.parametrize("name", [pytest.param(name, marks=HEAVY if name in OWN_PROGRAM else ()) for name in OPTIONS])
def test_gymnasium_accepts_the_environment_with(name: str) -> None:
    check_env(make(**OPTIONS[name]))


@HEAVY
def test_gymnasium_accepts_the_environment_with_a_data_set(tmp_path: Path) -> None:
    file = tmp_path / "selfplay.txt"
    file.write_text("1 4 2 3 3 0\n1 1 2 0 3 3\n4 1 1 6 2 0\n4 0 1 0 2 5\n")
    check_env(make(use_dataset=True, dataset_path=str(file)))


def test_the_environment_works_in_gymnasiums_default_wrappers() -> None:
    env = gym.make(ID)
    env.reset(seed=1)
    for _ in range(50):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()


def test_sampled_actions_are_legal_throughout_an_episode() -> None:
    env = make(disagree_ends=False)
    for seed in range(100):
        env.reset(seed=seed)
        env.action_space.seed(seed)
        over = False
        while not over:
            *_, over, _, _ = env.step(env.action_space.sample())


def test_before_its_first_act_the_partner_shows_disagree_and_a_zero_offer() -> None:
    env = make()
    seen, info = at_table(env)
    assert seen["last_partner_act"] == DISAGREE and seen["last_partner_offer_for_me"].tolist() == [0, 0, 0]
    assert info["partner_has_spoken"] == 0 and info["action_mask"].tolist() == [1, 1, 0, 1, 1]
    seen, info = at_table(env, agent_starts=False)
    assert seen["last_partner_act"] == PROPOSE and seen["last_partner_offer_for_me"].tolist() == [4, 1, 0]
    assert info["partner_has_spoken"] == 1 and info["action_mask"].tolist() == [1, 1, 1, 1, 1]


def test_the_observation_has_the_seeds_entries_and_info_has_mask_and_caps() -> None:
    seen, info = at_table(make())
    assert set(seen) == {
        "counts",
        "my_utilities",
        "partner_utilities",
        "last_partner_act",
        "last_partner_offer_for_me",
        "turns_remaining",
    }
    assert seen["counts"].tolist() == [4, 1, 2] and seen["my_utilities"].tolist() == [3, 5, 1]
    assert seen["partner_utilities"].tolist() == [0, 0, 0] and seen["turns_remaining"] == 10
    assert info["oA_max"].tolist() == [4, 1, 2]


def test_revealed_utilities_are_in_the_observation() -> None:
    assert at_table(make(reveal_partner_utilities=True))[0]["partner_utilities"].tolist() == [1, 4, 6]


def test_a_deal_is_paid_and_measured() -> None:
    env = make()
    at_table(env)
    seen, reward, terminated, truncated, info = env.step(act(INSIST, 4, 0, 1))  # leaves the partner 10 of 20
    assert (reward, terminated, truncated) == (13.0, True, False)
    assert seen["last_partner_act"] == AGREE and seen["turns_remaining"] == 8
    assert info["payoffs"].tolist() == [13.0, 10.0] and info["agreement"] is True
    assert info["nash_product"] == 130.0 and info["welfare"] == 23.0
    assert info["ceiling"] == 17.0  # everything but the two balls, which are worth 12 of 20 to the partner
    # (4, 1, 0) gives 17 and 12: better for both
    assert info["pareto"] is False


def test_a_pareto_optimal_deal_is_marked_as_one() -> None:
    env = make()
    at_table(env)
    _, reward, _, _, info = env.step(act(PROPOSE, 4, 1, 0))
    assert reward == 17.0 and info["pareto"] is True and info["payoffs"].tolist() == [17.0, 12.0]


def test_no_deal_has_no_payoffs_and_is_not_pareto_optimal() -> None:
    env = make()
    at_table(env)
    _, reward, terminated, truncated, info = env.step(act(DISAGREE))
    assert (reward, terminated, truncated) == (0.0, True, False)
    assert info["payoffs"].tolist() == [0.0, 0.0] and info["agreement"] is False and info["pareto"] is False
    assert info["nash_product"] == 0.0 and info["ceiling"] == 17.0


def test_the_turn_limit_terminates_and_only_time_limit_truncates() -> None:
    env = make(max_turns=2)
    at_table(env)
    *_, terminated, truncated, _ = env.step(act(PROPOSE, 4, 1, 2))
    assert terminated and not truncated
    limited = gym.make(ID, max_episode_steps=1)
    limited.reset(seed=0, options={"context": CONTEXT})
    *_, terminated, truncated, _ = limited.step(act(PROPOSE, 4, 1, 2))
    assert truncated and not terminated


def test_info_says_whether_the_points_budget_is_met() -> None:
    env = make(points_budget=10)
    met = []
    for seed in range(120):
        seen, info = env.reset(seed=seed)
        worth = int(seen["counts"] @ seen["my_utilities"])
        assert info["budget_is_exact"] == (worth == 10)
        met.append(worth == 10)
    assert any(met) and not all(met)  # three of each type cannot make ten


def test_equal_seeds_give_equal_episodes_and_other_seeds_others() -> None:
    def opening(env: NegotiationEnv, seed: int | None) -> tuple[Any, ...]:
        seen, _ = env.reset(seed=seed)
        return tuple(np.concatenate([np.ravel(value) for value in seen.values()]).tolist())

    one, two = make(), make()
    for seed in (0, 1, 2**31, 2**32 + 1, 2**63 - 1):
        assert [opening(one, seed), opening(one, None), opening(one, None)] == [
            opening(two, seed),
            opening(two, None),
            opening(two, None),
        ]
    firsts = {opening(one, seed) for seed in (0, 1, 2**31, 2**32, 2**32 + 1, 2**63 - 1, *range(2, 30))}
    assert len(firsts) > 30  # 34 seeds, some of which differ only in their upper half
    assert len({opening(one, None) for _ in range(30)}) > 27  # and episodes do not repeat


def test_settings_that_are_too_large_to_copy_give_the_same_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    def steps() -> list[Any]:
        env = make()
        return [(env.reset(seed=seed), env.step(act(PROPOSE, 1, 0, 0))) for seed in range(5)]

    copied = steps()
    monkeypatch.setattr(gym_env, "MAX_COPIED", 0)
    np.testing.assert_equal(steps(), copied)


def test_rendering_shows_the_table_from_the_agents_side() -> None:
    env = make(render_mode="ansi")
    at_table(env, agent_starts=False)
    drawn = env.render()
    assert drawn is not None and "4 books, 1 hat and 2 balls" in drawn and "PROPOSE" in drawn
    assert make().render() is None


# An episode can end before the agent acts: a partner that starts may disagree, or have the only turn.
# Gymnasium cannot express that in a reset, so `info["over"]` says it, and the first step ends the episode, whatever
# the action.


@pytest.mark.parametrize("illegal", ["error", "penalty", "lose_turn"])
def test_the_first_step_never_raises_even_if_the_partner_already_ended_the_episode(illegal: str) -> None:
    env = make(max_turns=1, agent_starts=False, illegal=illegal)
    for seed, action in enumerate((act(PROPOSE, 1, 0, 0), act(AGREE), act(PROPOSE, 99, 0, 0))):
        seen, info = env.reset(seed=seed)
        assert seen["turns_remaining"] == 0 and info["over"] is True
        assert info["action_mask"].tolist() == [1, 1, 0, 1, 1], "nothing can be agreed without a turn"
        _, reward, terminated, truncated, info = env.step(action)
        assert (reward, terminated, truncated) == (0.0, True, False)
        assert info["agreement"] is False and info["illegal"] is False
    with pytest.raises(gym.error.ResetNeeded):
        env.step(act(PROPOSE, 1, 0, 0))


def test_only_openings_that_end_the_episode_are_flagged() -> None:
    env = make(opponent="random", agent_starts=False)
    flags = []
    for seed in range(60):
        _, info = env.reset(seed=seed)
        dead = info["over"]
        _, _, terminated, _, info = env.step(act(PROPOSE, 0, 0, 0))
        assert terminated or not dead
        assert info["over"] is terminated
        flags.append(dead)
    assert 5 < sum(flags) < 55


def test_sampled_actions_play_whole_episodes_against_a_random_partner() -> None:
    env = make(partner="random")
    env.action_space.seed(0)
    for seed in range(60):
        env.reset(seed=seed)
        terminated = False
        while not terminated:
            _, _, terminated, _, _ = env.step(env.action_space.sample())


def test_rewards_add_up_to_the_payoff() -> None:
    # a random partner sometimes selects nothing at once, which leaves everything to the agent
    env = make(partner="random", max_turns=3)
    rng = np.random.default_rng(0)
    paid = 0
    for seed in range(1000):
        _, info = env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            legal = np.flatnonzero(info["action_mask"])
            step = {"act_type": int(rng.choice(legal)), "oA": rng.integers(0, info["oA_max"] + 1)}
            _, reward, over, _, info = env.step(step)
            total += reward
        assert total == info["payoffs"][0], f"seed {seed}"
        paid += total > 0
    assert paid > 80
