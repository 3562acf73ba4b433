"""`bayes`: the strongest bot without learning, and the game's reference.

It keeps the set of partner utilities that fit the partner's acts, and descends a ladder of INSIST
offers. A threshold partner always answers the same, so with n answers left the best plan is a set of
n offers, made from the most to the least valuable: each hypothesis pays the best offer of the set
that it accepts, or else the standing counter-offer at the end. The bot grows the set greedily (its
worth has diminishing returns) and plans again after every answer.

Hypotheses are bits: 1,331 vectors of utilities in 42 words. Which hypotheses accept an offer, and which
would make a counter-offer, depends only on the pool and the partner's disclosed style, so tables hold it
(`Ladder`). A decision takes some ten thousand word operations, few enough for a training loop.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from kibitz.core.act import Act, Masks
from kibitz.core.bots import Bot
from kibitz.games.deal_or_no_deal.bots import partner
from kibitz.games.deal_or_no_deal.rules import (
    AGREE,
    INSIST,
    MAX_UTILITY,
    PROPOSE,
    SILENT,
    UTILITY_VECTORS,
    Items,
    Settings,
    dot,
    is_offer,
)
from kibitz.games.deal_or_no_deal.view import View
from kibitz.games.deal_or_no_deal.yardsticks import grid

RUNGS = 5  # offers that it plans ahead: an episode of ten turns has five answers
WORDS = -(-UTILITY_VECTORS // 32)


class Ladder(NamedTuple):
    """What a partner of known style does, for every pool; each bit is a hypothesis about its utilities."""

    accepts: Array  # u32[times, 2 (INSIST), pools, offers, WORDS]: accepts the offer
    counters: Array  # u32[times, pools, offers, WORDS]: its counter-offer would leave exactly this
    prior: Array  # u32[pools, WORDS]: possible at all (not all zero; the points budget)


def bot(max_count: int) -> Bot:
    kept = grid(max_count)
    base = max_count + 1

    def start(settings: Settings, seat: int, u: Array) -> Array:
        return jnp.full(WORDS, 0xFFFFFFFF, jnp.uint32)

    def precompute(settings: Settings, seat: int) -> Settings:
        ladders = list(settings.ladders)
        ladders[seat] = ladder_for(settings, 1 - seat, max_count)
        return settings._replace(ladders=tuple(ladders))

    def choose(settings: Settings, fits: Array, view: View, masks: Masks, u: Array) -> tuple[Array, Act]:
        ladder: Ladder = settings.ladders[view.seat]
        span = settings.max_count - settings.min_count + 1
        digits = Items(*(count - settings.min_count for count in view.counts))
        pool = digits.books + span * (digits.hats + span * digits.balls)
        fits = fitting(ladder, fits, view, pool, base)
        accepts = ladder.accepts[_time(ladder, view.turns_left - 1), 1, pool]  # u32[offers, WORDS]
        mine = dot(view.my_utilities, kept).astype(jnp.float32)

        standing = is_offer(view.other_act)
        safe = jnp.where(standing, dot(view.my_utilities, view.offer_for_me), 0).astype(jnp.float32)
        # The partner answers an offer if it has a turn after it. If it also has the last turn, its answer
        # to the last offer comes too late to be accepted: before that offer the bot takes the safe payoff,
        # unless the gamble is worth more.
        answers = lax.div(view.turns_left, 2)
        gamble = standing & (view.turns_left == 2)
        # before the partner's first offer, its counter-offer is what the bot can accept in the end
        awaits = ~standing & (view.turns_left >= 3)
        last_word = (standing | awaits) & (lax.rem(view.turns_left, 2) == 0) & ~gamble
        rungs = jnp.where(last_word, answers - 1, answers)
        theirs = _size(ladder.counters[_time(ladder, view.turns_left - 1), pool] & fits)  # f32[offers]
        number = jnp.sum(theirs)
        usual = jnp.where(number <= _size(fits), jnp.sum(theirs * mine) / jnp.maximum(number, 1), 0)
        floor = jnp.where(gamble, 0, jnp.where(awaits, usual, safe))
        first, expected = _plan(accepts, fits, mine, floor, rungs)
        has_plan = (first >= 0) & (~gamble | (expected > safe))
        # without a gainful offer: accept the standing one, or claim everything to get a counter-offer
        act_type = jnp.where(has_plan, INSIST, jnp.where(standing, AGREE, PROPOSE))
        asked = zip(kept, view.counts, strict=True)
        keep = (jnp.where(has_plan, jnp.asarray(column)[first], count) for column, count in asked)
        return fits, (act_type.astype(jnp.int32), *keep)

    return Bot(name="bayes", choose=choose, start=start, precompute=precompute, bit_widths=0)


def _plan(accepts: Array, fits: Array, mine: Array, floor: Array, rungs: Array) -> tuple[Array, Array]:
    """The most valuable offer of the best ladder (-1: no offer gains anything), and the ladder's worth.

    `sets[k]` are the hypotheses that would pay `paid[k]`; at first all of them pay the floor.
    """

    def grow(rung: Array, plan: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        sets, paid, first = plan
        held = _size(accepts[None, :, :] & sets[:, None, :])  # f32[sets, offers]
        gains = jnp.sum(jnp.maximum(mine[None, :] - paid[:, None], 0) * held, axis=0)
        best = jnp.argmax(gains).astype(jnp.int32)
        use = (rung < rungs) & (gains[best] > 0)
        leave = jnp.where((use & (paid < mine[best]))[:, None], sets & accepts[best], 0)
        sets = (sets ^ leave).at[rung + 1].set(lax.reduce_or(leave, (0,)))
        paid = paid.at[rung + 1].set(jnp.where(use, mine[best], 0))
        higher = use & ((first < 0) | (mine[best] > mine[first]))
        return sets, paid, jnp.where(higher, best, first)

    sets = jnp.zeros((RUNGS + 1, WORDS), jnp.uint32).at[0].set(fits)
    paid = jnp.zeros(RUNGS + 1).at[0].set(floor)
    sets, paid, first = lax.fori_loop(0, RUNGS, grow, (sets, paid, jnp.int32(-1)))
    return first, jnp.sum(paid * _size(sets)) / jnp.maximum(_size(fits), 1)


def fitting(ladder: Ladder, fits: Array, view: View, pool: Array, base: int) -> Array:
    """Drops the hypotheses that would have accepted the last offer or made another counter-offer."""

    def index(items: Items) -> Any:
        return (items.books * base + items.hats) * base + items.balls

    when = _time(ladder, view.turns_left + 1)
    insisted = (view.my_act == INSIST).astype(jnp.int32)
    refused = ~ladder.accepts[when, insisted, pool, index(view.my_claim)]
    refused = jnp.where(is_offer(view.my_act), refused, jnp.uint32(0xFFFFFFFF))
    countered = ladder.counters[when, pool, index(view.offer_for_me)]
    countered = jnp.where(is_offer(view.other_act), countered, jnp.uint32(0xFFFFFFFF))
    fits = fits & ladder.prior[pool]
    after = jnp.where(view.other_act != SILENT, fits & refused & countered, fits)
    # a partner of another kind may fit no hypothesis: then only refusals count
    after = jnp.where(_size(after) > 0, after, fits & refused)
    after = jnp.where(_size(after) > 0, after, ladder.prior[pool])
    theirs = view.other_utilities
    known = theirs.books + theirs.hats + theirs.balls > 0
    vector = theirs.books + (MAX_UTILITY + 1) * (theirs.hats + (MAX_UTILITY + 1) * theirs.balls)
    words = jnp.arange(WORDS, dtype=jnp.int32)
    revealed = jnp.where(words == vector >> 5, jnp.uint32(1) << (vector & 31).astype(jnp.uint32), jnp.uint32(0))
    return jnp.where(known, revealed, after)


def _size(bits: Array) -> Array:
    """f32: the number of hypotheses, over the last axis."""
    return jnp.sum(lax.population_count(bits), axis=-1).astype(jnp.float32)


def _time(ladder: Ladder, turns_left: Array) -> Array:
    """The index of a partner's turn in the tables; a style that never changes has one."""
    return jnp.clip(turns_left, 0, ladder.accepts.shape[0] - 1)


def ladder_for(settings: Settings, seat: int, max_count: int) -> Ladder:
    """The tables about the player of a seat, from the style that the settings disclose."""
    kinds = np.asarray(settings.styles.weight)[seat]
    row = tuple(float(np.asarray(column)[seat, int(kinds.argmax())]) for column in settings.styles)
    span = (int(settings.min_count), int(settings.max_count))
    budget = int(settings.budget)
    return _ladder(partner.PartnerRow(*row), span, int(settings.max_turns), budget, max_count)


@lru_cache(maxsize=8)
def _ladder(row: partner.PartnerRow, span: tuple[int, int], max_turns: int, budget: int, max_count: int) -> Ladder:
    """Computed on the host, once per style: 0.3 s and 4 MB for pools of one to four."""
    kept = np.stack(grid(max_count))  # i32[3, offers]
    index = np.arange(UTILITY_VECTORS)
    base = MAX_UTILITY + 1
    theirs = np.stack([index % base, index // base % base, index // base**2])  # i64[3, vectors]
    each = np.arange(span[0], span[1] + 1)
    pools = np.stack(np.meshgrid(each, each, each, indexing="ij"), axis=-1).reshape(-1, 3)[:, ::-1]
    times = range(max_turns + 1) if row.fall else range(1)
    accepts = np.zeros((len(times), 2, len(pools), kept.shape[1], WORDS), np.uint32)
    counters = np.zeros((len(times), len(pools), kept.shape[1], WORDS), np.uint32)
    prior = np.zeros((len(pools), WORDS), np.uint32)
    threshold = (row.low + row.high) / 2
    for place, counts in enumerate(pools):
        whole = counts @ theirs
        worth = (counts[:, None] - kept).T @ theirs  # i64[offers, vectors]
        possible = (kept <= counts[:, None]).all(axis=0)
        # where integers cannot meet the budget, contexts are as close to it as possible
        off = np.where(whole > 0, np.abs(whole - budget), np.iinfo(np.int64).max)
        prior[place] = _bits((off == off.min()) if budget else whole > 0)
        for time in times:
            fallen = row.fall * (1 - time / max_turns) if row.fall else 0.0
            for insisted in (0, 1):
                # a mirror claims what it was refused, so it accepts a half
                share = max(threshold, 0.5) if row.mirror else threshold - insisted * row.insist_gap - fallen
                takes = worth >= np.ceil(share * whole - 1e-4)
                accepts[time, insisted, place] = _bits(takes & possible[:, None])
            counters[time, place] = _counter_bits(theirs, counts, whole, threshold - fallen, max_count)
    if row.mirror or row.noise:
        counters[:] = 0xFFFFFFFF  # its counter-offers reveal nothing about its utilities
    return Ladder(jnp.asarray(accepts), jnp.asarray(counters), jnp.asarray(prior))


def _counter_bits(
    theirs: NDArray[Any], counts: NDArray[Any], whole: NDArray[Any], share: float, max_count: int
) -> NDArray[np.uint32]:
    """u32[offers, WORDS]: the hypotheses whose counter-offer leaves exactly this."""
    asked = np.ceil(share * whole - 1e-4)
    claim = np.zeros_like(theirs)
    order = np.argsort(-theirs, axis=0, kind="stable")
    columns = np.arange(theirs.shape[1])
    held = np.zeros(theirs.shape[1])
    for rank in range(3):
        kind = order[rank]
        value = theirs[kind, columns]
        wanted = np.where(value > 0, np.ceil((asked - held) / np.maximum(value, 1)), 0)
        number = np.clip(wanted, 0, counts[kind]).astype(int)
        claim[kind, columns] = number
        held += number * value
    left = counts[:, None] - claim
    offer = (left[0] * (max_count + 1) + left[1]) * (max_count + 1) + left[2]
    return _bits(offer[None, :] == np.arange((max_count + 1) ** 3)[:, None])


def _bits(flags: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """Booleans over hypotheses (the last axis) as words, least significant bit first."""
    padded = np.zeros((*flags.shape[:-1], WORDS * 32), bool)
    padded[..., : flags.shape[-1]] = flags
    packed: NDArray[np.uint32] = np.packbits(padded, axis=-1, bitorder="little").view(np.uint32)
    return packed
