"""The four styles of Kwon et al. (2023), as functions of an episode and as questions to a judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from kibitz.core.act import Act
from kibitz.core.styles import OTHER, PLAYER, PlayStyles
from kibitz.games.deal_or_no_deal.rules import ITEM_NAMES, State, is_offer, payoffs
from kibitz.games.deal_or_no_deal.view import View
from kibitz.games.deal_or_no_deal.words import act_text, plural

QUESTIONS = {
    "versatile": "Did Alice speak at least twice without ever making the same proposal again?",
    "push_over": "Was Alice a push-over: did Alice get fewer points than Bob?",
    "competitive": "Was Alice competitive: did Alice get more points than Bob?",
    "stubborn": "Was Alice stubborn: did Alice make the same proposal more than once?",
}
PUBLISHED = {
    "versatile": {"advantage": 0.17, "diversity": 0.99, "agreement": 0.98},
    "push_over": {"advantage": -2.95, "diversity": 0.82, "agreement": 1.0},
    "competitive": {"advantage": 2.92, "diversity": 0.74, "agreement": 0.88},
    "stubborn": {"advantage": 1.36, "diversity": 0.52, "agreement": 0.82},
}


class Notes(NamedTuple):
    """What one seat has said. PROPOSE and INSIST of the same items are the same proposal."""

    proposed: tuple[Array, ...]  # u32[] each: bit k % 32 of word k // 32 for the allocation with number k
    acts: Array  # i32[]
    repeats: Array  # i32[], proposals that the seat had made before


def start(settings: Any, seat: int, max_count: int) -> Notes:
    words = -(-((max_count + 1) ** 3) // 32)
    return Notes((jnp.uint32(0),) * words, jnp.int32(0), jnp.int32(0))


def watch(settings: Any, notes: Notes, view: View, act: Act, max_count: int) -> Notes:
    act_type, books, hats, balls = act
    number = books + (max_count + 1) * (hats + (max_count + 1) * balls)
    bit = jnp.uint32(1) << (number % 32).astype(jnp.uint32)
    here = [is_offer(act_type) & (number // 32 == word) for word in range(len(notes.proposed))]
    again = jnp.stack([now & (word & bit > 0) for now, word in zip(here, notes.proposed, strict=True)]).any()
    return Notes(
        tuple(jnp.where(now, word | bit, word) for now, word in zip(here, notes.proposed, strict=True)),
        notes.acts + 1,
        notes.repeats + again,
    )


def shown(settings: Any, notes: Notes, state: State, seat: int) -> dict[str, Array]:
    lead = advantage(state, seat)
    return {
        "versatile": (notes.acts >= 2) & (notes.repeats == 0),
        "push_over": lead < 0,
        "competitive": lead > 0,
        "stubborn": notes.repeats > 0,
    }


def measures(settings: Any, notes: Notes, state: State, seat: int) -> dict[str, Array]:
    """Diversity is the share of a seat's acts that do not repeat one of its proposals; NaN for a seat without acts."""
    unique = (notes.acts - notes.repeats) / jnp.maximum(notes.acts, 1)
    return {"advantage": advantage(state, seat), "diversity": jnp.where(notes.acts > 0, unique, jnp.nan)}


def advantage(state: State, seat: int) -> Array:
    """How many points more than the other seat; 0 without a deal."""
    paid = payoffs(state)
    return jnp.where(state.deal, paid[seat] - paid[1 - seat], 0)


def transcript(settings: Any, state: State, history: Sequence[Mapping[str, Any]], seat: int) -> str:
    """Pool, values, every act, and the result in points."""
    names = (PLAYER, OTHER) if seat == 0 else (OTHER, PLAYER)
    pool = ", ".join(plural(int(count), name) for count, name in zip(state.counts, ITEM_NAMES, strict=True))
    lines = [f"{PLAYER} and {OTHER} divide {pool}."]
    for who in (seat, 1 - seat):
        worth = ", ".join(f"{name} {int(x)}" for name, x in zip(ITEM_NAMES, state.utilities[who], strict=True))
        lines.append(f"Points for {names[who]}: {worth}.")
    lines += [f"{names[entry['seat']]}: {act_text(entry['act'])}" for entry in history]
    paid = [int(x) if bool(state.deal) else 0 for x in payoffs(state)]
    result = "Agreement!" if bool(state.deal) else "No agreement."
    points = [plural(paid[who], "point") for who in (seat, 1 - seat)]
    return "\n".join([*lines, f"{result} {PLAYER}: {points[0]}. {OTHER}: {points[1]}."])


def play_styles(max_count: int) -> PlayStyles:
    return PlayStyles(
        questions=QUESTIONS,
        start=partial(start, max_count=max_count),
        watch=partial(watch, max_count=max_count),
        shown=shown,
        measures=measures,
        transcript=transcript,
        published=PUBLISHED,
    )
