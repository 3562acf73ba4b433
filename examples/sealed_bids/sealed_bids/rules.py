"""The rules: pure functions of one game. Settings and chance are arguments."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from kibitz.core.act import Act, Head, Masks
from kibitz.core.chance import pick

from sealed_bids.options import Settings

MAX_VALUE = 10  # an item is worth 1 to 10 points to a seat
HEADS = (Head("bid", MAX_VALUE + 1),)
Pair = tuple[Array, Array]  # i32[], by seat


class State(NamedTuple):
    values: Pair  # of the item on sale, each known to its own seat only
    budgets: Pair  # left for this and later rounds; public, because bids are shown
    left: Array  # i32[], rounds
    bids: Pair  # of the round before; 0 in the first round
    won: Pair  # items so far
    worth: Pair  # of the items won so far, to their own seat; each seat knows only its own
    best: Pair  # points that one more than the other's bid would have earned


class View(NamedTuple):
    """What one seat may know."""

    seat: int
    value: Array
    budget: Array
    other_budget: Array
    left: Array
    other_bid: Array
    profit: Array


# bits of each field of the state, enough for the largest options
BIT_WIDTHS = State(values=(4, 4), budgets=(6, 6), left=4, bids=(4, 4), won=(4, 4), worth=(8, 8), best=(8, 8))


def draw_values(u: Array) -> Pair:
    first, rest = pick(u, MAX_VALUE)
    return first + 1, pick(rest, MAX_VALUE)[0] + 1


def new(settings: Settings, u: Array) -> State:
    zero, budget = jnp.int32(0), jnp.asarray(settings.budget, jnp.int32)
    left = jnp.asarray(settings.rounds, jnp.int32)
    nothing = (zero, zero)
    return State(draw_values(u[0]), (budget, budget), left, nothing, nothing, nothing, nothing)


def to_act(state: State) -> Array:
    """bool[2]: both seats bid at the same time, until no item is left."""
    return jnp.stack([state.left > 0] * 2)


def legal(settings: Settings, state: State, seat: int) -> Masks:
    """No bid above the budget."""
    return (jnp.arange(HEADS[0].size) <= state.budgets[seat],)


def step(settings: Settings, state: State, acts: tuple[Act, Act], u: Array) -> tuple[State, Array, Array]:
    """One sale: the higher bid wins and is paid; equal bids win nothing."""
    running = state.left > 0
    bids = tuple(jnp.minimum(acts[seat][0], state.budgets[seat]) for seat in (0, 1))
    wins = (bids[0] > bids[1], bids[1] > bids[0])
    gains = tuple(jnp.where(running & wins[seat], state.values[seat] - bids[seat], 0) for seat in (0, 1))
    missed = (jnp.maximum(state.values[seat] - bids[1 - seat] - 1, 0) for seat in (0, 1))
    after = State(
        values=draw_values(u[0]),
        budgets=tuple(state.budgets[seat] - jnp.where(wins[seat], bids[seat], 0) for seat in (0, 1)),
        left=state.left - 1,
        bids=bids,
        won=tuple(state.won[seat] + wins[seat] for seat in (0, 1)),
        worth=tuple(state.worth[seat] + jnp.where(wins[seat], state.values[seat], 0) for seat in (0, 1)),
        best=tuple(state.best[seat] + best for seat, best in enumerate(missed)),
    )
    after = _where(running, after, state)  # a finished game stays unchanged
    return after, jnp.stack(gains).astype(jnp.float32), after.left <= 0


def profit(settings: Settings, state: State, seat: int) -> Array:
    """Points so far; negative if the seat overpaid."""
    return state.worth[seat] - (settings.budget - state.budgets[seat])


def view(settings: Settings, state: State, seat: int) -> View:
    other = 1 - seat
    return View(
        seat,
        state.values[seat],
        state.budgets[seat],
        state.budgets[other],
        state.left,
        state.bids[other],
        profit(settings, state, seat),
    )


def features(settings: Settings, view: View) -> Array:
    """f32[6], scaled to about 0 to 1 for a network."""
    numbers = (
        view.value / MAX_VALUE,
        view.budget / settings.budget,
        view.other_budget / settings.budget,
        view.left / settings.rounds,
        view.other_bid / MAX_VALUE,
        view.budget / (MAX_VALUE * jnp.maximum(view.left, 1)),
    )
    return jnp.stack(numbers).astype(jnp.float32)


def max_steps(settings: Settings) -> int:
    return int(settings.rounds)


def scale(settings: Settings) -> float:
    """Half of the items at about half of their value."""
    return 1.5 * float(settings.rounds)


def score(settings: Settings, state: State) -> dict[str, Array]:
    return {
        "ceiling": jnp.stack(state.best).astype(jnp.float32),
        "items_won": jnp.stack(state.won).astype(jnp.float32),
        "budget_left": jnp.stack(state.budgets).astype(jnp.float32),
    }


def _where(condition: Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
