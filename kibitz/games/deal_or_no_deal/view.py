"""What a seat may know, and the same as features for a network."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from kibitz.core.bots import where
from kibitz.games.deal_or_no_deal.rules import (
    DISAGREE,
    MAX_UTILITY,
    SILENT,
    Items,
    Settings,
    State,
    minus,
)


class View(NamedTuple):
    """One seat's knowledge. `other` is the opposite seat."""

    seat: int
    counts: Items
    my_utilities: Items
    other_utilities: Items  # zeros unless they are revealed
    other_act: Array  # i32[], SILENT before its first act
    offer_for_me: Items  # what the other's last claim leaves to this seat; zeros before its first act
    my_act: Array  # i32[], SILENT before this seat's first act
    my_claim: Items  # what this seat last claimed; the whole pool before its first act
    turns_left: Array  # i32[]
    my_past: tuple[Items, ...]  # own last offers, newest first; zeros before the first


def view(settings: Settings, state: State, seat: int) -> View:
    other = 1 - seat
    nothing = Items(*(jnp.zeros_like(x) for x in state.counts))
    return View(
        seat=seat,
        counts=state.counts,
        my_utilities=state.utilities[seat],
        other_utilities=where(settings.reveal, state.utilities[other], nothing),
        other_act=state.last_acts[other],
        offer_for_me=minus(state.counts, state.claims[other]),
        my_act=state.last_acts[seat],
        my_claim=state.claims[seat],
        turns_left=state.turns_left,
        my_past=state.past[seat],
    )


def shown_act(act: Array) -> Array:
    """As the seed's observation has it: DISAGREE before the partner's first act."""
    return jnp.where(act == SILENT, DISAGREE, act)


def features(settings: Settings, view: View, revealed: bool, max_count: int) -> Array:
    """f32[15 or 18], in the seed's order, each scaled to 0..1.

    Counts 3, own utilities 3, the partner's 3 if they are revealed, last act 5, last offer 3, turns 1;
    then 3 for each remembered offer.
    """
    count, points = jnp.float32(max_count), jnp.float32(MAX_UTILITY)
    act = shown_act(view.other_act)
    theirs = view.other_utilities if revealed else ()
    return jnp.stack(
        [
            *(x / count for x in view.counts),
            *(x / points for x in view.my_utilities),
            *(x / points for x in theirs),
            *((act == kind).astype(jnp.float32) for kind in range(5)),
            *(x / count for x in view.offer_for_me),
            view.turns_left / jnp.asarray(settings.max_turns, jnp.float32),
            *(x / count for offer in view.my_past for x in offer),
        ]
    ).astype(jnp.float32)
