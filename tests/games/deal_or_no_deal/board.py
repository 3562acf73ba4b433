"""Converts the oracle's games to the package's arrays; programs are compiled once for all tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kibitz.core.act import is_legal
from kibitz.games.deal_or_no_deal import MATTERS, build, rules
from kibitz.games.deal_or_no_deal.bots import partner
from kibitz.games.deal_or_no_deal.options import NegotiationOptions
from kibitz.games.deal_or_no_deal.rules import Items, Settings, State
from tests.games.deal_or_no_deal import oracle

MAX_COUNT = 7  # counts and heads of the largest record; its programs serve every pool


def settings_for(**options: Any) -> Settings:
    return NegotiationOptions(**options).settings()


def style_of(row: partner.PartnerRow, threshold: Fraction | None = None) -> oracle.Style:
    """A row of the package in exact numbers."""
    exact = {name: Fraction(str(value)) for name, value in row._asdict().items()}
    chosen = exact["low"] if threshold is None else threshold
    return oracle.Style(chosen, exact["insist_gap"], exact["fall"], row.mirror > 0, row.noise > 0)


STYLES: Mapping[str, oracle.Style] = {name: style_of(row) for name, row in partner.KINDS.items()}


def state_of(game: oracle.Game, past_offers: int = 0) -> State:
    """The package's state of the same position, as NumPy scalars."""
    silent = rules.SILENT
    none_yet = (oracle.NOTHING,) * past_offers
    past = tuple(tuple(map(_items, (*offers, *none_yet)[:past_offers])) for offers in game.offers)
    return State(
        counts=_items(game.counts),
        utilities=(_items(game.utilities[0]), _items(game.utilities[1])),
        claims=(_items(game.claimed(0)), _items(game.claimed(1))),
        last_acts=tuple(np.int32(silent if act is None else act) for act in game.acts),
        seat=np.int32(game.seat),
        turns_left=np.int32(game.turns_left),
        deal=np.bool_(game.kept is not None),
        over=np.bool_(game.over),
        past=past,  # type: ignore[arg-type]
    )


def _items(numbers: oracle.Triple) -> Items:
    return Items(*(np.int32(n) for n in numbers))


def stack(trees: Sequence[Any]) -> Any:
    """Many trees of scalars as one tree of arrays."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def assert_same(tree: Any, expected: Any) -> None:
    """Every leaf is equal; the error names the path of a difference."""
    found, shape = jax.tree_util.tree_flatten_with_path(tree)
    wanted, other = jax.tree_util.tree_flatten_with_path(expected)
    assert shape == other
    for (path, a), (_, b) in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=jax.tree_util.keystr(path))


def plain(act: oracle.Act) -> tuple[Any, ...]:
    """An act for the package's functions."""
    act_type, keep = act
    return tuple(np.int32(x) for x in (act_type, *keep))


def _play(settings: Settings, state: State, act: tuple[Any, ...]) -> tuple[State, jax.Array, jax.Array]:
    return rules.step(settings, state, (act, act), jnp.zeros(0))


def _masks(settings: Settings, state: State) -> tuple[Any, Any]:
    return tuple(rules.legal(settings, state, seat, MAX_COUNT) for seat in (0, 1))  # type: ignore[return-value]


def _allowed(settings: Settings, state: State, act: tuple[Any, ...]) -> tuple[Any, Any]:
    """Whether the act would be legal for each seat, by the masks."""
    return tuple(is_legal(masks, act, MATTERS) for masks in _masks(settings, state))  # type: ignore[return-value]


def _answer(settings: Settings, state: State, style: partner.Style, u: Any) -> Any:
    """The act of a partner in seat 1."""
    game = build(MAX_COUNT)
    view, masks = game.rules.view(settings, state, 1), game.rules.legal(settings, state, 1)
    return partner.choose_act(settings, style, view, masks, jnp.reshape(u, (1,)))[1]


play = jax.jit(_play)
masks = jax.jit(_masks)
allowed = jax.jit(_allowed)
answer = jax.jit(_answer)


def partner_answer(game: oracle.Game, kind: str = "heuristic", u: float = 0.0) -> oracle.Act:
    """The package's partner, of one kind, in seat 1 of the oracle's position."""
    settings = one_kind(kind, max_turns=game.max_turns, disagree_ends=game.disagree_ends)
    style = partner.start(settings, 1, jnp.zeros(1))
    act_type, *keep = (int(x) for x in answer(settings, state_of(game), style, jnp.float32(u)))
    return act_type, (keep[0], keep[1], keep[2])


def one_kind(kind: str, **options: Any) -> Settings:
    return settings_for(partner=kind, max_count=MAX_COUNT, **options)
