"""`detective`: plays as `bayes` does, without being told which kind of partner it faces.

For every kind it keeps the partner utilities that explain all of the partner's acts so far, and plays as `bayes`
would against the most likely kind. What it earns is what a player can expect that has to find out by itself.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from kibitz.core.act import Act, Masks
from kibitz.core.bots import Bot
from kibitz.games.deal_or_no_deal.bots import bayes, partner
from kibitz.games.deal_or_no_deal.rules import MAX_UTILITY, SILENT, UTILITY_VECTORS, Items, Settings, dot, minus
from kibitz.games.deal_or_no_deal.view import View

# How likely each kind is before the first act. A conceder is worth waiting for, so it is suspected early.
SUSPECTS = {"heuristic": 0.85, "stubborn": 0.02, "conceder": 0.11, "mirror": 0.02}


class Memory(NamedTuple):
    fits: Array  # u32[kinds, WORDS], the memory of a `bayes` that believes in this kind
    explains: Array  # bool[kinds, utility vectors], each act so far was what such a partner does


def bot(max_count: int) -> Bot:
    informed = bayes.bot(max_count)
    prior = jnp.asarray(list(SUSPECTS.values()), jnp.float32)

    def start(settings: Settings, seat: int, u: Array) -> Memory:
        fits = jnp.stack([informed.start(settings, seat, u)] * len(SUSPECTS))
        return Memory(fits, jnp.ones((len(SUSPECTS), UTILITY_VECTORS), bool))

    def precompute(settings: Settings, seat: int) -> Settings:
        """This seat's entry of `ladders` has a ladder for each kind."""
        other, ladders = 1 - seat, list(settings.ladders)
        believed = [partner.seat_at(settings, other, partner.KINDS[kind]) for kind in SUSPECTS]
        ladders[seat] = tuple(bayes.ladder_for(one, other, max_count) for one in believed)
        return settings._replace(ladders=tuple(ladders))

    def choose(settings: Settings, memory: Memory, view: View, masks: Masks, u: Array) -> tuple[Memory, Act]:
        explains = memory.explains & jnp.stack([explained(settings, partner.KINDS[kind], view) for kind in SUSPECTS])
        fits, acts = [], []
        for kind, ladder in enumerate(settings.ladders[view.seat]):
            after, act = informed.choose(settings._replace(ladders=(ladder, ladder)), memory.fits[kind], view, masks, u)
            fits.append(after)
            acts.append(act)
        suspect = jnp.argmax(prior * jnp.sum(explains, axis=1))  # the first one if no kind explains the acts
        chosen = jax.tree.map(lambda *each: jnp.stack(each)[suspect], *acts)
        return Memory(jnp.stack(fits), explains), chosen

    return Bot(name="detective", choose=choose, start=start, precompute=precompute, bit_widths=Memory._make((0, 0)))


def explained(settings: Settings, row: partner.PartnerRow, view: View) -> Array:
    """bool[utility vectors]: with which utilities a partner of this kind would have acted as it last did."""
    base = MAX_UTILITY + 1
    index = jnp.arange(UTILITY_VECTORS, dtype=jnp.int32)
    theirs = Items(index % base, index // base % base, index // base**2)
    seen = View(
        seat=0,
        counts=view.counts,
        my_utilities=theirs,
        other_utilities=view.other_utilities,
        other_act=view.my_act,
        offer_for_me=minus(view.counts, view.my_claim),
        my_act=view.other_act,
        my_claim=minus(view.counts, view.offer_for_me),
        turns_left=view.turns_left + 1,
        my_past=(),
    )
    kind = settings._replace(styles=partner.styles([row]))
    style = partner.Style(jnp.int32(0), jnp.int32(round(1000 * row.low)))
    _, (act_type, *claim) = partner.choose_act(kind, style, seen, (), jnp.ones(1))
    same = act_type == view.other_act
    for mine, observed in zip(claim, minus(view.counts, view.offer_for_me), strict=True):
        same &= mine == observed
    return jnp.asarray(((dot(theirs, view.counts) > 0) & same) | (view.other_act == SILENT))
