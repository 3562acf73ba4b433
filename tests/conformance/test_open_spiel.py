"""OpenSpiel's `bargaining`, the same game without END and DISAGREE, as an independent check of payoffs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyspiel
import pytest

from kibitz.core.envs.both_seats import AGENTS
from kibitz.games.deal_or_no_deal import game as game_for
from kibitz.games.deal_or_no_deal import rules
from kibitz.games.deal_or_no_deal.envs.pettingzoo_env import aec_env
from kibitz.games.deal_or_no_deal.envs.wrappers import flat_acts
from kibitz.games.deal_or_no_deal.options import NegotiationOptions
from kibitz.games.deal_or_no_deal.rules import AGREE, INSIST, PROPOSE, Items

pytestmark = pytest.mark.conformance

OPTIONS = NegotiationOptions(max_count=5, max_turns=10)  # the largest pool of an instance has five of a type
BARGAINING = pyspiel.load_game("bargaining")
INSTANCES = BARGAINING.all_instances()
QUANTITIES = [tuple(offer.quantities) for offer in BARGAINING.all_offers()]


def first_position(number: int) -> Any:
    """OpenSpiel's first position of an instance."""
    state = BARGAINING.new_initial_state()
    state.apply_action(number)
    return state


def random_action(theirs: Any, rng: np.random.Generator) -> int:
    """Accepts one offer in five, so that games end on every turn, and some without a deal."""
    legal = theirs.legal_actions()
    if theirs.agree_action() in legal and rng.random() < 0.2:
        return int(theirs.agree_action())
    return int(rng.choice([action for action in legal if action != theirs.agree_action()]))


def our_act(theirs: Any, action: int, rng: np.random.Generator) -> tuple[int, ...]:
    if action == theirs.agree_action():
        return (AGREE, 0, 0, 0)
    return (int(rng.choice([PROPOSE, INSIST])), *QUANTITIES[action])


# OpenSpiel's player 0 starts; it takes either of our seats
@pytest.mark.parametrize("starter", [0, 1])
def test_turns_legal_acts_and_payoffs_equal_open_spiels_on_every_instance(starter: int) -> None:
    game, settings = game_for(OPTIONS), OPTIONS.settings()
    seats = [starter, 1 - starter]  # of OpenSpiel's players

    @jax.jit
    def begin(counts: Any, mine: Any, others: Any) -> Any:
        return rules.start(settings, Items(*counts), Items(*mine), Items(*others), jnp.int32(starter))

    @jax.jit
    def step(state: Any, act: Any) -> Any:
        after, rewards, over = game.rules.step(settings, state, (tuple(act), tuple(act)), jnp.zeros(0))
        masks = [jnp.concatenate(game.rules.legal(settings, after, seat)) for seat in (0, 1)]
        return after, rewards, over, after.seat, jnp.stack(masks)

    rng, compared, lengths = np.random.default_rng(starter), 0, set()
    for number, instance in enumerate(INSTANCES):
        theirs = first_position(number)
        values = [np.array(instance.values[seats.index(seat)], np.int32) for seat in (0, 1)]
        ours, seat, over = begin(np.array(instance.pool, np.int32), *values), starter, False
        opened = np.concatenate([np.asarray(mask) for mask in game.rules.legal(settings, ours, starter)])
        length = 0
        while not theirs.is_terminal():
            assert not over
            assert seat == seats[theirs.current_player()]
            legal = theirs.legal_actions()
            assert bool(opened[AGREE]) == (theirs.agree_action() in legal)
            kept = opened[5:].reshape(3, -1)
            offers = {q for q in np.ndindex(kept.shape[1:] * 3) if all(kept[i, n] for i, n in enumerate(q))}
            assert offers == {QUANTITIES[action] for action in legal if action != theirs.agree_action()}
            action = random_action(theirs, rng)
            ours, rewards, over, seat, masks = step(ours, np.array(our_act(theirs, action, rng), np.int32))
            opened, seat = np.asarray(masks)[int(seat)], int(seat)
            theirs.apply_action(action)
            length += 1
        assert over
        assert [float(rewards[seats[player]]) for player in (0, 1)] == theirs.returns()
        compared += 1
        lengths.add((length, sum(theirs.returns()) > 0))
    assert compared == 1000
    # deals on every possible turn, and games without one
    assert {length for length, paid in lengths if paid} == set(range(2, 11))
    assert (10, False) in lengths


def test_the_pettingzoo_environment_pays_what_open_spiel_pays() -> None:
    env, rng = aec_env(max_count=5), np.random.default_rng(2)
    index = {tuple(act): i for i, act in enumerate(flat_acts(5).tolist())}
    paid = 0
    for number in rng.permutation(len(INSTANCES))[:200]:
        theirs, instance = first_position(int(number)), INSTANCES[number]
        context = dict(
            zip(("counts", "my_utilities", "partner_utilities"), (instance.pool, *instance.values), strict=True)
        )
        env.reset(options={"context": context, "agent_starts": True})
        while not theirs.is_terminal():
            assert env.agent_selection == AGENTS[theirs.current_player()]
            action = random_action(theirs, rng)
            env.step(index[our_act(theirs, action, rng)])
            theirs.apply_action(action)
        assert all(env.terminations.values())
        assert [env.rewards[agent] for agent in AGENTS] == theirs.returns()
        assert env.infos[AGENTS[0]]["payoffs"].tolist() == theirs.returns()
        paid += sum(theirs.returns()) > 0
    assert paid > 100
