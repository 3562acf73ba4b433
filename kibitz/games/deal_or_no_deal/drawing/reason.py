"""Why an act: the utilities that the reference `bayes` still thinks possible, and how many of them accept it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from kibitz.games.deal_or_no_deal.bots import bayes
from kibitz.games.deal_or_no_deal.rules import AGREE, DISAGREE, END, SILENT, Items
from kibitz.games.deal_or_no_deal.words import plural
from kibitz.games.deal_or_no_deal.yardsticks import allocations


def reason(settings: Any, view: Any, history: list[Mapping[str, Any]], act: Any, max_count: int) -> str:
    """A sentence or two for the seat of the view; `act` is legal there."""
    ladder = bayes.ladder_for(settings, 1 - int(view.seat), max_count)
    pool = _pool(settings, view)
    fits = _fitting(ladder, settings, view, history, max_count)
    counts, points = (np.array([int(x) for x in items]) for items in (view.counts, view.my_utilities))
    act_type, kept = int(act[0]), np.array([int(x) for x in act[1:]])
    known = f"{_size(fits):,} possible values of the partner"
    whole = int(counts @ points)
    if act_type == DISAGREE:
        return f"It offers nothing; the reference counts {known}."
    if act_type == END:
        claim = counts - np.array([int(x) for x in view.offer_for_me])
        fit = "fits" if int(view.other_act) != SILENT and (kept + claim == counts).all() else "does not fit"
        return f"It would give you {int(kept @ points)} of {whole} points, and {fit} the partner's last claim."
    turn = min(max(int(view.turns_left) - 1, 0), ladder.accepts.shape[0] - 1)
    accepts = np.asarray(ladder.accepts[turn, int(act_type != 0), pool])  # u32[offers, words]
    if act_type == AGREE:
        return _about_agreeing(accepts, fits, view, points, whole, known, max_count)
    worth = f"It gives you {int(kept @ points)} of {whole} points"
    if int(view.turns_left) < 2:
        return f"{worth}, but the partner has no turn left to accept it."
    index = int((kept[0] * (max_count + 1) + kept[1]) * (max_count + 1) + kept[2])
    return f"{worth}; {_percent(accepts[index], fits)} of {known} would accept it."


def _about_agreeing(
    accepts: NDArray[Any], fits: NDArray[Any], view: Any, points: NDArray[Any], whole: int, known: str, max_count: int
) -> str:
    """What is offered, beside the offer with the highest expected points."""
    offered = int(points @ np.array([int(x) for x in view.offer_for_me]))
    mine = allocations(max_count) @ points
    shares = np.bitwise_count(accepts & fits).sum(axis=-1) / max(_size(fits), 1)
    best = int(np.argmax(np.where(mine > offered, mine * shares, 0)))
    text = f"It gives you {offered} of {whole} points"
    if int(view.turns_left) < 2:
        return f"{text}, and without a deal now you get nothing."
    if mine[best] <= offered or not shares[best]:
        return f"{text}; none of {known} would accept an offer that gives you more."
    share = _percent(accepts[best], fits)
    return f"{text}; {share} of {known} would accept one that gives you {plural(int(mine[best]), 'point')}."


def _pool(settings: Any, view: Any) -> int:
    low, high = int(settings.min_count), int(settings.max_count)
    books, hats, balls = (int(count) - low for count in view.counts)
    span = high - low + 1
    return books + span * (hats + span * balls)


def _fitting(
    ladder: bayes.Ladder, settings: Any, view: Any, history: list[Mapping[str, Any]], max_count: int
) -> NDArray[np.uint32]:
    """The hypotheses that the reference would still have, found by following it through the dialogue."""
    seat, pool, fits = int(view.seat), _pool(settings, view), np.full(bayes.WORDS, 0xFFFFFFFF, np.uint32)
    counts = np.array([int(x) for x in view.counts])
    acts, claims = [SILENT, SILENT], [counts, counts]  # by seat, as a state has them
    for place, entry in enumerate([*history, {"seat": seat}]):
        who = int(entry["seat"])
        if who == seat:
            seen = view._replace(
                seat=0,  # the tables are already those about the other seat
                my_act=np.int32(acts[seat]),
                my_claim=Items(*claims[seat].astype(np.int32)),
                other_act=np.int32(acts[1 - seat]),
                offer_for_me=Items(*(counts - claims[1 - seat]).astype(np.int32)),
                turns_left=np.int32(int(view.turns_left) + len(history) - place),
            )
            fits = _fit(max_count)(ladder, fits, seen, np.int32(pool))
        if "act" in entry:
            acts[who] = int(entry["act"][0])
            if acts[who] not in (AGREE, DISAGREE):
                claims[who] = np.array([int(x) for x in entry["act"][1:]])
    return np.asarray(fits)


@cache
def _fit(max_count: int) -> Any:
    def fit(ladder: bayes.Ladder, fits: Any, seen: Any, pool: Any) -> Any:
        return bayes.fitting(ladder, fits, seen, pool, max_count + 1)

    return jax.jit(fit)


def _size(bits: NDArray[Any]) -> int:
    return int(np.bitwise_count(bits).sum())


def _percent(bits: NDArray[Any], fits: NDArray[Any]) -> str:
    return f"{_size(bits & fits) / max(_size(fits), 1):.0%}"
