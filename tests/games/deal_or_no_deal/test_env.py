"""`DealOrNoDialog-v0` as its users meet it: Gymnasium's own checks, the vector twin, wrappers, bad input."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import kibitz
from kibitz.core.errors import BadInput
from kibitz.games.deal_or_no_deal.env import FlatActions, MultiDiscreteActions, NegotiationEnv, NegotiationVectorEnv
from tests.games.deal_or_no_deal.oracle import AGREE, DISAGREE, END, INSIST, PROPOSE
from tests.twins import assert_same, play_beside

ID = "kibitz:DealOrNoDialog-v0"
N = 4  # environments in a vector; always as many, because each number is compiled anew
MODES = ["NextStep", "SameStep", "Disabled"]
# the pool of test_rules: 20 points to the partner, 19 to the agent
CONTEXT = {"counts": [4, 1, 2], "my_utilities": [3, 5, 1], "partner_utilities": [1, 4, 6]}


def make(**options: Any) -> NegotiationEnv:
    env = gym.make(ID, **options).unwrapped
    assert isinstance(env, NegotiationEnv)
    return env


def act(act_type: int, *keep: int) -> dict[str, Any]:
    return {"act_type": act_type, "oA": np.array(keep or (0, 0, 0))}


def at_table(env: NegotiationEnv, agent_starts: bool = True) -> tuple[dict[str, Any], dict[str, Any]]:
    return env.reset(seed=0, options={"context": CONTEXT, "agent_starts": agent_starts})


def complaint(call: Callable[[], object]) -> str:
    """One sentence, raised as kibitz.BadInput, which is a ValueError."""
    with pytest.raises(kibitz.BadInput) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    sentence = str(caught.value)
    assert "\n" not in sentence and sentence[-1] in ".?" and len(sentence) > 20
    return sentence


# Gymnasium's own checks

OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "revealed": {"reveal_partner_utilities": True},
    "a disagreement loses a turn": {"disagree_ends": False},
    "the agent begins": {"agent_starts": True},
    "the partner begins": {"agent_starts": False},
    "two turns": {"max_turns": 2},
    "many turns": {"max_turns": 250},
    "large pools": {"min_count": 2, "max_count": 7},
    "points budget": {"points_budget": 10},
    "a mix of partners": {"partner": {"heuristic": 1.0, "conceder": 2, "mirror": 0.5}},
    "a stubborn partner": {"partner": "stubborn"},
    "a threshold range": {"partner_threshold": [0.5, 0.7], "insist_threshold": 0.4},
    "illegal acts cost": {"illegal": "penalty", "illegal_penalty": 2.5},
    "offers are clipped": {"clip_offers": True},
    "another player by name": {"opponent": "partner:conceder"},
    "a random player": {"opponent": "random"},
    "bayes": {"opponent": "bayes"},
    "drawn": {"render_mode": "ansi"},
    "a random partner": {"partner": "random"},
    "one turn": {"max_turns": 1},
    "one turn, the partner's": {"max_turns": 1, "agent_starts": False},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_gymnasium_accepts_the_environment_with(name: str) -> None:
    check_env(make(**OPTIONS[name]))


def test_gymnasium_accepts_the_environment_with_a_data_set(tmp_path: Path) -> None:
    file = tmp_path / "selfplay.txt"
    file.write_text("1 4 2 3 3 0\n1 1 2 0 3 3\n4 1 1 6 2 0\n4 0 1 0 2 5\n")
    check_env(make(use_dataset=True, dataset_path=str(file)))


# Gymnasium would rather check what is inside the wrapper, which the tests above do
@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version:UserWarning")
@pytest.mark.parametrize("wrapper", [FlatActions, MultiDiscreteActions])
def test_gymnasium_accepts_the_wrapped_environment(wrapper: Any) -> None:
    # a sample of such a space knows no mask, so illegal acts must not raise
    check_env(wrapper(make(illegal="penalty")))


def test_the_environment_goes_through_gymnasiums_default_wrappers() -> None:
    env = gym.make(ID)
    env.reset(seed=1)
    for _ in range(50):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()


def test_sampled_actions_are_legal_all_through_an_episode() -> None:
    env = make(disagree_ends=False)
    for seed in range(100):
        env.reset(seed=seed)
        env.action_space.seed(seed)
        over = False
        while not over:
            *_, over, _, _ = env.step(env.action_space.sample())


# What an episode looks like


def test_before_the_partner_speaks_its_act_reads_disagree_with_a_zero_offer() -> None:
    env = make()
    seen, info = at_table(env)
    assert seen["last_partner_act"] == DISAGREE and seen["last_partner_offer_for_me"].tolist() == [0, 0, 0]
    assert info["partner_has_spoken"] == 0 and info["action_mask"].tolist() == [1, 1, 0, 1, 1]
    seen, info = at_table(env, agent_starts=False)
    assert seen["last_partner_act"] == PROPOSE and seen["last_partner_offer_for_me"].tolist() == [4, 1, 0]
    assert info["partner_has_spoken"] == 1 and info["action_mask"].tolist() == [1, 1, 1, 1, 1]


def test_the_observation_is_the_seeds_and_info_has_mask_and_caps() -> None:
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
    assert info["ceiling"] == 17.0  # all but the two balls, which are 12 of 20 to the partner
    # (4, 1, 0) gives 17 and 12: better for both
    assert info["pareto"] is False


def test_a_pareto_optimal_deal_is_called_so() -> None:
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


def test_the_turn_limit_terminates_and_truncation_is_left_to_time_limit() -> None:
    env = make(max_turns=2)
    at_table(env)
    *_, terminated, truncated, _ = env.step(act(PROPOSE, 4, 1, 2))
    assert terminated and not truncated
    limited = gym.make(ID, max_episode_steps=1)
    limited.reset(seed=0, options={"context": CONTEXT})
    *_, terminated, truncated, _ = limited.step(act(PROPOSE, 4, 1, 2))
    assert truncated and not terminated


def test_the_points_budget_says_whether_it_is_met() -> None:
    env = make(points_budget=10)
    met = []
    for seed in range(120):
        seen, info = env.reset(seed=seed)
        worth = int(seen["counts"] @ seen["my_utilities"])
        assert info["budget_is_exact"] == (worth == 10)
        met.append(worth == 10)
    assert any(met) and not all(met)  # three of each type cannot make ten


def test_the_same_seed_gives_the_same_episode_and_another_seed_another() -> None:
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
    assert len(firsts) > 30  # 34 seeds, also those that differ in their upper half only
    assert len({opening(one, None) for _ in range(30)}) > 27  # and an episode is not played twice


def test_rendering_shows_the_table_from_the_agents_side() -> None:
    env = make(render_mode="ansi")
    at_table(env, agent_starts=False)
    drawn = env.render()
    assert drawn is not None and "4 books, 1 hat and 2 balls" in drawn and "PROPOSE" in drawn
    assert make().render() is None


# An episode can be over before the agent has acted: a partner who begins may disagree, or have the only turn.
# Gymnasium knows no such reset, so the first step ends the episode, whatever is played.


@pytest.mark.parametrize("illegal", ["error", "penalty"])
def test_a_step_after_a_reset_never_raises_even_if_the_partner_ended_it_at_once(illegal: str) -> None:
    env = make(max_turns=1, agent_starts=False, illegal=illegal)
    for seed in range(3):
        _, info = env.reset(seed=seed)
        assert info["action_mask"].any()
        _, reward, terminated, truncated, info = env.step(act(PROPOSE, 1, 0, 0))
        assert (reward, terminated, truncated) == (0.0, True, False)
        assert info["agreement"] is False
    with pytest.raises(gym.error.ResetNeeded):
        env.step(act(PROPOSE, 1, 0, 0))


def test_an_agent_without_a_sense_of_the_rules_can_play_a_random_partner() -> None:
    env = make(partner="random")
    env.action_space.seed(0)
    for seed in range(60):
        env.reset(seed=seed)
        terminated = False
        while not terminated:
            _, _, terminated, _, _ = env.step(env.action_space.sample())


def test_rewards_add_up_to_the_payoff_whoever_ended_the_episode() -> None:
    # a random partner now and then selects nothing at once, which leaves everything to the agent
    env = make(partner="random", max_turns=3)
    rng = np.random.default_rng(0)
    paid = 0
    for seed in range(2500):
        _, info = env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            legal = np.flatnonzero(info["action_mask"])
            step = {"act_type": int(rng.choice(legal)), "oA": rng.integers(0, info["oA_max"] + 1)}
            _, reward, over, _, info = env.step(step)
            total += reward
        assert total == info["payoffs"][0], f"seed {seed}"
        paid += total > 0
    assert paid > 200


# The vector twin


def random_actions(rng: np.random.Generator, masks: Any, caps: Any, wild: float = 0.0) -> dict[str, Any]:
    """Legal acts for every environment, except for a share of wild ones."""
    n = len(masks)
    acts, keep = np.zeros(n, np.int64), np.zeros((n, 3), np.int64)
    for i in range(n):
        legal = np.flatnonzero(masks[i])
        # ends of episodes are rarer than offers, so that episodes have some length
        acts[i] = rng.choice(legal) if rng.random() < 0.3 or wild else rng.choice([PROPOSE, INSIST])
        keep[i] = rng.integers(0, caps[i] + 1)
        if rng.random() < wild:
            acts[i], keep[i] = rng.integers(0, 5), rng.integers(0, caps.max() + 1, 3)
    return {"act_type": acts, "oA": keep}


TWINS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything else": {
        "max_turns": 5,
        "disagree_ends": False,
        "reveal_partner_utilities": True,
        "illegal": "penalty",
        "illegal_penalty": 0.5,
        "partner": {"heuristic": 1.0, "conceder": 1.0, "random": 2.0},
        "partner_threshold": (0.5, 0.6),
    },
    "over at once": {"max_turns": 1, "clip_offers": True},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", TWINS)
def test_single_and_vector_environments_agree_step_by_step(mode: str, name: str) -> None:
    steps, options = 40 if name == "over at once" else 250, TWINS[name]

    def choose(rng: np.random.Generator, now: dict[str, Any]) -> dict[str, Any]:
        return random_actions(rng, now["action_mask"], now["oA_max"], 0.2 if options.get("illegal") else 0.0)

    ours = NegotiationVectorEnv(N, autoreset_mode=mode, **options)
    finished = play_beside(ours, lambda: make(**options), choose, ("action_mask", "oA_max"), steps)
    assert finished > steps / 4  # episodes of four environments


def test_the_spaces_of_both_are_the_same() -> None:
    ours, single = NegotiationVectorEnv(N), make()
    theirs = SyncVectorEnv([make for _ in range(N)])
    assert ours.single_observation_space == single.observation_space
    assert ours.observation_space == theirs.observation_space
    # the single environment's space samples legal acts, which a batch of spaces cannot
    assert dict(ours.single_action_space.items()) == dict(single.action_space.items())  # type: ignore[attr-defined]


def test_make_vec_gives_our_vector_environment_in_the_mode_asked_for() -> None:
    for mode, expected in zip(
        [*MODES, AutoresetMode.SAME_STEP], [*AutoresetMode, AutoresetMode.SAME_STEP], strict=True
    ):
        env = gym.make_vec(ID, num_envs=2, vectorization_mode="vector_entry_point", autoreset_mode=mode, max_turns=4)
        assert isinstance(env.unwrapped, NegotiationVectorEnv)
        assert env.metadata["autoreset_mode"] is expected
        seen, _ = env.reset(seed=0)
        assert seen in env.observation_space and seen["turns_remaining"].max() <= 4


def test_the_next_reset_without_a_seed_goes_on_with_the_same_luck() -> None:
    ours, theirs = NegotiationVectorEnv(N), SyncVectorEnv([make for _ in range(N)])
    for seed in ([3, 1, 4, 1], None, [None, 5, None, 9], None):
        assert_same(ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0], f"seed {seed}")


def test_a_masked_reset_leaves_the_other_environments_alone() -> None:
    env = NegotiationVectorEnv(N, autoreset_mode="Disabled", agent_starts=True)
    first, infos = env.reset(seed=3)
    env.step(ask_for_all(infos))
    before = env.step(ask_for_all(infos))[0]
    mask = np.array([False, True, False, True])
    after, infos = env.reset(seed=[100, 101, 102, 103], options={"reset_mask": mask})
    for name, value in after.items():
        np.testing.assert_array_equal(value[~mask], before[name][~mask])
    assert (after["turns_remaining"][mask] == 10).all()
    assert infos["_action_mask"].tolist() == mask.tolist()
    # seeds of environments that were not reset have no effect
    again, _ = env.reset()
    fresh = NegotiationVectorEnv(N, autoreset_mode="Disabled", agent_starts=True)
    fresh.reset(seed=[3, 101, 5, 103])
    expected, _ = fresh.reset()
    assert_same(again, expected)
    assert not np.array_equal(first["counts"], again["counts"])


def ask_for_all(infos: dict[str, Any]) -> dict[str, Any]:
    """An offer that no partner accepts, in every environment."""
    return {"act_type": np.full(N, PROPOSE), "oA": infos["oA_max"].copy()}


def test_stepping_a_finished_episode_needs_a_reset() -> None:
    env = make()
    at_table(env)
    env.step(act(DISAGREE))
    with pytest.raises(gym.error.ResetNeeded):
        env.step(act(PROPOSE, 1, 0, 0))
    many = NegotiationVectorEnv(N, autoreset_mode="Disabled")
    _, infos = many.reset(seed=0)
    many.step(ask_for_all(infos) | {"act_type": np.array([DISAGREE, PROPOSE, PROPOSE, PROPOSE])})
    with pytest.raises(gym.error.ResetNeeded, match="reset_mask"):
        many.step(ask_for_all(infos))


def test_stepping_before_the_first_reset_needs_a_reset() -> None:
    with pytest.raises(gym.error.ResetNeeded):
        make().step(act(PROPOSE, 1, 0, 0))
    with pytest.raises(gym.error.ResetNeeded):
        NegotiationVectorEnv(N).step({"act_type": np.zeros(N, int), "oA": np.zeros((N, 3), int)})


def test_what_was_shown_is_not_changed_by_later_steps() -> None:
    single, many = make(), NegotiationVectorEnv(N)
    for env in (single, many):
        first, info = env.reset(seed=0)
        kept = {name: np.array(value) for name, value in first.items()}, np.array(info["action_mask"])
        for _ in range(3):
            env.step(act(PROPOSE, *info["oA_max"]) if env is single else ask_for_all(info))
        assert_same({name: np.asarray(value) for name, value in first.items()}, kept[0])
        np.testing.assert_array_equal(info["action_mask"], kept[1])


# Acts against the mask

ILLEGAL: dict[str, tuple[dict[str, Any], list[str]]] = {
    # what is played at the table of CONTEXT before the partner spoke, and what the sentence has to name
    "agree without an offer": (act(AGREE), ["act_type", "2", "[0, 1, 3, 4]"]),
    "more hats than there are": (act(PROPOSE, 1, 2, 0), ["hat", "2", "[0, 1]"]),
    "more books than any pool has": (act(INSIST, 5, 0, 0), ["book", "5", "[0, 1, 2, 3, 4]"]),
    "fewer balls than none": (act(END, 0, 0, -1), ["ball", "-1", "[0, 1, 2]"]),
    "more than a machine word holds": (act(PROPOSE, 2**32, 0, 0), ["book", str(2**32), "[0, 1, 2, 3, 4]"]),
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_an_illegal_act_raises_and_changes_nothing(name: str) -> None:
    wrong, words = ILLEGAL[name]
    erring, careful = make(), make()
    assert_same(at_table(erring)[0], at_table(careful)[0])
    sentence = complaint(lambda: erring.step(wrong))
    assert all(word in sentence for word in words), sentence
    for step in (act(PROPOSE, 4, 1, 2), act(INSIST, 4, 1, 1), act(AGREE)):
        a, b = erring.step(step), careful.step(step)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)


@pytest.mark.parametrize("name", ILLEGAL)
def test_an_illegal_act_with_a_penalty_costs_the_turn_and_the_penalty(name: str) -> None:
    env = make(illegal="penalty", illegal_penalty=2.5)
    at_table(env)
    seen, reward, terminated, _, info = env.step(ILLEGAL[name][0])
    assert reward == -2.5 and not terminated
    # the turn is lost, and the partner has answered as it would to nothing
    assert seen["turns_remaining"] == 8 and seen["last_partner_offer_for_me"].tolist() == [4, 1, 0]
    _, reward, _, _, info = env.step(act(AGREE))
    assert reward == 17.0 and info["payoffs"].tolist() == [17.0, 12.0]


def test_a_penalty_on_the_last_turn_is_still_charged() -> None:
    env = make(illegal="penalty", max_turns=1)
    at_table(env)
    _, reward, terminated, _, info = env.step(act(AGREE))
    assert reward == -1.0 and terminated and info["payoffs"].tolist() == [0.0, 0.0]


def test_the_counts_of_agree_and_disagree_are_never_illegal() -> None:
    for act_type, reward in ((AGREE, 17.0), (DISAGREE, 0.0)):
        env = make()
        at_table(env, agent_starts=False)
        assert env.step(act(act_type, 4, 4, 4))[1] == reward


@pytest.mark.parametrize("mode", MODES)
def test_an_illegal_act_in_one_of_many_environments_changes_none_of_them(mode: str) -> None:
    erring, careful = (NegotiationVectorEnv(N, autoreset_mode=mode, agent_starts=True) for _ in range(2))
    erring.reset(seed=2)
    _, infos = careful.reset(seed=2)
    wrong = ask_for_all(infos)
    wrong["act_type"][1] = AGREE
    assert "environment 1" in complaint(lambda: erring.step(wrong))
    too_much = ask_for_all(infos)
    too_much["oA"][2] = [0, 0, 5]
    assert "environment 2" in complaint(lambda: erring.step(too_much))
    for _ in range(3):
        a, b = erring.step(ask_for_all(infos)), careful.step(ask_for_all(infos))
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)


@pytest.mark.parametrize("huge", [2**31, 2**32, 2**32 + 1, -(2**32)])
def test_a_number_too_large_for_the_rules_is_illegal_and_not_wrapped_around(huge: int) -> None:
    actions = {"act_type": np.full(N, DISAGREE), "oA": np.zeros((N, 3), np.int64)}
    actions["act_type"][1], actions["oA"][1] = PROPOSE, [huge, 0, 0]
    env = NegotiationVectorEnv(N, agent_starts=True)
    env.reset(seed=0)
    assert str(huge) in complaint(lambda: env.step(actions))
    lenient = NegotiationVectorEnv(N, agent_starts=True, illegal="penalty")
    lenient.reset(seed=0)
    assert lenient.step(actions)[1].tolist() == [0.0, -1.0, 0.0, 0.0]


def test_clipped_offers_become_the_nearest_legal_ones() -> None:
    env = make(clip_offers=True)
    at_table(env)
    # -1, 7 and 9 become 0, 1 and 2, which leaves the partner 4 of its 20 points
    env.step(act(PROPOSE, -1, 7, 9))
    seen, _, _, _, _ = env.step(act(PROPOSE, 99, 99, 0))  # 4, 1, 0: leaves it 12
    assert seen["last_partner_act"] == AGREE
    at_table(env)
    with pytest.raises(BadInput, match="act_type"):  # clipping is about offers only
        env.step(act(AGREE))


def test_clipped_offers_in_the_vector_environment_are_the_same() -> None:
    ours = NegotiationVectorEnv(N, clip_offers=True, agent_starts=True)
    theirs = SyncVectorEnv([lambda: make(clip_offers=True, agent_starts=True) for _ in range(N)])
    ours.reset(seed=0)
    theirs.reset(seed=0)
    keep = np.array([[9, -2, 1], [0, 9, 9], [2**40, 0, 0], [-5, -5, -5]])
    actions = {"act_type": np.full(4, INSIST), "oA": keep}
    singles = [env.unwrapped.step({"act_type": INSIST, "oA": row}) for env, row in zip(theirs.envs, keep, strict=True)]
    seen, rewards, over, _, _ = ours.step(actions)
    assert rewards.tolist() == [step[1] for step in singles] and over.tolist() == [step[2] for step in singles]
    offers = [step[0]["last_partner_offer_for_me"].tolist() for step in singles]
    assert seen["last_partner_offer_for_me"].tolist() == offers


# Bad input

BAD_OPTIONS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "an unknown option": ({"max_turn": 5}, ["max_turn", "max_turns"]),
    "an option nothing is like": ({"zebra": 5}, ["zebra", "max_turns"]),
    "counts of zero": ({"min_count": 0}, ["min_count", "0", "1"]),
    "no items at all": ({"max_count": 0}, ["max_count", "0", "1"]),
    "more items than heads are made for": ({"max_count": 8}, ["max_count", "8", "7"]),
    "counts the wrong way round": ({"min_count": 3, "max_count": 2}, ["min_count", "3", "max_count", "2"]),
    "no turns": ({"max_turns": 0}, ["max_turns", "0", "1"]),
    "half a turn": ({"max_turns": 2.5}, ["max_turns", "2.5", "integer"]),
    "turns as a word": ({"max_turns": "10"}, ["max_turns", "'10'", "integer"]),
    "a number for a flag": ({"disagree_ends": 1}, ["disagree_ends", "1", "boolean"]),
    "nonsense about who starts": ({"agent_starts": "me"}, ["agent_starts", "'me'", "boolean"]),
    "a kind of partner there is not": ({"partner": "gentle"}, ["gentle", "heuristic", "stubborn"]),
    "a mix with such a kind": ({"partner": {"gentle": 1.0}}, ["gentle", "heuristic", "stubborn"]),
    "a mix of nothing": ({"partner": {}}, ["mix"]),
    "a mix without weight": ({"partner": {"heuristic": 0.0}}, ["weight"]),
    "a mix with a weight below zero": ({"partner": {"heuristic": 1.0, "mirror": -1.0}}, ["weight"]),
    "a mix with a weight that is no number": (
        {"partner": {"heuristic": float("nan")}},
        ["partner.heuristic", "finite"],
    ),
    "a threshold above the whole": ({"partner_threshold": 1.5}, ["partner_threshold", "1.5", "1"]),
    "a range that falls": ({"partner_threshold": (0.7, 0.5)}, ["0.7", "0.5"]),
    "an insist threshold above the other": ({"insist_threshold": 0.9}, ["insist_threshold", "0.9", "0.55"]),
    "a budget of nothing": ({"points_budget": 0}, ["points_budget", "0", "1"]),
    "a data set there is not": ({"dataset": "chess"}, ["dataset", "chess", "self_play", "dialogues"]),
    "a path without use_dataset": ({"dataset_path": "x.txt"}, ["dataset_path", "use_dataset"]),
    "a data file there is not": ({"use_dataset": True, "dataset_path": "/no/where.txt"}, ["/no/where.txt"]),
    "an opponent there is not": ({"opponent": "oracle"}, ["oracle", "heuristic", "bayes", "partner:conceder"]),
    "another way with illegal acts": ({"illegal": "ignore"}, ["illegal", "ignore", "error", "penalty"]),
    "a penalty that is no number": ({"illegal_penalty": "high"}, ["illegal_penalty", "high", "number"]),
    "a penalty that is not finite": ({"illegal_penalty": float("nan")}, ["illegal_penalty", "nan", "number"]),
    "a penalty that is a reward": ({"illegal_penalty": -1.0}, ["illegal_penalty", "-1.0", "0"]),
    "another render mode": ({"render_mode": "human"}, ["human", "ansi"]),
}


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_a_bad_option_is_named_with_what_would_be_right(name: str) -> None:
    options, words = BAD_OPTIONS[name]
    sentence = complaint(lambda: NegotiationEnv(**options))
    assert all(word in sentence for word in words), sentence
    complaint(lambda: NegotiationVectorEnv(2, **options))


def test_a_bad_option_is_named_through_gym_make_too() -> None:
    assert "max_turns" in complaint(lambda: gym.make(ID, max_turn=5))


BAD_ACTIONS: dict[str, Any] = {
    "nothing": None,
    "a number": 3,
    "a list": [0, 1, 1, 1],
    "no counts": {"act_type": 0},
    "no act": {"oA": [0, 0, 0]},
    "something more": {"act_type": 0, "oA": [0, 0, 0], "why": "because"},
    "two counts": {"act_type": 0, "oA": [0, 0]},
    "four counts": {"act_type": 0, "oA": [0, 0, 0, 0]},
    "a square of counts": {"act_type": 0, "oA": [[0, 0, 0]]},
    "half an item": {"act_type": 0, "oA": [0.5, 0, 0]},
    "no number of items": {"act_type": 0, "oA": [float("nan"), 0, 0]},
    "infinitely many items": {"act_type": 0, "oA": [float("inf"), 0, 0]},
    "counts as text": {"act_type": 0, "oA": "100"},
    "counts as words": {"act_type": 0, "oA": ["1", "0", "0"]},
    "an act in words": {"act_type": "PROPOSE", "oA": [0, 0, 0]},
    "an act as text": {"act_type": "0", "oA": [0, 0, 0]},
    "half an act": {"act_type": 0.5, "oA": [0, 0, 0]},
    "an act past the last": {"act_type": 5, "oA": [0, 0, 0]},
    "an act before the first": {"act_type": -1, "oA": [0, 0, 0]},
    "an act of nothing": {"act_type": None, "oA": [0, 0, 0]},
    "several acts": {"act_type": np.array([0, 1]), "oA": [0, 0, 0]},
}


@pytest.mark.parametrize("illegal", ["error", "penalty"])
@pytest.mark.parametrize("name", BAD_ACTIONS)
def test_an_action_of_the_wrong_shape_or_type_is_a_broken_caller(name: str, illegal: str) -> None:
    env = make(illegal=illegal)
    before = at_table(env)
    sentence = complaint(lambda: env.step(BAD_ACTIONS[name]))
    assert "act_type" in sentence or "oA" in sentence
    assert env.step(act(PROPOSE, 4, 1, 2))[0]["turns_remaining"] == before[0]["turns_remaining"] - 2


BAD_BATCHES: dict[str, Any] = {
    "nothing": None,
    "a list": [0] * N,
    "no counts": {"act_type": np.zeros(N, int)},
    "one act for all": {"act_type": np.zeros(1, int), "oA": np.zeros((N, 3), int)},
    "counts of one for all": {"act_type": np.zeros(N, int), "oA": np.zeros((1, 3), int)},
    "counts in a row": {"act_type": np.zeros(N, int), "oA": np.zeros(3 * N, int)},
    "ragged counts": {"act_type": np.zeros(N, int), "oA": [[0, 0, 0], [0, 0], [0, 0, 0], [0]]},
    "fractions": {"act_type": np.zeros(N, int), "oA": np.full((N, 3), 0.5)},
    "words": {"act_type": np.array(["0"] * N), "oA": np.zeros((N, 3), int)},
    "flags": {"act_type": np.zeros(N, bool), "oA": np.zeros((N, 3), int)},
    "an act past the last": {"act_type": np.array([0, 5, 0, 0]), "oA": np.zeros((N, 3), int)},
    "an act before the first": {"act_type": np.array([-1, 0, 0, 0]), "oA": np.zeros((N, 3), int)},
    "something more": {"act_type": np.zeros(N, int), "oA": np.zeros((N, 3), int), "why": np.zeros(N)},
}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_a_batch_of_the_wrong_shape_or_type_is_a_broken_caller(name: str) -> None:
    env = NegotiationVectorEnv(N, illegal="penalty")
    env.reset(seed=0)
    sentence = complaint(lambda: env.step(BAD_BATCHES[name]))
    assert "act_type" in sentence or "oA" in sentence


BAD_RESETS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "an unknown option": ({"contexts": CONTEXT}, ["contexts", "context", "agent_starts"]),
    "who starts without a context": ({"agent_starts": True}, ["agent_starts", "context"]),
    "no mapping": ({"context": [1, 2, 3]}, ["counts", "my_utilities", "partner_utilities"]),
    "a key missing": ({"context": {"counts": [1, 1, 1]}}, ["counts", "my_utilities", "partner_utilities"]),
    "a key too many": ({"context": CONTEXT | {"turns": 3}}, ["counts", "my_utilities", "partner_utilities"]),
    "counts of zero": ({"context": CONTEXT | {"counts": [4, 0, 2]}}, ["counts", "1", "4"]),
    "counts above the heads": ({"context": CONTEXT | {"counts": [5, 1, 2]}}, ["counts", "1", "4"]),
    "two counts": ({"context": CONTEXT | {"counts": [4, 1]}}, ["counts", "three"]),
    "ragged counts": ({"context": CONTEXT | {"counts": [[4], [1, 2], 3]}}, ["counts", "three"]),
    "utilities above ten": ({"context": CONTEXT | {"my_utilities": [11, 0, 0]}}, ["my_utilities", "0", "10"]),
    "utilities below zero": (
        {"context": CONTEXT | {"partner_utilities": [-1, 0, 0]}},
        ["partner_utilities", "0", "10"],
    ),
    "half a point": ({"context": CONTEXT | {"my_utilities": [0.5, 1, 1]}}, ["my_utilities", "whole"]),
    "flags for counts": ({"context": CONTEXT | {"counts": [True, True, True]}}, ["counts", "whole"]),
    "words": ({"context": CONTEXT | {"counts": "abc"}}, ["counts", "whole"]),
    "nonsense about who starts": ({"context": CONTEXT, "agent_starts": "me"}, ["agent_starts", "'me'", "true"]),
    "a number for who starts": ({"context": CONTEXT, "agent_starts": 1}, ["agent_starts", "1", "true"]),
    "nobody starts": ({"context": CONTEXT, "agent_starts": None}, ["agent_starts", "None", "true"]),
    "several start": ({"context": CONTEXT, "agent_starts": np.array([True, False])}, ["agent_starts", "true"]),
}


@pytest.mark.parametrize("name", BAD_RESETS)
def test_a_bad_reset_option_is_named_and_the_episode_goes_on(name: str) -> None:
    options, words = BAD_RESETS[name]
    env = make()
    at_table(env)
    sentence = complaint(lambda: env.reset(seed=77, options=options))
    assert all(word in sentence for word in words), sentence
    assert env.step(act(PROPOSE, 4, 1, 0))[1] == 17.0


BAD_VECTOR_RESETS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "an unknown option": ({"options": {"context": CONTEXT}}, ["context", "reset_mask"]),
    "a mask that is a list": ({"options": {"reset_mask": [True, False]}}, ["reset_mask", "(4,)"]),
    "a mask of numbers": ({"options": {"reset_mask": np.array([1, 0, 1, 0])}}, ["reset_mask", "boolean"]),
    "a mask of another length": ({"options": {"reset_mask": np.array([True])}}, ["reset_mask", "(4,)"]),
    "a mask of nobody": ({"options": {"reset_mask": np.zeros(N, bool)}}, ["reset_mask", "True"]),
    "too few seeds": ({"seed": [1]}, ["1", "4", "seed"]),
    "a seed below zero among others": ({"seed": [1, 2, -1, 4]}, ["seed", "-1", "0"]),
    "a seed in words": ({"seed": "seven"}, ["seed", "seven"]),
    "half a seed": ({"seed": 0.5}, ["seed", "0.5"]),
}


@pytest.mark.parametrize("name", BAD_VECTOR_RESETS)
def test_a_bad_reset_of_the_vector_environment_changes_nothing(name: str) -> None:
    arguments, words = BAD_VECTOR_RESETS[name]
    env, other = (NegotiationVectorEnv(N, autoreset_mode="Disabled") for _ in range(2))
    env.reset(seed=1)
    other.reset(seed=1)
    sentence = complaint(lambda: env.reset(**arguments))
    assert all(word in sentence for word in words), sentence
    assert_same(env.reset()[0], other.reset()[0])


@pytest.mark.parametrize("seed", [-1, "seven", 0.5])
def test_a_seed_that_is_no_whole_number_from_zero_on_is_refused_and_changes_nothing(seed: Any) -> None:
    env, other = make(), make()
    for one in (env, other):
        one.reset(seed=1)
    with pytest.raises((BadInput, gym.error.Error), match=r"(?i)seed"):
        env.reset(seed=seed)
    assert_same(env.reset()[0], other.reset()[0])


def test_the_first_reset_cannot_leave_out_an_environment() -> None:
    env = NegotiationVectorEnv(N, autoreset_mode="Disabled")
    assert "reset_mask" in complaint(lambda: env.reset(options={"reset_mask": np.arange(N) > 0}))


@pytest.mark.parametrize("number", [0, -1, 1.5, "two", None])
def test_the_number_of_environments_is_a_whole_number_of_at_least_one(number: Any) -> None:
    assert "num_envs" in complaint(lambda: NegotiationVectorEnv(number))


@pytest.mark.parametrize("mode", ["next_step", "Sometimes", 3, None])
def test_an_unknown_autoreset_mode_is_named_with_those_there_are(mode: Any) -> None:
    sentence = complaint(lambda: NegotiationVectorEnv(2, autoreset_mode=mode))
    assert all(word in sentence for word in ("autoreset", *MODES)), sentence


# Wrappers


def test_flat_actions_are_every_act_once() -> None:
    env = FlatActions(make())
    assert env.action_space == gym.spaces.Discrete(2 + 3 * 5**3)
    acts = [env.action(i) for i in range(2 + 3 * 5**3)]
    assert len({(a["act_type"], *a["oA"].tolist()) for a in acts}) == len(acts)


@pytest.mark.parametrize("wrapper", [FlatActions, MultiDiscreteActions])
@pytest.mark.parametrize("agent_starts", [True, False])
def test_the_wrappers_masks_are_open_exactly_for_legal_acts(wrapper: Any, agent_starts: bool) -> None:
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
    env = wrapper(make(max_count=3))
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
                action = [rng.choice(np.flatnonzero(part)) for part in np.split(mask, [5, 9, 13])]
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
    sentence = complaint(lambda: env.step(action))
    assert right in sentence or str(int(right) - 1) in sentence


def test_a_wrapper_around_another_environment_is_refused() -> None:
    other: Any = gym.make("CartPole-v1")
    for wrapper in (FlatActions, MultiDiscreteActions):
        assert "DealOrNoDialog-v0" in complaint(lambda wrapper=wrapper: wrapper(other))  # type: ignore[misc]


def test_masks_before_the_first_reset_need_a_reset() -> None:
    for wrapper in (FlatActions, MultiDiscreteActions):
        with pytest.raises(gym.error.ResetNeeded):
            wrapper(make()).action_masks()


# Importing

IMPORT = """
import sys, time
began = time.perf_counter()
import kibitz
took = time.perf_counter() - began
heavy = [name for name in ("fastapi", "openai", "torch", "jax", "transformers", "pettingzoo") if name in sys.modules]
print(took, *heavy)
"""


def test_importing_kibitz_takes_less_than_a_second_and_loads_nothing_heavy() -> None:
    runs = [
        subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    ]
    assert [run[1:] for run in runs] == [[], []]
    assert min(float(run[0]) for run in runs) < 1.0  # the better of two: the machine may be busy


def test_the_environment_is_there_by_name_and_as_a_class() -> None:
    assert kibitz.NegotiationEnv is NegotiationEnv
    assert issubclass(kibitz.BadInput, ValueError)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = kibitz.nothing
