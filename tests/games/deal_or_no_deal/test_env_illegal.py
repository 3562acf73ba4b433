"""Illegal acts lose the turn; depending on the options they also cost a penalty, raise or are clipped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from kibitz.core.errors import BadInput
from kibitz.games.deal_or_no_deal.envs.gym_env import NegotiationVectorEnv
from tests.games.deal_or_no_deal.envs import N, act, at_table, claim_all, error_of, make
from tests.games.deal_or_no_deal.oracle import AGREE, DISAGREE, END, INSIST, PROPOSE
from tests.twins import assert_same

ILLEGAL: dict[str, tuple[dict[str, Any], list[str]]] = {
    # an action in CONTEXT before the partner's first act, and what the sentence must contain
    "agree without an offer": (act(AGREE), ["act_type", "2", "[0, 1, 3, 4]"]),
    "more hats than there are": (act(PROPOSE, 1, 2, 0), ["hat", "2", "[0, 1]"]),
    "more books than any pool has": (act(INSIST, 5, 0, 0), ["book", "5", "[0, 1, 2, 3, 4]"]),
    "fewer balls than none": (act(END, 0, 0, -1), ["ball", "-1", "[0, 1, 2]"]),
    "more than a machine word holds": (act(PROPOSE, 2**32, 0, 0), ["book", str(2**32), "[0, 1, 2, 3, 4]"]),
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_an_illegal_act_raises_and_changes_nothing(name: str) -> None:
    wrong, words = ILLEGAL[name]
    erring, careful = make(illegal="error"), make(illegal="error")
    assert_same(at_table(erring)[0], at_table(careful)[0])
    sentence = error_of(lambda: erring.step(wrong))
    assert all(word in sentence for word in words), sentence
    for step in (act(PROPOSE, 4, 1, 2), act(INSIST, 4, 1, 1), act(AGREE)):
        a, b = erring.step(step), careful.step(step)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)


@pytest.mark.parametrize("name", ILLEGAL)
def test_an_illegal_act_loses_the_turn_and_info_says_so(name: str) -> None:
    env = make()
    assert at_table(env)[1]["illegal"] is False
    seen, reward, terminated, _, info = env.step(ILLEGAL[name][0])
    assert info["illegal"] is True and reward == 0.0 and not terminated
    assert seen["turns_remaining"] == 8 and seen["last_partner_offer_for_me"].tolist() == [4, 1, 0]
    _, reward, _, _, info = env.step(act(AGREE))
    assert info["illegal"] is False and reward == 17.0


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_the_vector_environment_says_which_acts_were_illegal(mode: str) -> None:
    env = NegotiationVectorEnv(N, autoreset_mode=mode, agent_starts=True, max_turns=2)
    _, infos = env.reset(seed=2)
    assert infos["illegal"].tolist() == [False] * N and infos["_illegal"].all()
    actions = claim_all(infos)
    actions["act_type"][1] = AGREE
    _, rewards, ends, _, infos = env.step(actions)
    assert rewards.tolist() == [0.0] * N and ends.all()
    if mode == "SameStep":
        assert infos["illegal"].tolist() == [False] * N, "these infos are about the next episodes"
        infos = infos["final_info"]
    assert infos["illegal"].tolist() == [False, True, False, False]
    assert infos["over"].all()


def test_samples_take_the_masks_that_environments_hand_out() -> None:
    single, many = make(), NegotiationVectorEnv(N)
    _, info = single.reset(seed=0)
    _, infos = many.reset(seed=0)
    many.action_space.seed(0)
    for _ in range(20):
        action = single.action_space.sample(single.action_masks())
        assert info["action_mask"][action["act_type"]] and (action["oA"] <= info["oA_max"]).all()
        assert single.action_space["act_type"].sample(info["action_mask"]) in np.flatnonzero(info["action_mask"])
        actions = many.action_space.sample(many.action_masks())
        assert many.action_space.contains(actions)
        assert infos["action_mask"][np.arange(N), actions["act_type"]].all()
        assert (actions["oA"] <= infos["oA_max"]).all()
    assert "16 values" in error_of(lambda: many.action_space.sample(many.action_masks()[:, :16]))


@pytest.mark.parametrize("name", ILLEGAL)
def test_an_illegal_act_with_a_penalty_costs_the_turn_and_the_penalty(name: str) -> None:
    env = make(illegal="penalty", illegal_penalty=2.5)
    at_table(env)
    seen, reward, terminated, _, info = env.step(ILLEGAL[name][0])
    assert reward == -2.5 and not terminated
    # the turn is lost, and the partner has answered as if without an offer
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


@pytest.mark.parametrize("mode", ["NextStep", "Disabled"])
def test_an_illegal_act_in_one_environment_changes_none_of_the_others(mode: str) -> None:
    options: dict[str, Any] = {"autoreset_mode": mode, "agent_starts": True, "illegal": "error"}
    erring, careful = (NegotiationVectorEnv(N, **options) for _ in range(2))
    erring.reset(seed=2)
    _, infos = careful.reset(seed=2)
    wrong = claim_all(infos)
    wrong["act_type"][1] = AGREE
    assert "environment 1" in error_of(lambda: erring.step(wrong))
    too_much = claim_all(infos)
    too_much["oA"][2] = [0, 0, 5]
    assert "environment 2" in error_of(lambda: erring.step(too_much))
    for _ in range(3):
        a, b = erring.step(claim_all(infos)), careful.step(claim_all(infos))
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)


@pytest.mark.parametrize("huge", [2**31, 2**32, 2**32 + 1, -(2**32)])
def test_a_count_beyond_32_bits_is_illegal_and_does_not_wrap_around(huge: int) -> None:
    actions = {"act_type": np.full(N, DISAGREE), "oA": np.zeros((N, 3), np.int64)}
    actions["act_type"][1], actions["oA"][1] = PROPOSE, [huge, 0, 0]
    env = NegotiationVectorEnv(N, agent_starts=True, illegal="error")
    env.reset(seed=0)
    assert str(huge) in error_of(lambda: env.step(actions))
    lenient = NegotiationVectorEnv(N, agent_starts=True, illegal="penalty")
    lenient.reset(seed=0)
    assert lenient.step(actions)[1].tolist() == [0.0, -1.0, 0.0, 0.0]


def test_clipped_offers_become_the_nearest_legal_ones() -> None:
    env = make(clip_offers=True, illegal="error")
    at_table(env)
    # -1, 7 and 9 become 0, 1 and 2, which leaves the partner 4 of its 20 points
    env.step(act(PROPOSE, -1, 7, 9))
    seen, _, _, _, _ = env.step(act(PROPOSE, 99, 99, 0))  # 4, 1, 0: leaves it 12
    assert seen["last_partner_act"] == AGREE
    at_table(env)
    with pytest.raises(BadInput, match="act_type"):  # clipping applies to offers only
        env.step(act(AGREE))


def test_the_vector_environment_clips_offers_like_the_single_one() -> None:
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
