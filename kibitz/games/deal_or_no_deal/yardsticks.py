"""Exact measures of an episode, by enumeration of every allocation of the pool."""

from __future__ import annotations

from functools import cache, reduce

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kibitz.games.deal_or_no_deal.bots import partner
from kibitz.games.deal_or_no_deal.rules import (
    Items,
    Settings,
    State,
    Styles,
    dot,
    payoffs,
)


@cache
def grid(max_count: int) -> Items:
    """i32[n] each: every way to keep 0..max_count of each type."""
    each = np.indices((max_count + 1,) * 3).reshape(3, -1).astype(np.int32)
    return Items(*each)


def outcomes(counts: Items, mine: Items, theirs: Items, max_count: int) -> list[tuple[Array, Array]]:
    """Both seats' points for every allocation of the pool: i32[numbers of books] for each number of hats and balls.

    More items than the pool has count as all of them. In a batch, a CPU computes a list of short arrays in half the
    time of one long array.
    """
    numbers = np.arange(max_count + 1, dtype=np.int32)
    books = jnp.minimum(numbers, counts.books)
    hats, balls = ([jnp.minimum(n, count) for n in numbers] for count in (counts.hats, counts.balls))
    # every part is multiplied once: the loop has one addition per seat, which keeps the program short
    my_balls, their_balls = ([utility * b for b in balls] for utility in (mine.balls, theirs.balls))
    points = []
    for h in hats:
        mine_so_far = mine.books * books + mine.hats * h
        theirs_so_far = dot(theirs, counts) - theirs.books * books - theirs.hats * h
        points += [(mine_so_far + m, theirs_so_far - t) for m, t in zip(my_balls, their_balls, strict=True)]
    return points


def _largest(parts: list[Array]) -> Array:
    return jnp.max(reduce(jnp.maximum, parts))


def is_pareto(points: list[tuple[Array, Array]], mine: Array, theirs: Array) -> Array:
    """No other allocation is better for one seat and no worse for the other."""
    better = [(a >= mine) & (b >= theirs) & (a + b > mine + theirs) for a, b in points]
    return ~jnp.any(reduce(jnp.logical_or, better))


def ceiling(settings: Settings, state: State, seat: int, points: list[tuple[Array, Array]]) -> Array:
    """The most that a seat with full information could get from a threshold partner in the other seat.

    `points` are the `outcomes`, the seat's own first. The settings say the partner's kind and thresholds; in a mix or a
    range the most generous one counts.
    """
    other = 1 - seat
    pool = dot(state.utilities[other], state.counts)
    rows = Styles(*(column[other] for column in settings.styles))
    gone = settings.max_turns - state.turns_left
    # seats alternate, so the number of turns played shows which seat started
    first = jnp.where(gone % 2 == 0, state.seat, 1 - state.seat)
    begins = first == seat
    # the partner can answer an offer for the last time on its own last turn
    last_left = jnp.where((settings.max_turns % 2 == 0) == begins, 1, 2)
    can_offer = settings.max_turns >= jnp.where(begins, 2, 3)
    needed = jnp.int32(2**30)  # the fewest points for which any kind accepts
    whole, only_answer = dot(state.utilities[seat], state.counts), jnp.int32(0)
    for kind in range(rows.weight.shape[0]):
        row = Styles(*(column[kind] for column in rows))
        # a mirror accepts no less than it refuses, so half of the pool or more
        share = partner.ratio(row, row.low, jnp.bool_(True), jnp.float32(0.5), last_left, settings.max_turns)
        fewest = jnp.where(row.noise > 0, 0, partner.need(share, pool))
        needed = jnp.where(row.weight > 0, jnp.minimum(needed, fewest), needed)
        kept = partner.greedy(state.utilities[other], state.counts, partner.need(row.low, pool))
        left = jnp.where(row.noise > 0, whole, whole - dot(state.utilities[seat], kept))
        only_answer = jnp.maximum(only_answer, jnp.where((row.weight > 0) & (settings.max_turns >= 2), left, 0))
    best = _largest([jnp.where(b >= needed, a, 0) for a, b in points])
    return jnp.where(can_offer, best, jnp.where(begins, 0, only_answer)).astype(jnp.float32)


def score(settings: Settings, state: State, max_count: int) -> dict[str, Array]:
    """Measures of a finished episode, f32[2] each: one number per seat."""
    points = outcomes(state.counts, state.utilities[0], state.utilities[1], max_count)
    mine, theirs = (jnp.where(state.deal, x, 0) for x in payoffs(state))
    deal = state.deal.astype(jnp.float32)
    nash = _largest([a * b for a, b in points])
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
    swapped = [(b, a) for a, b in points]  # what one seat keeps is what the other leaves
    ceilings = [ceiling(settings, state, seat, seen) for seat, seen in enumerate((points, swapped))]
    measures["ceiling"] = jnp.stack(ceilings)
    return measures


def allocations(max_count: int) -> NDArray[np.int32]:
    """i32[n, 3]: the grid as rows."""
    return np.stack(grid(max_count), axis=1)
