"""The seed's heuristic partner, and its variations as rows of numbers.

It accepts an offer worth at least a threshold share of its own pool (0.55; 0.5 after INSIST). Otherwise
it claims its most valued items, one at a time, until its share reaches the threshold, and offers the
rest. It never claims less than it would accept, and repeats its claim while nothing changes.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from kibitz.core.act import Act, Masks
from kibitz.core.bots import Bot, where
from kibitz.core.chance import happens, pick
from kibitz.games.deal_or_no_deal.rules import (
    AGREE,
    INSIST,
    PROPOSE,
    Items,
    Settings,
    Styles,
    dot,
    is_offer,
)
from kibitz.games.deal_or_no_deal.view import View

UNIFORMS = 1


class PartnerRow(NamedTuple):
    """One kind of partner; `rules.Styles` explains the columns."""

    weight: float = 1.0
    low: float = 0.55
    high: float = 0.55
    insist_gap: float = 0.05
    fall: float = 0.0
    mirror: float = 0.0
    noise: float = 0.0


KINDS = {
    "heuristic": PartnerRow(),
    "conceder": PartnerRow(low=0.8, high=0.8, insist_gap=0.0, fall=0.4),
    "stubborn": PartnerRow(low=0.75, high=0.75, insist_gap=0.0),
    "mirror": PartnerRow(low=0.5, high=0.5, insist_gap=0.0, mirror=1.0),
    "random": PartnerRow(noise=1.0),
}


class Style(NamedTuple):
    """The partner's memory: its kind in this episode, and its threshold in thousandths."""

    kind: Array
    threshold: Array


STYLE_WIDTHS = Style._make((4, 10))


def styles(rows: list[PartnerRow]) -> Styles:
    """The same rows for both seats."""
    columns = np.asarray(rows, np.float32).T
    return Styles(*(jnp.asarray(np.stack([column, column])) for column in columns))


def seat_at(settings: Settings, seat: int, row: PartnerRow) -> Settings:
    """Settings that disclose the kind of this seat's partner."""
    kinds = settings.styles.weight.shape[1]
    row = row._replace(weight=1.0 / kinds)
    table = (old.at[seat].set(value) for old, value in zip(settings.styles, row, strict=True))
    return settings._replace(styles=Styles(*table))


def row_of(settings: Settings, seat: int, kind: Array) -> Styles:
    rows = Styles(*(column[seat] for column in settings.styles))
    only = rows.weight.shape[0] == 1
    return Styles(*(column[0] if only else column[kind] for column in rows))


def start(settings: Settings, seat: int, u: Array) -> Style:
    """Draws the kind and threshold of this episode."""
    weight = settings.styles.weight[seat]
    kind, rest = jnp.int32(0), u[0]
    if weight.shape[0] > 1:
        ends = jnp.cumsum(weight) / jnp.sum(weight)
        kind = jnp.minimum(jnp.sum((ends <= rest).astype(jnp.int32)), weight.shape[0] - 1)
        share = weight[kind] / jnp.sum(weight)
        rest = jnp.clip((rest - (ends[kind] - share)) / jnp.maximum(share, 1e-9), 0, 1)
    row = row_of(settings, seat, kind)
    threshold = row.low + (row.high - row.low) * rest
    return Style(kind, jnp.round(1000 * threshold).astype(jnp.int32))


def ratio(row: Styles, threshold: Array, insisted: Array, offered: Array, turns_left: Array, max_turns: Array) -> Array:
    """The share of its pool that a partner of this row accepts now.

    `offered` is the share on the table. `turns_left` includes the partner's own act.
    """
    gone = 1 - jnp.asarray(turns_left, jnp.float32) / jnp.asarray(max_turns, jnp.float32)
    plain = threshold - jnp.where(insisted, row.insist_gap, 0) - row.fall * gone
    return jnp.where(row.mirror > 0, jnp.maximum(plain, 1 - offered), plain)


def need(share: Array, pool: Array) -> Array:
    """The fewest points that are at least this share of the pool."""
    # points are integers: 0.55 of 20 must be 11 in float32 too
    return jnp.ceil(share * pool - 1e-4).astype(jnp.int32)


def greedy(utilities: Items, counts: Items, points: Array) -> Items:
    """The most valued items, one at a time, until they are worth `points`; never an item worth 0."""
    kept = []
    for i, (value, count) in enumerate(zip(utilities, counts, strict=True)):
        better = [
            jnp.where((v > value) | ((v == value) & (j < i)), v * c, 0)
            for j, (v, c) in enumerate(zip(utilities, counts, strict=True))
            if j != i
        ]
        missing = points - sum(better)
        # float division is exact enough for small integers and, unlike integer division, vectorised
        wanted = jnp.ceil(missing / jnp.maximum(value, 1) - 1e-4).astype(jnp.int32)
        kept.append(jnp.where(value > 0, jnp.clip(wanted, 0, count), 0))
    return Items(*kept)


def random_act(view: View, u: Array) -> Act:
    """Uniform over the legal act types, and over the counts in the pool."""
    standing = is_offer(view.other_act)
    act_type, rest = pick(u, jnp.where(standing, 5, 4))
    act_type = jnp.where(~standing & (act_type >= AGREE), act_type + 1, act_type)
    kept = []
    for count in view.counts:
        value, rest = pick(rest, count + 1)
        kept.append(value)
    return (act_type, *kept)


def choose_act(settings: Settings, style: Style, view: View, masks: Masks, u: Array) -> tuple[Style, Act]:
    row = row_of(settings, view.seat, style.kind)
    threshold = style.threshold / 1000
    pool = dot(view.my_utilities, view.counts)
    worth = dot(view.my_utilities, view.offer_for_me)
    offered = jnp.where(is_offer(view.other_act), worth / jnp.maximum(pool, 1), 1 - threshold)
    asks = ratio(row, threshold, jnp.bool_(False), offered, view.turns_left, settings.max_turns)
    takes = ratio(row, threshold, view.other_act == INSIST, offered, view.turns_left, settings.max_turns)
    accepts = is_offer(view.other_act) & (worth >= need(takes, pool))
    kept = greedy(view.my_utilities, view.counts, need(asks, pool))
    planned = (jnp.where(accepts, AGREE, PROPOSE), *kept)
    is_random, rest = happens(u[0], row.noise)
    return style, where(is_random, random_act(view, rest), planned)


def kind_bot(name: str) -> Bot:
    """A partner of this kind, whatever kind the settings give its seat."""
    own = styles([KINDS[name]])
    return Bot(
        name=f"partner:{name}",
        choose=lambda settings, *rest: choose_act(settings._replace(styles=own), *rest),
        start=lambda settings, seat, u: start(settings._replace(styles=own), seat, u),
        disclose=lambda settings, seat: seat_at(settings, seat, KINDS[name]),
        uniforms=UNIFORMS,
        bit_widths=STYLE_WIDTHS,
    )


HEURISTIC = Bot(name="heuristic", choose=choose_act, start=start, uniforms=UNIFORMS, bit_widths=STYLE_WIDTHS)
RANDOM = Bot(
    name="random",
    choose=lambda settings, memory, view, masks, u: (memory, random_act(view, u[0])),
    disclose=lambda settings, seat: seat_at(settings, seat, KINDS["random"]),
    uniforms=1,
)
