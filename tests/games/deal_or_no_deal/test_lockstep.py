"""Random games: the package's rules, mapped over a batch, against the oracle, step by step."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kibitz.core.solo import Solo, against
from kibitz.core.xla.packing import Layout
from kibitz.games.deal_or_no_deal import build, rules
from kibitz.games.deal_or_no_deal.bots import partner
from kibitz.games.deal_or_no_deal.rules import Settings
from tests.games.deal_or_no_deal import board, oracle
from tests.games.deal_or_no_deal.oracle import AGREE, DISAGREE, END, INSIST, NOTHING, PROPOSE, Act, Game, Triple

GAMES = 512
KINDS = list(partner.KINDS)
PAST = 2  # offers that a state remembers
RECORD = build(board.MAX_COUNT, past_offers=PAST)
PLAY = against(RECORD, RECORD.bot("heuristic"))
BARE = Layout(rules.bit_widths(PAST), RECORD.example)
# compiled, because eager calls would compile every operation separately
pack_all, unpack_all = jax.jit(jax.vmap(BARE.pack)), jax.jit(jax.vmap(BARE.unpack))
unpack_solos = jax.jit(jax.vmap(PLAY.layout.unpack))

# settings are arrays, so one batch mixes them: only the tables are shared
SHARED: Any = Settings(*(0 for _ in Settings._fields))._replace(table=None, budget_table=None, past=None, ladders=None)


def random_triple(rng: random.Random, low: int, high: int) -> Triple:
    return rng.randint(low, high), rng.randint(low, high), rng.randint(low, high)


def random_game(rng: random.Random, most: int) -> Game:
    utilities = [random_triple(rng, 0, 10) for _ in range(2)]
    if rng.random() < 0.2:  # few different values: ties, and items worth nothing
        utilities = [random_triple(rng, 0, 2) for _ in range(2)]
    return Game(
        random_triple(rng, 1, most),
        (utilities[0], utilities[1]),
        seat=rng.randint(0, 1),
        max_turns=rng.randint(1, 10),
        disagree_ends=rng.random() < 0.5,
    )


def random_act(rng: random.Random, game: Game, wild: float) -> Act:
    """Any act, rarely END; with probability `wild` possibly an illegal one."""
    kind = rng.choice([PROPOSE, PROPOSE, INSIST, INSIST, AGREE, DISAGREE, END])
    if rng.random() < wild:
        return kind, random_triple(rng, -1, 8)
    keep = tuple(rng.randint(0, count) for count in game.counts)
    other = oracle.rest_of(game.counts, game.claimed(1 - game.seat))
    # a random selection would hardly ever match
    return kind, other if kind == END and rng.random() < 0.5 else (keep[0], keep[1], keep[2])


def settings_of(games: list[Game], styles: Any) -> Settings:
    """One row of settings for each game."""
    base = board.settings_for(max_count=board.MAX_COUNT, past_offers=PAST)
    n = len(games)
    wide = jax.tree.map(lambda x: np.broadcast_to(np.asarray(x), (n, *x.shape)), base)
    return wide._replace(
        max_turns=np.array([game.max_turns for game in games], np.int32),
        disagree_ends=np.array([game.disagree_ends for game in games]),
        table=base.table,
        budget_table=base.budget_table,
        past=base.past,
        ladders=base.ladders,
        styles=styles if styles is not None else wide.styles,
    )


def rewards_of(before: Game, after: Game) -> list[int]:
    """What this act paid: only the act that closes the deal pays."""
    return [0, 0] if before.over else list(after.payoffs)


@jax.jit
@partial(jax.vmap, in_axes=(SHARED, 0, 0))
def step_packed(settings: Settings, packed: Any, act: Any) -> tuple[Any, Any, Any, Any, Any]:
    """One act on a packed state; also whether it is legal for the seat to move."""
    state = BARE.unpack(packed)
    legal = jnp.stack(board.allowed(settings, state, act))[state.seat]
    after, rewards, over = rules.step(settings, state, (act, act), jnp.zeros(0))
    return BARE.pack(after), after, rewards, over, legal


@pytest.mark.parametrize(("seed", "most"), [(1, 4), (2, 7)])
def test_the_rules_match_the_oracle_for_random_acts(seed: int, most: int) -> None:
    rng = random.Random(seed)
    games = [random_game(rng, most) for _ in range(GAMES)]
    settings = settings_of(games, None)
    packed = pack_all(board.stack([board.state_of(game, PAST) for game in games]))
    deals = 0
    for _ in range(11):  # one more than the longest game, to include steps after the end
        acts = [random_act(rng, game, wild=0.15) for game in games]
        after = [game.play(act) for game, act in zip(games, acts, strict=True)]
        packed, state, rewards, over, legal = step_packed(settings, packed, board.stack([board.plain(a) for a in acts]))
        expected = board.stack([board.state_of(game, PAST) for game in after])
        board.assert_same(state, expected)
        board.assert_same(unpack_all(packed), expected)
        paid = [rewards_of(a, b) for a, b in zip(games, after, strict=True)]
        np.testing.assert_array_equal(rewards, paid)
        np.testing.assert_array_equal(over, [game.over for game in after])
        np.testing.assert_array_equal(
            legal, [game.is_legal(act) for game, act in zip(games, acts, strict=True)], "the masks"
        )
        deals += int(np.any(paid, axis=1).sum())
        games = after
    assert all(game.over for game in games)
    assert deals > GAMES / 20  # otherwise there was nothing to compare


def styles_of(kinds: list[str], thresholds: list[Fraction]) -> rules.Styles:
    """f32[games, 2, 1] each."""
    rows = []
    for kind, threshold in zip(kinds, thresholds, strict=True):
        row = partner.KINDS[kind]
        row = row._replace(low=float(threshold), high=float(threshold)) if kind == "heuristic" else row
        rows.append(partner.styles([row]))
    stacked: rules.Styles = board.stack(rows)
    return stacked


@jax.jit
@partial(jax.vmap, in_axes=(SHARED, 0, 0))
def enter(settings: Settings, state: rules.State, u: Any) -> tuple[Any, Solo]:
    solo = PLAY.opening(settings, state, u).solo
    return PLAY.layout.pack(solo), solo


@jax.jit
@partial(jax.vmap, in_axes=(SHARED, 0, 0, 0))
def advance(settings: Settings, packed: Any, act: Any, u: Any) -> tuple[Any, Solo, Any, Any]:
    solo, rewards, over, _ = PLAY.step(settings, PLAY.layout.unpack(packed), act, u)
    return PLAY.layout.pack(solo), solo, rewards, over


def answered(game: Game, style: oracle.Style, u: float) -> Game:
    """After the partner's act, if it is the partner's turn."""
    return game.play(oracle.partner_act(game, style, u)) if game.seat == 1 and not game.over else game


@pytest.mark.parametrize(("seed", "most"), [(3, 4), (4, 7)])
def test_a_learners_games_match_the_oracle_against_every_kind_of_partner(seed: int, most: int) -> None:
    rng = random.Random(seed)
    first = [random_game(rng, most) for _ in range(GAMES)]
    kinds = [rng.choice(KINDS) for _ in first]
    # thresholds in thousandths, like those drawn from a range
    thresholds = [Fraction(rng.choice([550, 550, rng.randint(500, 700)]), 1000) for _ in first]
    styles = [
        replace(board.STYLES[kind], threshold=threshold) if kind == "heuristic" else board.STYLES[kind]
        for kind, threshold in zip(kinds, thresholds, strict=True)
    ]
    settings = settings_of(first, styles_of(kinds, thresholds))
    u = [oracle.uniform_at(game.counts, rng.randrange(10**6)) for game in first]
    block = np.zeros((GAMES, PLAY.new_uniforms), np.float32)
    block[:, -1] = u  # the partner's first act draws last
    packed, solo = enter(settings, board.stack([board.state_of(game, PAST) for game in first]), block)
    games = [answered(game, style, x) for game, style, x in zip(first, styles, u, strict=True)]
    board.assert_same(solo.state, board.stack([board.state_of(game, PAST) for game in games]))
    np.testing.assert_array_equal(
        solo.opponent_memory.threshold, [int(style.threshold * 1000) for style in styles], "the partner's threshold"
    )
    deals = dict.fromkeys(KINDS, 0)
    for _ in range(6):
        acts = [random_act(rng, game, wild=0.05) for game in games]
        u = [oracle.uniform_at(game.counts, rng.randrange(10**6)) for game in games]
        after = [answered(game.play(act), style, x) for game, act, style, x in zip(games, acts, styles, u, strict=True)]
        plain = board.stack([board.plain(act) for act in acts])
        packed, solo, rewards, over = advance(settings, packed, plain, np.array(u, np.float32)[:, None])
        board.assert_same(solo.state, board.stack([board.state_of(game, PAST) for game in after]))
        board.assert_same(unpack_solos(packed), solo)
        paid = [rewards_of(a, b) for a, b in zip(games, after, strict=True)]
        np.testing.assert_array_equal(rewards, paid)
        np.testing.assert_array_equal(over, [game.over for game in after])
        for kind, both in zip(kinds, paid, strict=True):
            deals[kind] += any(both)
        games = after
    assert all(game.over for game in games)
    assert min(deals.values()) > 10, deals  # every kind of partner closed deals


def test_packing_keeps_states_at_the_limits_of_their_fields() -> None:
    largest = Game((7, 7, 7), ((10, 10, 10), (10, 10, 10)), seat=1, max_turns=250, acts=(END, DISAGREE))
    whole: Triple = (7, 7, 7)
    largest = replace(largest, claims=(whole, whole), kept=(whole, NOTHING), over=True, offers=((whole,) * 3,) * 2)
    smallest = Game((1, 1, 1), (NOTHING, NOTHING), max_turns=1, turns_left=0, claims=(NOTHING, NOTHING))
    for game in (largest, smallest, Game((7, 1, 4), ((0, 10, 5), (9, 0, 1)), max_turns=250)):
        state = board.state_of(game, PAST)
        board.assert_same(BARE.unpack(BARE.pack(state)), state)
        for kind, threshold in ((15, 1000), (0, 0), (1, 550)):
            solo = Solo(state, partner.Style(jnp.int32(kind), jnp.int32(threshold)))
            board.assert_same(PLAY.layout.unpack(PLAY.layout.pack(solo)), solo)


def test_packing_keeps_types_and_stays_small() -> None:
    example = build(board.MAX_COUNT).example
    layout = Layout(rules.bit_widths(0), example)
    back = layout.unpack(layout.pack(example))
    assert [jnp.asarray(a).dtype for a in jax.tree.leaves(back)] == [
        jnp.asarray(a).dtype for a in jax.tree.leaves(example)
    ]
    assert layout.words == 3  # packing is for speed


def test_a_layout_keeps_every_value_that_fits_its_widths() -> None:
    # widths that do not fill words evenly
    widths = (17, 9, (1, 31), 0, 32)
    example = (jnp.int32(0), jnp.int32(0), (jnp.bool_(False), jnp.uint32(0)), jnp.float32(0), jnp.uint32(0))
    layout = Layout(widths, example)
    rng = np.random.default_rng(0)
    for tops in (True, False):
        draw = (lambda bits: 2**bits - 1) if tops else (lambda bits: int(rng.integers(2**bits)))
        tree = (
            jnp.int32(draw(17)),
            jnp.int32(draw(9)),
            (jnp.bool_(draw(1)), jnp.uint32(draw(31))),
            jnp.float32(0.1),
            jnp.uint32(draw(32)),
        )
        board.assert_same(layout.unpack(layout.pack(tree)), tree)
