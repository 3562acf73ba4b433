"""What a seat may know, and the same as numbers for a network."""

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
    """One seat's knowledge. `other` is the seat across the table, whoever looks."""

    seat: int
    counts: Items
    my_utilities: Items
    other_utilities: Items  # zeros unless revealing was asked for
    other_act: Array  # i32[], SILENT before it has spoken
    offer_for_me: Items  # what the other's last claim leaves to me; zeros before it has spoken
    my_act: Array  # i32[], SILENT before I have spoken
    my_claim: Items  # what I last said I keep; all of the pool before I spoke
    turns_left: Array  # i32[]
    my_past: tuple[Items, ...]  # my last offers, newest first; zeros: none yet


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
    """As the seed's observation shows it: DISAGREE before the partner has spoken."""
    return jnp.where(act == SILENT, DISAGREE, act)


def features(settings: Settings, view: View, revealed: bool, max_count: int) -> Array:
    """f32[15 or 18], as in the seed and in its order, each scaled to 0..1.

    Counts 3, my utilities 3, the partner's 3 when they are revealed, last act 5, last offer 3,
    turns 1; then 3 for each past offer of mine, if those are remembered.
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
