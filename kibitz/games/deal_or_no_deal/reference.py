"""Exact yardsticks, and the strongest player we can write without learning.

Everything is about one game and enumerates: every allocation of the pool (`grid`), and every vector
of utilities the other side may have (`VECTORS`).
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from kibitz.core.act import Act, Masks
from kibitz.core.game import Rule
from kibitz.games.deal_or_no_deal import partner
from kibitz.games.deal_or_no_deal.rules import (
    AGREE,
    INSIST,
    MAX_UTILITY,
    PROPOSE,
    SILENT,
    UTILITY_VECTORS,
    Items,
    Settings,
    State,
    Tempers,
    dot,
    is_offer,
    minus,
    payoffs,
)
from kibitz.games.deal_or_no_deal.view import View

MOST_OFFERS = 5  # how far ahead `bayes` plans; more rungs change nothing that can be measured


@cache
def grid(max_count: int) -> Items:
    """i32[n] each: every way to keep 0..max_count of each type."""
    each = np.indices((max_count + 1,) * 3).reshape(3, -1).astype(np.int32)
    return Items(*each)


@cache
def vectors() -> Items:
    """i32[1330] each: every vector of utilities that is worth something."""
    index = np.arange(1, UTILITY_VECTORS, dtype=np.int32)
    base = MAX_UTILITY + 1
    return Items(index % base, index // base % base, index // base**2)


class Outcomes(NamedTuple):
    """Every allocation of a pool, f32[allocations]; `possible` is false where it exceeds the pool."""

    possible: Array
    mine: Array
    theirs: Array


def outcomes(counts: Items, mine: Items, theirs: Items, max_count: int) -> Outcomes:
    kept = grid(max_count)
    possible = (kept.books <= counts.books) & (kept.hats <= counts.hats) & (kept.balls <= counts.balls)
    rest = minus(counts, kept)
    return Outcomes(possible, dot(mine, kept), dot(theirs, rest))


def is_pareto(points: Outcomes, mine: Array, theirs: Array) -> Array:
    """No other allocation is better for one side and no worse for the other."""
    no_worse = (points.mine >= mine) & (points.theirs >= theirs)
    better = (points.mine > mine) | (points.theirs > theirs)
    return ~jnp.any(points.possible & no_worse & better)


def ceiling(settings: Settings, state: State, seat: int, max_count: int) -> Array:
    """The most the seat could get from a threshold partner in the other seat, knowing everything.

    The partner's kind and thresholds are those of the settings; where they are a mix or a range,
    the most yielding one counts. Who spoke first is read off the number of turns gone.
    """
    other = 1 - seat
    points = outcomes(state.counts, state.utilities[seat], state.utilities[other], max_count)
    pool = dot(state.utilities[other], state.counts)
    rows = Tempers(*(column[other] for column in settings.tempers))
    gone = settings.max_turns - state.turns_left
    # the seat to move alternates, so the one that moved first is known from the turns gone
    first = jnp.where(gone % 2 == 0, state.seat, 1 - state.seat)
    begins = first == seat
    # the last answer the partner can give to an offer: on its last own turn
    last_left = jnp.where((settings.max_turns % 2 == 0) == begins, 1, 2)
    can_offer = settings.max_turns >= jnp.where(begins, 2, 3)
    offered = points.theirs / jnp.maximum(pool, 1)
    accepted = jnp.zeros_like(points.possible)
    for kind in range(rows.weight.shape[0]):
        row = Tempers(*(column[kind] for column in rows))
        share = partner.ratio(row, row.low, jnp.bool_(True), offered, last_left, settings.max_turns)
        accepted |= (row.weight > 0) & ((points.theirs >= partner.need(share, pool)) | (row.noise > 0))
    best = jnp.max(jnp.where(points.possible & accepted, points.mine, 0))
    row = Tempers(*(column[0] for column in rows))
    asked = partner.need(row.low, pool)
    counter = minus(state.counts, partner.greedy(state.utilities[other], state.counts, asked))
    only_answer = jnp.where(settings.max_turns >= 2, dot(state.utilities[seat], counter), 0)
    return jnp.where(can_offer, best, jnp.where(begins, 0, only_answer)).astype(jnp.float32)


def score(settings: Settings, state: State, max_count: int) -> dict[str, Array]:
    """Measures of a finished episode, f32[2] each: one number for each seat."""
    points = outcomes(state.counts, state.utilities[0], state.utilities[1], max_count)
    mine, theirs = (jnp.where(state.deal, x, 0) for x in payoffs(state))
    deal = state.deal.astype(jnp.float32)
    product = points.mine * points.theirs
    nash = jnp.max(jnp.where(points.possible, product, 0))
    both = {
        "agreement": deal,
        "pareto": jnp.where(state.deal, is_pareto(points, mine, theirs), jnp.nan),
        "nash_product": mine * theirs,
        "nash_share": jnp.where(nash > 0, mine * theirs / jnp.maximum(nash, 1), deal),
        "welfare": mine + theirs,
        "turns": settings.max_turns - state.turns_left,
    }
    measures = {name: jnp.stack([value, value]).astype(jnp.float32) for name, value in both.items()}
    measures["payoff"] = jnp.stack([mine, theirs]).astype(jnp.float32)
    measures["ceiling"] = jnp.stack([ceiling(settings, state, seat, max_count) for seat in (0, 1)])
    return measures


def bayes(max_count: int) -> Rule:
    """Keeps the partner's utilities that fit what it has seen and climbs down a ladder of offers.

    A threshold partner accepts or answers always the same, so with n answers left the best plan is
    a set of n offers, played from the most to the least valuable: each hypothesis pays the best
    offer of the set that it accepts, or the standing counter-offer at the end. The set is grown
    greedily (the payoff of a set has diminishing returns) and planned anew after every answer.
    """
    kept = grid(max_count)

    def start(settings: Settings, seat: int, u: Array) -> Array:
        return jnp.ones(UTILITY_VECTORS - 1, bool)

    def choose(settings: Settings, fits: Array, view: View, masks: Masks, u: Array) -> tuple[Array, Act]:
        fits = _fitting(settings, fits, view)
        weight = fits.astype(jnp.float32)
        mine = dot(view.my_utilities, kept).astype(jnp.float32)
        rest = minus(view.counts, kept)
        possible = (rest.books >= 0) & (rest.hats >= 0) & (rest.balls >= 0)
        accepts = _accepted(settings, view, rest) & possible[None, :]
        standing = is_offer(view.other_act)
        safe = jnp.where(standing, dot(view.my_utilities, view.offer_for_me), 0).astype(jnp.float32)
        # an offer of mine is answered if the other side has a turn after it. When it also has the last
        # turn of all, the answer to my last offer cannot be accepted any more: before that offer the
        # safe payoff is taken, unless the gamble is worth more
        answers = view.turns_left // 2
        gamble = standing & (view.turns_left == 2)
        rungs = jnp.where(standing & (view.turns_left % 2 == 0) & ~gamble, answers - 1, answers)

        def grow(rung: Array, plan: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            reached, first, top = plan
            gain = jnp.where(accepts, jnp.maximum(mine[None, :] - reached[:, None], 0.0), 0.0)
            gains = jnp.sum(gain * weight[:, None], axis=0)
            pick = jnp.argmax(gains)
            use = (rung < rungs) & (gains[pick] > 0)
            reached = jnp.where(use & accepts[:, pick], jnp.maximum(reached, mine[pick]), reached)
            higher = use & (mine[pick] > top)
            return reached, jnp.where(higher, pick, first), jnp.where(higher, mine[pick], top)

        floor = jnp.where(gamble, 0, safe)
        begin = (jnp.full(UTILITY_VECTORS - 1, floor), jnp.int32(-1), jnp.float32(-1))
        reached, first, _ = lax.fori_loop(0, MOST_OFFERS, grow, begin)
        expected = jnp.sum(reached * weight) / jnp.sum(weight)
        has_plan = (first >= 0) & (~gamble | (expected > safe))
        # nothing to gain by offering: take what is on the table, or leave everything to the other side
        act_type = jnp.where(has_plan, INSIST, jnp.where(standing, AGREE, PROPOSE))
        keep = Items(*(jnp.where(has_plan, column[first], 0) for column in map(jnp.asarray, kept)))
        return fits, (act_type.astype(jnp.int32), *keep)

    return Rule(name="bayes", choose=choose, start=start, widths=0)


def _model(settings: Settings, view: View) -> Tempers:
    """The partner's row as the settings tell it; the likeliest where they tell a mix."""
    rows = Tempers(*(column[1 - view.seat] for column in settings.tempers))
    kind = jnp.argmax(rows.weight)
    return Tempers(*(column[kind] for column in rows))


def _accepted(settings: Settings, view: View, rest: Items) -> Array:
    """bool[hypotheses, offers]: who would accept `rest` for itself, put to it by INSIST now."""
    theirs = vectors()
    row = _model(settings, view)
    pool = dot(theirs, view.counts)
    worth = (
        jnp.outer(theirs.books, rest.books) + jnp.outer(theirs.hats, rest.hats) + jnp.outer(theirs.balls, rest.balls)
    )
    middle = (row.low + row.high) / 2
    share = partner.ratio(
        row, middle, jnp.bool_(True), worth / jnp.maximum(pool, 1)[:, None], view.turns_left - 1, settings.max_turns
    )
    return worth >= partner.need(share, pool[:, None])


def _fitting(settings: Settings, fits: Array, view: View) -> Array:
    """Drops the hypotheses that would have accepted my last offer or made another counter-offer."""
    theirs = vectors()
    row = _model(settings, view)
    middle = (row.low + row.high) / 2
    pool = dot(theirs, view.counts)
    budget_fits = (settings.budget == 0) | (pool == settings.budget)
    known = jnp.any(jnp.stack([x > 0 for x in view.other_utilities]))
    told = known & _same(theirs, view.other_utilities)
    offered = dot(theirs, minus(view.counts, view.my_claim)) / jnp.maximum(pool, 1)
    offered = jnp.where(is_offer(view.my_act), offered, 1 - middle)
    insisted = view.my_act == INSIST
    when = view.turns_left + 1
    takes = partner.ratio(row, middle, insisted, offered, when, settings.max_turns)
    would_accept = offered * pool >= partner.need(takes, pool)
    refused = ~is_offer(view.my_act) | ~would_accept
    asks = partner.ratio(row, middle, jnp.bool_(False), offered, when, settings.max_turns)
    claim = partner.greedy(theirs, view.counts, partner.need(asks, pool))
    claimed = minus(view.counts, view.offer_for_me)
    countered = ~is_offer(view.other_act) | _same(claim, claimed)
    spoken = view.other_act != SILENT
    after = jnp.where(spoken, fits & refused & countered, fits) & budget_fits
    after = jnp.where(known, told, after)
    # a partner of another kind contradicts itself in these eyes: then rejections alone count
    after = jnp.where(jnp.any(after), after, fits & refused & budget_fits)
    return jnp.where(jnp.any(after), after, jnp.ones_like(fits))


def _same(a: Items, b: Items) -> Array:
    return jnp.asarray((a.books == b.books) & (a.hats == b.hats) & (a.balls == b.balls))


def allocations(max_count: int) -> NDArray[np.int32]:
    """i32[n, 3]: the grid as rows, for pictures and tests."""
    return np.stack(grid(max_count), axis=1)
