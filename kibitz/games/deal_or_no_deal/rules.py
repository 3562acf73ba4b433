"""Deal or No Deal: two seats divide books, hats and balls that each values privately.

One game, no batch axis. Numbers for the three item types are three scalars in an `Items`, not an
array of length three: the compiler then fuses a whole step into a few vector loops.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from kibitz.core.act import Act, Head, Masks
from kibitz.core.bots import where
from kibitz.core.chance import pick

PROPOSE, INSIST, AGREE, DISAGREE, END = range(5)
SILENT = 5  # instead of a last act: has not spoken yet
ACT_NAMES = ("PROPOSE", "INSIST", "AGREE", "DISAGREE", "END")
ITEM_NAMES = ("book", "hat", "ball")
MAX_UTILITY = 10
UTILITY_VECTORS = (MAX_UTILITY + 1) ** 3  # index 0 is the vector worth nothing
NEW_UNIFORMS = 3


class Items(NamedTuple):
    """A number for each item type."""

    books: Any
    hats: Any
    balls: Any


class State(NamedTuple):
    counts: Items  # the pool, 1..7 of each type
    utilities: tuple[Items, Items]  # points an item is worth to each seat, 0..10; private
    claims: tuple[Items, Items]  # what each seat last claimed to keep; the whole pool before its first act
    last_acts: tuple[Array, Array]  # i32[], the seats' last acts, SILENT before the first
    seat: Array  # i32[], the seat to act
    turns_left: Array  # i32[], acts of either side before the limit
    deal: Array  # bool[], closed: `claims` is the allocation and adds up to the pool
    over: Array  # bool[]
    past: tuple[tuple[Items, ...], tuple[Items, ...]]  # each seat's last offers, newest first; zeros before the first


def bit_widths(past_offers: int) -> State:
    """Bits of each field."""
    count, points = Items(3, 3, 3), Items(4, 4, 4)
    past = ((count,) * past_offers,) * 2
    return State._make((count, (points,) * 2, (count,) * 2, (3, 3), 1, 8, 1, 1, past))


class Styles(NamedTuple):
    """How threshold partners behave, f32[seats, kinds] each; every episode draws one kind per seat."""

    weight: Array  # share of episodes with this kind
    low: Array  # the threshold is drawn between low and high
    high: Array
    insist_gap: Array  # how far an INSIST lowers it
    fall: Array  # how far it falls by the last turn
    mirror: Array  # 1: it claims what it was refused
    noise: Array  # share of acts that are random


class Settings(NamedTuple):
    max_turns: Array  # i32[]
    disagree_ends: Array  # bool[]
    reveal: Array  # bool[], each seat sees the other's utilities
    agent_starts: Array  # f32[], the probability that seat 0 starts
    min_count: Array  # i32[]
    max_count: Array  # i32[]
    budget: Array  # i32[], 0: none
    table: Array  # i32[contexts, 9]: counts, seat 0's and seat 1's utilities; no rows: uniform contexts
    budget_table: Array  # i32[counts, utilities], see contexts.budget_table; no rows: no budget
    styles: Styles
    past: Array  # bool[past offers in features]; only its length matters
    ladders: Any  # per seat, the tables of `bayes` about the other seat; empty until it precomputes


def dot(a: Items, b: Items) -> Array:
    return jnp.asarray(a.books * b.books + a.hats * b.hats + a.balls * b.balls)


def minus(a: Items, b: Items) -> Items:
    return Items(a.books - b.books, a.hats - b.hats, a.balls - b.balls)


def _at_most(a: Items, b: Items) -> Array:
    """Whether a is at most b, for every type."""
    return jnp.asarray((a.books <= b.books) & (a.hats <= b.hats) & (a.balls <= b.balls))


def equal(a: Items, b: Items) -> Array:
    return jnp.asarray((a.books == b.books) & (a.hats == b.hats) & (a.balls == b.balls))


def is_offer(act_type: Array) -> Array:
    return (act_type == PROPOSE) | (act_type == INSIST)


def _items_at(index: Array, base: int) -> Items:
    """The three digits of an index, least significant first."""
    rest = lax.div(index, base)
    return Items(lax.rem(index, base), lax.rem(rest, base), lax.div(rest, base))


def new(settings: Settings, u: Array) -> State:
    """A new context. Utilities are never all zero."""
    if settings.table.shape[0]:
        row, rest = pick(u[0], settings.table.shape[0])
        cells = settings.table[row]
        counts, mine, theirs = (Items(*(cells[3 * k + i] for i in range(3))) for k in range(3))
    else:
        span = settings.max_count - settings.min_count + 1
        rest, digits = u[0], []
        for _ in range(3):
            digit, rest = pick(rest, span)
            digits.append(digit)
        counts = Items(*(settings.min_count + digit for digit in digits))
        vectors = [1 + pick(u[1 + seat], UTILITY_VECTORS - 1)[0] for seat in (0, 1)]
        if settings.budget_table.shape[0]:
            index = digits[0] + span * (digits[1] + span * digits[2])
            vectors = [settings.budget_table[index, vector] for vector in vectors]
        mine, theirs = (_items_at(vector, MAX_UTILITY + 1) for vector in vectors)
    seat = (rest >= settings.agent_starts).astype(jnp.int32)
    return start(settings, counts, mine, theirs, seat)


def start(settings: Settings, counts: Items, mine: Items, theirs: Items, seat: Array) -> State:
    """The first position of a given context."""
    silent = jnp.int32(SILENT)
    no = jnp.bool_(False)
    turns = jnp.asarray(settings.max_turns, jnp.int32)
    nothing = Items(*(jnp.zeros_like(count) for count in counts))
    past = ((nothing,) * settings.past.shape[0],) * 2
    return State(counts, (mine, theirs), (counts, counts), (silent, silent), seat, turns, no, no, past)


def to_act(state: State) -> Array:
    return jnp.stack([~state.over & (state.seat == 0), ~state.over & (state.seat == 1)])


def legal(settings: Settings, state: State, seat: int, max_count: int) -> Masks:
    """AGREE needs a standing offer of the other seat and a turn; counts are limited by the pool."""
    standing = is_offer(state.last_acts[1 - seat]) & ~state.over
    acts = jnp.ones(5, bool).at[AGREE].set(standing)
    return (acts, *(jnp.arange(max_count + 1) <= count for count in state.counts))


def heads(max_count: int) -> tuple[Head, ...]:
    return (Head("act_type", 5), *(Head(name, max_count + 1) for name in ITEM_NAMES))


def step(settings: Settings, state: State, acts: tuple[Act, Act], u: Array) -> tuple[State, Array, Array]:
    """One act of the seat to move. An illegal act loses the turn.

    Points are paid only when a deal closes: by AGREE to the standing offer, or by an END whose
    selection and the other seat's last claim add up to the pool. Reaching the turn limit ends
    the episode without points.
    """
    first = state.seat == 0
    act_type, *kept = (jnp.where(first, a, b) for a, b in zip(*acts, strict=True))
    keep = Items(*kept)
    other_act = jnp.where(first, state.last_acts[1], state.last_acts[0])
    other_claim = where(first, state.claims[1], state.claims[0])
    rest = minus(state.counts, other_claim)

    fits = _at_most(keep, state.counts) & _at_most(Items(0, 0, 0), keep)
    known = (act_type >= PROPOSE) & (act_type <= END)
    allowed = jnp.where(act_type == AGREE, is_offer(other_act), known & (fits | (act_type == DISAGREE)))
    act_type = jnp.where(allowed, act_type, DISAGREE)
    agreed, ended = act_type == AGREE, act_type == END
    walked = allowed & (act_type == DISAGREE) & settings.disagree_ends
    deal = agreed | (ended & equal(keep, rest))

    live = ~state.over
    speaks = live & (act_type != DISAGREE)
    claim = where(agreed, rest, keep)
    claims = (
        where(first & speaks, claim, state.claims[0]),
        where(~first & speaks, claim, state.claims[1]),
    )
    turns_left = state.turns_left - 1
    after = State(
        counts=state.counts,
        utilities=state.utilities,
        claims=claims,
        last_acts=(
            jnp.where(live & first, act_type, state.last_acts[0]),
            jnp.where(live & ~first, act_type, state.last_acts[1]),
        ),
        seat=jnp.where(live, 1 - state.seat, state.seat),
        turns_left=jnp.where(live, turns_left, state.turns_left),
        deal=jnp.where(live, deal, state.deal),
        over=state.over | agreed | ended | walked | (turns_left <= 0),
        past=(
            _remember(live & first & is_offer(act_type), keep, state.past[0]),
            _remember(live & ~first & is_offer(act_type), keep, state.past[1]),
        ),
    )
    paid = live & deal
    rewards = jnp.stack([jnp.where(paid, payoff, 0) for payoff in payoffs(after)]).astype(jnp.float32)
    return after, rewards, after.over


def _remember(offers: Array, keep: Items, past: tuple[Items, ...]) -> tuple[Items, ...]:
    return where(offers, (keep, *past)[: len(past)], past) if past else ()


def payoffs(state: State) -> tuple[Array, Array]:
    """What each seat's claim is worth to it."""
    return dot(state.utilities[0], state.claims[0]), dot(state.utilities[1], state.claims[1])


def max_steps(settings: Settings) -> int:
    return int(jnp.max(settings.max_turns))


def scale(settings: Settings) -> float:
    """About the worth of a whole pool: the budget if there is one, else the mean over uniform contexts."""
    return float(settings.budget) or 37.5
