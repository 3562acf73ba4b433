"""The review of a finished negotiation: every allocation, the Nash point, the reference's acts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kibitz.games.deal_or_no_deal.bots import bayes
from kibitz.games.deal_or_no_deal.rules import Settings, State
from kibitz.games.deal_or_no_deal.view import view
from kibitz.games.deal_or_no_deal.words import act_text
from kibitz.games.deal_or_no_deal.yardsticks import allocations

MAX_TABLE_CELLS = 40_000  # the reference computes tables of this size in well under a second


def review(settings: Settings, state: State, past: Sequence[tuple[State, Any]], max_count: int) -> dict[str, Any]:
    """For the page: the payoff plane, and what `bayes` would have done at each turn."""
    kept = allocations(max_count)
    counts = np.array([int(x) for x in state.counts])
    kept = kept[(kept <= counts).all(axis=1)]
    mine, theirs = (np.array([int(x) for x in items]) for items in state.utilities)
    points = np.stack([kept @ mine, (counts - kept) @ theirs], axis=1)
    nash = points[int(points.prod(axis=1).argmax())]
    return {
        "allocations": [
            {"seat0": keep, "payoffs": paid, "pareto": bool(best)}
            for keep, paid, best in zip(kept.tolist(), points.tolist(), _pareto(points), strict=True)
        ],
        "nash": nash.tolist(),
        "reference": _reference(settings, past, max_count),
    }


def _pareto(points: NDArray[Any]) -> NDArray[np.bool_]:
    """bool[n]: no other point is better for one seat and no worse for the other."""
    no_worse = np.all(points[None] >= points[:, None], axis=2)
    better = np.any(points[None] > points[:, None], axis=2)
    alone: NDArray[np.bool_] = ~np.any(no_worse & better, axis=1)
    return alone


def _reference(settings: Settings, past: Sequence[tuple[State, Any]], max_count: int) -> list[dict[str, Any]]:
    """What `bayes` would have done at each turn; empty if its tables would delay the end of the episode."""
    span = int(settings.max_count) - int(settings.min_count) + 1
    times = int(settings.max_turns) + 1 if np.asarray(settings.styles.fall).any() else 1
    if times * span**3 * (max_count + 1) ** 3 > MAX_TABLE_CELLS:
        return []
    bot, choose = bayes.bot(max_count), _chooser(max_count)
    # one function, compiled for seat 0, serves both seats
    ladders = [bot.precompute(settings, seat).ladders[seat] for seat in (0, 1)]
    tables = [settings._replace(ladders=(ladder, ladder)) for ladder in ladders]
    memories = [bot.start(settings, seat, jnp.zeros(0)) for seat in (0, 1)]
    acts = []
    for turn, (state, _) in enumerate(past):
        seat = int(state.seat)
        seen = view(settings, state, seat)._replace(seat=0)
        memories[seat], act = choose(tables[seat], memories[seat], seen)
        chosen = tuple(int(x) for x in act)
        acts.append({"turn": turn, "seat": seat, "act": list(chosen), "text": act_text(chosen)})
    return acts


@cache
def _chooser(max_count: int) -> Any:
    bot = bayes.bot(max_count)
    return jax.jit(lambda settings, memory, seen: bot.choose(settings, memory, seen._replace(seat=0), (), jnp.zeros(0)))
