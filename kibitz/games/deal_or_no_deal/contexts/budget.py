"""Utilities that make each seat's whole pool worth a points budget."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kibitz.core.errors import BadInput
from kibitz.games.deal_or_no_deal.contexts.formats import MAX_UTILITY, Ints


def fit_budget(counts: ArrayLike, utilities: ArrayLike, budget: int) -> tuple[Ints, NDArray[np.bool_]]:
    """Utilities whose whole pool is worth `budget`, as close to the given ones as integers allow.

    `counts` is [N, 3]; `utilities` is [N, 3] or [N, 2, 3], and the second result, without its last axis, says
    whether the budget is met exactly. Where no utilities of 0..MAX_UTILITY meet it, the closest worth
    counts. The closest utilities have the smallest sum of squared changes, then the lexicographically
    smallest values. The result is never all zero: such a seat would have nothing to bargain for.
    """
    wanted, each = np.asarray(utilities, np.int32), np.asarray(counts, np.int32)
    pool_of = np.broadcast_to(each if wanted.ndim == 2 else each[:, None, :], wanted.shape)
    pools, group = np.unique(pool_of.reshape(-1, 3), axis=0, return_inverse=True)
    flat, fitted = wanted.reshape(-1, 3), np.zeros((wanted.size // 3, 3), np.int32)
    for number, pool in enumerate(pools):
        here = group.reshape(-1) == number
        fitted[here] = _fit_pool(pool, flat[here], budget, MAX_UTILITY)
    result = fitted.reshape(wanted.shape)
    return result, np.asarray((result * pool_of).sum(-1) == budget)


@lru_cache(maxsize=8)
def budget_table(min_count: int, max_count: int, max_utility: int, budget: int) -> Ints:
    """`fit_budget` for every context, as a table for compiled programs.

    Rows are indices of counts (base max_count - min_count + 1, each digit plus min_count), columns
    indices of utilities (base max_utility + 1), both with the first item type as the least significant
    digit. An entry is the index of the fitted utilities. Column 0, a seat that values nothing, is
    fitted like the others. Callers share the array, so it is read-only.
    """
    wanted, place = _digits(max_utility + 1), (max_utility + 1) ** np.arange(3, dtype=np.int32)
    pools = _digits(max_count - min_count + 1) + np.int32(min_count)
    table = np.stack([_fit_pool(pool, wanted, budget, max_utility) @ place for pool in pools])
    table.setflags(write=False)
    return table


def _fit_pool(pool: Ints, wanted: Ints, budget: int, max_utility: int) -> Ints:
    """`fit_budget` for seats that share one pool."""
    if budget < 1:
        raise BadInput(f"The points budget is {budget}; it must be at least 1.")
    # Lexicographic order, so that argmin breaks ties as documented.
    every = _digits(max_utility + 1)[1:, ::-1]
    gap = np.abs(every @ pool - budget)
    reachable = every[gap == gap.min()]
    # |wanted - r|^2 without |wanted|^2, which all candidates share.
    change = (reachable * reachable).sum(1) - 2 * (wanted @ reachable.T)
    return np.asarray(reachable[change.argmin(1)], np.int32)


@lru_cache(maxsize=8)
def _digits(base: int) -> Ints:
    """i32[base**3, 3], the digits of each index, least significant first."""
    return (np.arange(base**3, dtype=np.int32)[:, None] // base ** np.arange(3, dtype=np.int32)) % base
