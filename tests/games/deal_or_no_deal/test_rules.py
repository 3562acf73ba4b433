"""A hand-made position for every rule."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kibitz.core.bots import seated
from kibitz.core.errors import BadInput
from kibitz.games.deal_or_no_deal import build, rules
from kibitz.games.deal_or_no_deal.bots import partner
from kibitz.games.deal_or_no_deal.options import NegotiationOptions
from tests.games.deal_or_no_deal import board, oracle
from tests.games.deal_or_no_deal.oracle import AGREE, DISAGREE, END, INSIST, NOTHING, PROPOSE, Act, Game, Triple

# One pool for most positions. To the agent it is worth 4*3 + 1*5 + 2*1 = 19, to the partner
# 4*1 + 1*4 + 2*6 = 20, so that a point is a twentieth: 0.55 is 11 points and 0.5 is 10.
COUNTS: Triple = (4, 1, 2)
MINE: Triple = (3, 5, 1)
THEIRS: Triple = (1, 4, 6)
LEAVES_11: Triple = (3, 0, 1)  # the partner gets 1, 1, 1
LEAVES_10: Triple = (4, 0, 1)  # the partner gets 0, 1, 1
LEAVES_9: Triple = (1, 1, 1)  # the partner gets 3, 0, 1


def table(**changes: Any) -> Game:
    return Game(COUNTS, (MINE, THEIRS), **changes)


def play(game: Game, act: Act) -> tuple[rules.State, list[float], bool]:
    settings = board.settings_for(max_turns=game.max_turns, disagree_ends=game.disagree_ends)
    state, rewards, over = board.play(settings, board.state_of(game), board.plain(act))
    return jax.tree.map(np.asarray, state), np.asarray(rewards).tolist(), bool(over)


def open_acts(game: Game, seat: int) -> list[int]:
    settings = board.settings_for(max_turns=game.max_turns, disagree_ends=game.disagree_ends)
    return np.flatnonzero(board.masks(settings, board.state_of(game))[seat][0]).tolist()


def offered(keep: Triple, kind: int = PROPOSE, **changes: Any) -> Game:
    """The agent has acted and the partner is to answer."""
    return table(**{"seat": 1, "turns_left": 9, "acts": (kind, None), "claims": (keep, None)} | changes)


def countered(keep: Triple, kind: int = PROPOSE, **changes: Any) -> Game:
    """The partner has made a claim and the agent is to answer."""
    return table(**{"turns_left": 9, "acts": (None, kind), "claims": (None, keep)} | changes)


# Agreeing


@pytest.mark.parametrize("seat", [0, 1])
def test_agreeing_without_an_offer_is_illegal(seat: int) -> None:
    assert open_acts(table(seat=seat), seat) == [PROPOSE, INSIST, DISAGREE, END]


@pytest.mark.parametrize("seat", [0, 1])
@pytest.mark.parametrize(("last", "may_agree"), [(PROPOSE, True), (INSIST, True), (DISAGREE, False)])
def test_agree_is_legal_exactly_if_the_other_seats_last_act_was_an_offer(seat: int, last: int, may_agree: bool) -> None:
    # both seats have claims, so that only the last act makes the difference
    acts = (PROPOSE, last) if seat == 0 else (last, PROPOSE)
    game = table(seat=seat, acts=acts, claims=(LEAVES_9, LEAVES_11), turns_left=5, disagree_ends=False)
    assert (AGREE in open_acts(game, seat)) == may_agree


def test_a_seat_cannot_agree_to_its_own_offer() -> None:
    game = table(acts=(PROPOSE, None), claims=(LEAVES_9, None), turns_left=8, disagree_ends=False)
    assert AGREE not in open_acts(game, 0)


def test_agreeing_accepts_the_partners_offer_and_pays_both() -> None:
    state, rewards, over = play(countered((0, 0, 2)), (AGREE, NOTHING))
    assert rewards == [4 * 3 + 1 * 5, 12.0] and over and state.deal
    assert [tuple(claim) for claim in state.claims] == [(4, 1, 0), (0, 0, 2)]


def test_the_counts_of_an_agree_do_not_matter() -> None:
    game = countered((0, 0, 2))
    for keep in (NOTHING, (4, 1, 2), (-3, 99, 0)):
        assert play(game, (AGREE, keep))[1] == [17.0, 12.0]


def test_an_acceptance_by_the_partner_pays_both() -> None:
    # the fault of the implementation the seed summarises
    state, rewards, over = play(offered(LEAVES_11), (AGREE, NOTHING))
    assert rewards == [10.0, 11.0] and over and state.deal


def test_either_seat_can_agree_to_an_insist() -> None:
    assert play(countered((0, 0, 2), INSIST), (AGREE, NOTHING))[1] == [17.0, 12.0]
    assert play(offered(LEAVES_11, INSIST), (AGREE, NOTHING))[1] == [10.0, 11.0]


def test_agreeing_accepts_the_last_offer_not_an_earlier_one() -> None:
    game = countered((4, 1, 2))
    for act in ((PROPOSE, LEAVES_9), (PROPOSE, (0, 0, 2))):
        game = game.play(act)
    assert play(game, (AGREE, NOTHING))[1] == [17.0, 12.0]


# Proposing and disagreeing


@pytest.mark.parametrize("kind", [PROPOSE, INSIST])
@pytest.mark.parametrize("seat", [0, 1])
def test_an_offer_pays_nothing_and_passes_the_turn(kind: int, seat: int) -> None:
    state, rewards, over = play(table(seat=seat), (kind, (1, 0, 2)))
    assert rewards == [0.0, 0.0] and not over and not state.deal
    assert state.seat == 1 - seat and state.turns_left == 9 and state.last_acts[seat] == kind
    assert tuple(state.claims[seat]) == (1, 0, 2)


@pytest.mark.parametrize("seat", [0, 1])
def test_disagreeing_ends_the_game_without_points(seat: int) -> None:
    game = replace(countered((0, 0, 2)), seat=seat)
    state, rewards, over = play(game, (DISAGREE, NOTHING))
    assert over and rewards == [0.0, 0.0] and not state.deal


@pytest.mark.parametrize("seat", [0, 1])
def test_disagreeing_only_loses_a_turn_if_it_does_not_end_the_game(seat: int) -> None:
    game = replace(countered((0, 0, 2)), seat=seat, disagree_ends=False)
    state, rewards, over = play(game, (DISAGREE, NOTHING))
    assert not over and rewards == [0.0, 0.0]
    assert state.turns_left == 8 and state.seat == 1 - seat
    assert tuple(state.claims[1]) == (0, 0, 2)  # an earlier claim counts for a final selection


def test_the_partner_answers_a_disagreement_with_its_counter_offer() -> None:
    game = table(disagree_ends=False).play((DISAGREE, NOTHING))
    assert board.partner_answer(game) == (PROPOSE, (0, 0, 2))


def test_agree_is_masked_after_the_partners_disagreement() -> None:
    game = table(seat=1, disagree_ends=False).play((PROPOSE, (0, 0, 2))).play((PROPOSE, LEAVES_9))
    game = game.play((DISAGREE, NOTHING))
    assert game.seat == 0 and open_acts(game, 0) == [PROPOSE, INSIST, DISAGREE, END]


# The final selection


@pytest.mark.parametrize("kind", [PROPOSE, INSIST])
def test_an_end_that_matches_the_partners_claim_pays_both(kind: int) -> None:
    state, rewards, over = play(countered((0, 0, 2), kind), (END, (4, 1, 0)))
    assert over and state.deal and rewards == [17.0, 12.0]


@pytest.mark.parametrize("keep", [(4, 1, 1), (3, 1, 0), (4, 0, 0), NOTHING, COUNTS, (0, 0, 2)])
def test_an_end_that_does_not_match_pays_neither_seat(keep: Triple) -> None:
    # one item too many, too few, and the partner's own claim: none adds up to the pool
    state, rewards, over = play(countered((0, 0, 2)), (END, keep))
    assert over and not state.deal and rewards == [0.0, 0.0]


def test_an_end_before_the_partners_first_act_meets_a_claim_to_the_whole_pool() -> None:
    assert play(table(), (END, (1, 0, 0)))[1:] == ([0.0, 0.0], True)
    assert play(table(), (END, COUNTS))[1:] == ([0.0, 0.0], True)
    assert play(table(), (END, NOTHING))[1:] == ([0.0, 20.0], True)


def test_an_end_of_the_partner_meets_the_agents_last_claim() -> None:
    assert play(offered(LEAVES_11), (END, (1, 1, 1)))[1:] == ([10.0, 11.0], True)
    assert play(offered(LEAVES_11), (END, (1, 1, 2)))[1:] == ([0.0, 0.0], True)
    assert play(table(seat=1), (END, NOTHING))[1:] == ([19.0, 0.0], True)


def test_an_end_after_the_partners_disagreement_meets_its_earlier_claim() -> None:
    game = table(seat=1, disagree_ends=False).play((PROPOSE, (0, 0, 2))).play((PROPOSE, LEAVES_9))
    game = game.play((DISAGREE, NOTHING))
    assert play(game, (END, (4, 1, 0)))[1] == [17.0, 12.0]


# The turn limit


@pytest.mark.parametrize("seat", [0, 1])
@pytest.mark.parametrize("kind", [PROPOSE, INSIST])
def test_an_open_offer_at_the_turn_limit_pays_neither_seat(seat: int, kind: int) -> None:
    state, rewards, over = play(table(seat=seat, turns_left=1), (kind, LEAVES_11))
    assert over and not state.deal and rewards == [0.0, 0.0] and state.turns_left == 0


def test_the_last_turn_can_still_close_a_deal() -> None:
    assert play(countered((0, 0, 2), turns_left=1), (AGREE, NOTHING))[1:] == ([17.0, 12.0], True)
    assert play(countered((0, 0, 2), turns_left=1), (END, (4, 1, 0)))[1:] == ([17.0, 12.0], True)
    assert play(offered(LEAVES_11, turns_left=1), (AGREE, NOTHING))[1:] == ([10.0, 11.0], True)


def test_a_turn_is_one_act_of_either_seat() -> None:
    game, acts = table(max_turns=10), 0
    state, settings = board.state_of(game), board.settings_for(max_turns=10)
    while not state.over:
        state, _, _ = board.play(settings, state, board.plain((PROPOSE, COUNTS)))
        acts += 1
    assert acts == 10


def test_a_game_of_one_turn_is_over_after_one_act() -> None:
    assert play(table(max_turns=1), (PROPOSE, LEAVES_11))[1:] == ([0.0, 0.0], True)


def test_a_lost_turn_on_the_last_turn_ends_the_game() -> None:
    assert play(table(turns_left=1), (AGREE, NOTHING))[1:] == ([0.0, 0.0], True)


# Illegal acts


ILLEGAL: dict[str, Act] = {
    "agree without an offer": (AGREE, NOTHING),
    "one more than there are": (PROPOSE, (4, 2, 2)),
    "less than none": (PROPOSE, (-1, 0, 0)),
    "insist on too many": (INSIST, (5, 0, 0)),
    "end with too many": (END, (0, 0, 3)),
    "act type past the last": (5, NOTHING),
    "act type far past the last": (7, (1, 0, 0)),
    "act type before the first": (-1, NOTHING),
}


@pytest.mark.parametrize("name", ILLEGAL)
@pytest.mark.parametrize("disagree_ends", [True, False])
def test_an_illegal_act_loses_the_turn(name: str, disagree_ends: bool) -> None:
    game = table(disagree_ends=disagree_ends)
    state, rewards, over = play(game, ILLEGAL[name])
    assert not over and rewards == [0.0, 0.0] and not state.deal
    assert state.turns_left == 9 and state.seat == 1
    assert tuple(state.claims[0]) == COUNTS  # nothing was claimed
    after = Game(COUNTS, (MINE, THEIRS), seat=1, turns_left=9, acts=(int(state.last_acts[0]), None))
    assert AGREE not in open_acts(after, 1)  # and nothing is on the table


@pytest.mark.parametrize("name", ILLEGAL)
def test_masks_and_rules_agree_on_illegal_acts(name: str) -> None:
    settings = board.settings_for()
    assert not board.allowed(settings, board.state_of(table()), board.plain(ILLEGAL[name]))[0]


def test_an_illegal_act_withdraws_the_standing_offer() -> None:
    # the agent offers, the partner counters, the agent plays an illegal act: the old offer no longer stands
    game = offered(LEAVES_9).play((PROPOSE, (0, 0, 2))).play((PROPOSE, (9, 9, 9)))
    assert game.seat == 1 and open_acts(game, 1) == [PROPOSE, INSIST, DISAGREE, END]
    assert board.partner_answer(game) == (PROPOSE, (0, 0, 2))


def test_the_masks_of_the_counts_end_at_the_pool() -> None:
    settings = board.settings_for()
    _, *counts = board.masks(settings, board.state_of(table()))[0]
    assert [np.flatnonzero(mask).tolist() for mask in counts] == [[0, 1, 2, 3, 4], [0, 1], [0, 1, 2]]


@pytest.mark.parametrize(
    "last",
    [
        (countered((0, 0, 2)), (AGREE, NOTHING)),
        (table(), (DISAGREE, NOTHING)),
        (table(turns_left=1), (PROPOSE, COUNTS)),
    ],
    ids=["deal", "disagreement", "limit"],
)
def test_a_finished_game_never_changes(last: tuple[Game, Act]) -> None:
    settings = board.settings_for()
    over = board.play(settings, board.state_of(last[0]), board.plain(last[1]))[0]
    for act in ((PROPOSE, LEAVES_11), (AGREE, NOTHING), (DISAGREE, NOTHING), (END, (4, 1, 0)), (END, NOTHING)):
        again, rewards, terminated = board.play(settings, over, board.plain(act))
        board.assert_same(again, over)
        assert np.asarray(rewards).tolist() == [0.0, 0.0] and terminated
    assert np.asarray(rules.to_act(over)).tolist() == [False, False]


# The partner accepts


@pytest.mark.parametrize(
    ("kind", "keep", "accepts"),
    [
        (PROPOSE, LEAVES_11, True),
        (PROPOSE, LEAVES_10, False),
        (INSIST, LEAVES_11, True),
        (INSIST, LEAVES_10, True),
        (INSIST, LEAVES_9, False),
    ],
    ids=["0.55", "a point below 0.55", "insist on 0.55", "insist on 0.5", "insist on a point below 0.5"],
)
def test_the_partner_accepts_exactly_its_threshold(kind: int, keep: Triple, accepts: bool) -> None:
    assert board.partner_answer(offered(keep, kind)) == ((AGREE, (0, 0, 2)) if accepts else (PROPOSE, (0, 0, 2)))


def test_thresholds_are_exact_for_every_possible_pool() -> None:
    pools = np.arange(0, 7 * 3 * 10 + 1)
    for hundredths in (55, 50, 80, 75):
        needed = np.asarray(partner.need(jnp.float32(hundredths / 100), jnp.asarray(pools)))
        assert needed.tolist() == [-(-hundredths * int(pool) // 100) for pool in pools]


def test_thresholds_drawn_from_a_range_are_exact_too() -> None:
    # a partner's threshold is in thousandths, so that the comparison is between integers
    pools, thousandths = np.arange(0, 211), np.arange(0, 1001)
    needed = np.asarray(partner.need(jnp.asarray(thousandths)[:, None] / 1000, jnp.asarray(pools)[None, :]))
    wrong = np.argwhere(needed != -(-thousandths[:, None] * pools[None, :] // 1000))
    assert not len(wrong), f"{len(wrong)} pairs, first thousandths {wrong[0, 0]}, pool {wrong[0, 1]}"


def test_a_partner_refuses_an_offer_worth_nothing_to_it() -> None:
    game = Game((2, 1, 1), ((0, 5, 5), (4, 0, 0)), seat=1, turns_left=9, acts=(INSIST, None), claims=((2, 0, 0), None))
    assert board.partner_answer(game) == (PROPOSE, (2, 0, 0))


def test_a_partner_with_a_worthless_pool_accepts_any_offer() -> None:
    # 0 is at least 0.55 of 0; such a seat is never drawn, but a context may contain one
    game = Game((2, 1, 1), ((1, 1, 1), NOTHING), seat=1, turns_left=9, acts=(PROPOSE, None), claims=((2, 1, 1), None))
    assert board.partner_answer(game)[0] == AGREE
    assert board.partner_answer(replace(game, acts=(None, None), claims=(None, None))) == (PROPOSE, NOTHING)


def test_the_partner_accepts_on_the_last_turn() -> None:
    assert board.partner_answer(offered(LEAVES_11, turns_left=1))[0] == AGREE


def test_the_partner_does_not_accept_a_withdrawn_offer() -> None:
    game = offered(LEAVES_11, DISAGREE, disagree_ends=False)
    assert board.partner_answer(game) == (PROPOSE, (0, 0, 2))


# The partner counters

GREEDY: dict[str, tuple[Triple, Triple, Triple]] = {
    # the pool, the partner's utilities, its claim: computed by hand
    "two balls are 12 of 20": ((4, 1, 2), (1, 4, 6), (0, 0, 2)),
    "the hat is 9 of 15, more than 8.25": ((2, 1, 4), (1, 9, 1), (0, 1, 0)),
    "7, 14 of 29, so 21": ((1, 4, 1), (1, 7, 0), (0, 3, 0)),
    "9, then 4 of 24 and 4 more, 17": ((1, 3, 3), (9, 4, 1), (1, 2, 0)),
    "one item of three is all it values": ((3, 2, 1), (0, 0, 5), (0, 0, 1)),
    "four of seven at one point each": ((3, 3, 1), (1, 1, 1), (3, 1, 0)),
    "half is not enough: 2 of 4 gives 3": ((4, 1, 1), (1, 0, 0), (3, 0, 0)),
    "exactly 11 of 20": ((1, 1, 3), (2, 9, 3), (0, 1, 1)),
    "exactly 22 of 40 in one type": ((4, 1, 1), (9, 2, 2), (3, 0, 0)),
    "across all three types": ((1, 1, 2), (3, 4, 2), (1, 1, 0)),
    "the whole of one item": ((1, 1, 1), (10, 0, 0), (1, 0, 0)),
    "seven hats are 70 of 140, one ball makes 80": ((7, 7, 7), (0, 10, 10), (0, 7, 1)),
}


@pytest.mark.parametrize("name", GREEDY)
def test_the_counter_offer_keeps_the_most_valued_items_one_at_a_time(name: str) -> None:
    counts, theirs, keeps = GREEDY[name]
    game = Game(counts, ((1, 1, 1), theirs), seat=1)
    assert board.partner_answer(game) == (PROPOSE, keeps)


def test_items_worth_nothing_to_the_partner_go_to_the_agent() -> None:
    for theirs in ((0, 3, 3), (3, 0, 3), (3, 3, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)):
        _, keeps = board.partner_answer(Game((3, 3, 3), ((1, 1, 1), theirs), seat=1))
        assert all(kept == 0 for kept, value in zip(keeps, theirs, strict=True) if value == 0)


TIES: dict[str, tuple[Triple, Triple]] = {
    # of three of each type
    "all alike: 24.75 of 45": ((5, 5, 5), (3, 2, 0)),
    "books and hats: 18.15 of 33": ((5, 5, 1), (3, 1, 0)),
    "books and balls: 14.85 of 27": ((4, 1, 4), (3, 0, 1)),
    "hats and balls: 18.15 of 33": ((1, 5, 5), (0, 3, 1)),
    "hats and balls after a book: 18.15 of 33, 15 by books": ((5, 3, 3), (3, 2, 0)),
}


@pytest.mark.parametrize("name", TIES)
def test_the_partner_prefers_the_first_of_equally_valued_types(name: str) -> None:
    theirs, keeps = TIES[name]
    assert board.partner_answer(Game((3, 3, 3), ((1, 1, 1), theirs), seat=1)) == (PROPOSE, keeps)


def test_the_partner_never_claims_less_than_it_would_accept() -> None:
    for theirs in ((1, 4, 6), (3, 3, 3), (10, 1, 0), (0, 0, 7)):
        for kind in (PROPOSE, INSIST):
            game = Game(COUNTS, (MINE, theirs), seat=1, turns_left=9, acts=(kind, None), claims=(COUNTS, None))
            act, keeps = board.partner_answer(game)
            assert act == PROPOSE
            assert 100 * oracle.worth(theirs, keeps) >= 55 * oracle.worth(theirs, COUNTS)


def test_the_partner_repeats_its_claim_while_nothing_changes() -> None:
    answers = {board.partner_answer(offered(keep, kind)) for keep in (COUNTS, LEAVES_9) for kind in (PROPOSE, INSIST)}
    answers.add(board.partner_answer(table(seat=1)))
    assert answers == {(PROPOSE, (0, 0, 2))}


# Kinds of partners


@pytest.mark.parametrize(("left", "points"), [(10, 16), (9, 16), (5, 12), (2, 10), (1, 9)])
def test_a_conceder_claims_less_over_time(left: int, points: int) -> None:
    # 0.8 - 0.4 of the share of turns gone, of 20 points: 16, 15.2, 12, 9.6, 8.8
    game = offered(NOTHING, turns_left=left)
    for keep in oracle.allocations(COUNTS):
        worth = oracle.worth(THEIRS, oracle.rest_of(COUNTS, keep))
        if worth in (points, points - 1):
            act, _ = board.partner_answer(replace(game, claims=(keep, None)), "conceder")
            assert (act == AGREE) == (worth >= points)


def test_a_conceders_counter_offer_shrinks_with_its_threshold() -> None:
    kept = [board.partner_answer(table(seat=1, turns_left=left), "conceder")[1] for left in (10, 5, 1)]
    assert kept == [(0, 1, 2), (0, 0, 2), (0, 0, 2)]


def test_a_stubborn_partner_ignores_insisting() -> None:
    leaves_15, leaves_14 = (1, 1, 0), (2, 1, 0)  # 3 + 12 and 2 + 12, of 20: 0.75 is 15
    assert board.partner_answer(offered(leaves_15, INSIST), "stubborn")[0] == AGREE
    assert board.partner_answer(offered(leaves_14, INSIST), "stubborn") == (PROPOSE, (0, 1, 2))


def test_a_mirror_claims_what_the_agent_claims() -> None:
    # the agent claims items worth 4 + 12 to the partner, so the partner claims 16
    assert board.partner_answer(offered((0, 1, 2)), "mirror") == (PROPOSE, (0, 1, 2))
    # the agent claims 12 and leaves 8: the partner claims 12
    assert board.partner_answer(offered((0, 0, 2)), "mirror") == (PROPOSE, (0, 0, 2))
    assert board.partner_answer(offered(LEAVES_10), "mirror")[0] == AGREE
    assert board.partner_answer(offered(LEAVES_9), "mirror")[0] == PROPOSE


def test_a_random_partner_plays_every_legal_act_equally_often() -> None:
    for game, types in ((offered((0, 1, 2)), 5), (table(seat=1), 4)):
        cells = 20 * 5 * 2 * 3
        us = jnp.asarray([oracle.uniform_at(COUNTS, i) for i in range(cells)], jnp.float32)
        settings, state = board.one_kind("random"), board.state_of(game)
        style = partner.start(settings, 1, jnp.zeros(1))
        acts = jnp.stack(jax.vmap(board.answer, in_axes=(None, None, None, 0))(settings, state, style, us), axis=1)
        drawn = Counter(tuple(row) for row in np.asarray(acts).tolist())
        assert len(drawn) == types * 30 and set(drawn.values()) == {cells // (types * 30)}
        assert all(board.allowed(settings, state, tuple(np.int32(x) for x in act))[1] for act in list(drawn)[::7])


def draws(n: int, **options: Any) -> partner.Style:
    us = (jnp.arange(n, dtype=jnp.float32) + 0.5) / n
    return jax.tree.map(np.asarray, draw_styles(board.settings_for(**options), us))


@jax.jit
def draw_styles(settings: rules.Settings, us: jax.Array) -> partner.Style:
    return jax.vmap(lambda u: partner.start(settings, 1, u[None]))(us)


def test_a_mix_of_partners_is_drawn_by_weight() -> None:
    drawn = draws(1000, partner={"heuristic": 1.0, "conceder": 2.0, "stubborn": 0.0, "mirror": 5.0})
    assert Counter(drawn.kind.tolist()) == {0: 125, 1: 250, 3: 625}
    # each draws its own threshold
    assert {(k, t) for k, t in zip(drawn.kind.tolist(), drawn.threshold.tolist(), strict=True)} == {
        (0, 550),
        (1, 800),
        (3, 500),
    }


def test_a_threshold_is_drawn_uniformly_from_its_range() -> None:
    drawn = draws(2000, partner_threshold=(0.5, 0.7), insist_threshold=0.5)
    assert drawn.threshold.min() == 500 and drawn.threshold.max() == 700
    each = Counter(drawn.threshold.tolist())
    assert set(each) == set(range(500, 701))
    # rounding makes the two ends half as wide as the rest
    assert all(9 <= number <= 11 for value, number in each.items() if 500 < value < 700)


def test_a_range_within_a_mix_is_drawn_uniformly_too() -> None:
    drawn = draws(4000, partner={"stubborn": 3.0, "heuristic": 1.0}, partner_threshold=(0.5, 0.6))
    inside = drawn.threshold[drawn.kind == 1]
    assert len(inside) == 1000 and inside.min() == 500 and inside.max() == 600
    assert abs(inside.mean() - 550) < 1


@pytest.mark.parametrize("threshold", [(0.4, 0.7), (0.5, 0.6), (0.6, 0.6)])
@pytest.mark.parametrize("insist", [0.0, 0.45, 0.5, 0.6])
def test_an_insist_never_raises_the_partners_claim(threshold: tuple[float, float], insist: float) -> None:
    # the partner never claims less than it would accept, so such options must be refused
    try:
        settings = NegotiationOptions(partner_threshold=threshold, insist_threshold=insist).settings()
    except ValueError:
        return
    assert np.asarray(settings.styles.insist_gap).min() >= 0


def test_a_partner_kind_discloses_its_style_for_its_own_seat_only() -> None:
    settings = board.settings_for()
    for name, row in partner.KINDS.items():
        known = seated(settings, {1: build().bot(f"partner:{name}")})
        assert float(known.styles.low[1, 0]) == pytest.approx(row.low)
        assert float(known.styles.low[0, 0]) == pytest.approx(0.55)


def test_the_error_about_an_unknown_kind_of_partner_lists_the_kinds() -> None:
    with pytest.raises(BadInput, match=r"'gentle'.*heuristic, conceder, stubborn, mirror, random"):
        NegotiationOptions.read({"partner": "gentle"})


# Fresh contexts


def new_states(u0: Any, u1: Any, u2: Any, **options: Any) -> rules.State:
    us = np.stack([np.broadcast_to(np.asarray(u, np.float32), np.shape(u0)) for u in (u0, u1, u2)], axis=1)
    return jax.tree.map(np.asarray, draw_states(board.settings_for(**options), us))


@jax.jit
def draw_states(settings: rules.Settings, us: jax.Array) -> rules.State:
    return jax.vmap(lambda u: rules.new(settings, u))(us)


@pytest.mark.parametrize(("low", "high"), [(1, 4), (2, 3), (1, 7), (5, 5)])
def test_every_pool_and_both_starters_are_equally_likely(low: int, high: int) -> None:
    cells = 2 * (high - low + 1) ** 3
    state = new_states((np.arange(cells) + 0.5) / cells, 0.3, 0.6, min_count=low, max_count=high)
    drawn = Counter(zip(*(x.tolist() for x in (*state.counts, state.seat)), strict=True))
    pools = product(range(low, high + 1), repeat=3)
    assert drawn == Counter({(*pool, seat): 1 for pool in pools for seat in (0, 1)})


@pytest.mark.parametrize("seat", [0, 1])
def test_every_nonzero_vector_of_utilities_is_equally_likely(seat: int) -> None:
    cells = (np.arange(1330) + 0.5) / 1330
    state = new_states(np.full(1330, 0.5), *((cells, 0.5) if seat == 0 else (0.5, cells)))
    drawn = Counter(zip(*(x.tolist() for x in state.utilities[seat]), strict=True))
    assert drawn == Counter(oracle.UTILITIES)
    assert len(set(zip(*(x.tolist() for x in state.utilities[1 - seat]), strict=True))) == 1


@pytest.mark.parametrize(("starts", "seats"), [(True, {0}), (False, {1}), (None, {0, 1})])
def test_agent_starts_fixes_the_starter(starts: bool | None, seats: set[int]) -> None:
    state = new_states((np.arange(1000) + 0.5) / 1000, 0.2, 0.4, agent_starts=starts)
    assert set(state.seat.tolist()) == seats


def test_extreme_uniforms_give_a_legal_first_position() -> None:
    edges = np.array([0.0, 1 - 2.0**-24])
    for u1, u2 in product(edges, repeat=2):
        state = new_states(edges, u1, u2)
        counts, utilities = np.stack(state.counts), np.stack([np.stack(u) for u in state.utilities])
        assert counts.min() >= 1 and counts.max() <= 4
        assert utilities.min() >= 0 and utilities.max() <= 10 and utilities.any(axis=1).all()


def test_a_points_budget_holds_for_both_seats_wherever_integers_allow() -> None:
    cells = 64 * 5
    u0 = (np.arange(cells) + 0.5) / cells
    rng = np.random.default_rng(0)
    state = new_states(u0, rng.random(cells), rng.random(cells), points_budget=10)
    for i in range(cells):
        counts = tuple(int(x[i]) for x in state.counts)
        possible = {oracle.worth(vector, counts) for vector in oracle.UTILITIES}  # type: ignore[arg-type]
        nearest = min(abs(worth - 10) for worth in possible)
        for seat in (0, 1):
            utilities = tuple(int(x[i]) for x in state.utilities[seat])
            assert abs(oracle.worth(utilities, counts) - 10) == nearest  # type: ignore[arg-type]


def test_the_oracle_agrees_with_the_rules_on_these_positions() -> None:
    # the lock-step tests rely on the oracle
    style = oracle.Style()
    for keep, kind, accepts in ((LEAVES_11, PROPOSE, 1), (LEAVES_10, PROPOSE, 0), (LEAVES_10, INSIST, 1)):
        assert (oracle.partner_act(offered(keep, kind), style)[0] == AGREE) == bool(accepts)
    for counts, theirs, keeps in GREEDY.values():
        assert oracle.partner_act(Game(counts, ((1, 1, 1), theirs), seat=1), style) == (PROPOSE, keeps)
    assert countered((0, 0, 2)).play((AGREE, NOTHING)).payoffs == (17, 12)
    assert countered((0, 0, 2)).play((END, (4, 1, 0))).payoffs == (17, 12)
    assert oracle.Style().threshold == Fraction(11, 20)
