"""Batches of matches, and a few matches ball by ball."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kibitz.core.act import sample
from kibitz.core.chance import block
from kibitz.core.xla.jit import jit_batch, jit_single
from kibitz.core.xla.packing import Layout
from kibitz.games.cricket import game
from kibitz.games.cricket.captains.bots import CAPTAINS
from kibitz.games.cricket.drawing.scorecard import Scorecard
from kibitz.games.cricket.laws import start
from kibitz.games.cricket.laws import state as state_
from kibitz.games.cricket.laws import step as laws
from kibitz.games.cricket.model.delivery import NO_PLAYER
from kibitz.games.cricket.options import CricketOptions
from tests.games.cricket.pitch import adds_up

MATCHES = 100_000


def broken_laws(settings: Any, before: Any, after: Any) -> Any:
    """i32[], a bit for each claim that a ball violates."""
    ball = after.ball
    live = ~before.over
    same = (after.batting == before.batting) & (after.second == before.second) & (after.supers == before.supers)
    counts = (ball.outcome != 7) & (ball.outcome != 8)
    limit = jnp.where(before.supers > 0, 1, (settings.overs + 4) // 5)
    overs = [laws.overs_of(after.overs, jnp.int32(i)) for i in range(11)]
    masks = [mask for seat in (0, 1) for mask in laws.legal(settings, after, seat)]
    claims = [
        (after.wickets <= 10) & (after.wickets >= 0),
        ~same | (after.score >= before.score),
        ~same | (after.score == before.score + ball.runs),
        ~same | (after.legal == before.legal + counts),
        ~same | (after.wickets == before.wickets + (ball.how > 0)),
        ~before.free_hit | (ball.how == 0) | (ball.how == 7),
        after.legal <= 6 * settings.overs,
        (after.striker != after.other) | after.over,
        jnp.stack([n <= limit for n in overs]).all() | ~same,
        jnp.stack([mask.any() for mask in masks]).all(),
        (ball.bowler != before.last_bowler) | (before.bowler != NO_PLAYER),
        (after.winner != state_.UNDECIDED) == after.over,
        ~after.over | (after.winner == state_.TIE) | (after.score != after.first),
    ]
    bad = sum((~claim).astype(jnp.int32) << i for i, claim in enumerate(claims))
    return jnp.where(live, bad, 0)


@pytest.mark.optimised
@pytest.mark.conformance  # slow to compile and to run
def test_no_law_is_broken_in_a_hundred_thousand_random_matches() -> None:
    """Short matches with random choices make all-outs, ties and super overs common."""
    settings = CricketOptions(max_overs=2, pool=16).settings()
    example = start.new(settings, jnp.zeros(start.NEW_UNIFORMS))
    layout = Layout(state_.BIT_WIDTHS, example)
    batch, max_steps = 20_000, laws.max_steps(settings)

    def one(settings: Any, packed: Any, u: Any) -> Any:
        state = layout.unpack(packed)
        acts = []
        for seat in (0, 1):
            masks = laws.legal(settings, state, seat)
            acts.append(sample(tuple(jnp.zeros(m.shape) for m in masks), masks, u[1 + 5 * seat : 6 + 5 * seat]))
        after, _, _ = laws.step(settings, state, (acts[0], acts[1]), u[:1])
        return layout.pack(after), broken_laws(settings, state, after)

    @jax.jit
    def play(settings: Any, key: Any) -> Any:
        packed = jax.vmap(lambda u: layout.pack(start.new(settings, u)), in_axes=1)(
            block(key, (start.NEW_UNIFORMS, batch))
        )

        def go_on(carry: Any) -> Any:
            packed, _, turn = carry
            return (turn < max_steps) & ~jnp.all(jax.vmap(layout.unpack)(packed).over)

        def turn(carry: Any) -> Any:
            packed, bad, t = carry
            u = block(jax.random.fold_in(key, t), (11, batch))
            packed, more = jax.vmap(one, in_axes=(None, 0, 1))(settings, packed, u)
            return packed, bad | more, t + 1

        packed, bad, _ = jax.lax.while_loop(go_on, turn, (packed, jnp.zeros(batch, jnp.int32), 0))
        state = jax.vmap(layout.unpack)(packed)
        return bad, state.over, state.supers, state.winner

    supers = 0
    for part in range(MATCHES // batch):
        bad, over, extra, winner = play(settings, jax.random.key(part))
        assert int(np.bitwise_or.reduce(np.asarray(bad))) == 0, "bit i names claim i of broken_laws"
        assert np.asarray(over).all()
        assert (np.asarray(winner) < 2).all(), "super overs decide every tie"
        supers = max(supers, int(np.asarray(extra).max()))
    assert supers >= 2, "some ties need a second super over"


# compiled once for all seeds
begin_one, step_one = jit_single(start.new), jit_single(laws.step)
masks_of = jit_single(lambda settings, state: [laws.legal(settings, state, seat) for seat in (0, 1)])


@pytest.mark.parametrize("seed", range(4))
def test_golden_scorecards_add_up(seed: int) -> None:
    settings = CricketOptions(max_overs=3, pool=2).settings()
    rng = np.random.default_rng(seed)
    state = jax.device_get(begin_one(settings, rng.random(start.NEW_UNIFORMS, np.float32)))
    card = Scorecard()
    while not bool(state.over):
        acts = [
            tuple(np.int32(rng.choice(np.flatnonzero(np.asarray(mask)))) for mask in masks)
            for masks in masks_of(settings, state)
        ]
        after = jax.device_get(step_one(settings, state, (acts[0], acts[1]), rng.random(1, np.float32))[0])
        card.add(state, after)
        state = after
    assert len(card.innings) >= 2
    assert all(adds_up(inn) for inn in card.innings)
    assert card.innings[-1].total == int(state.score)
    assert card.innings[-1].wickets == int(state.wickets)
    if not int(state.supers):
        assert card.innings[0].total == int(state.first)


def test_views_hide_the_levels_of_the_match() -> None:
    """States that differ only in their levels give the same view."""
    settings = CricketOptions(max_overs=5, pool=4).settings()
    view = jit_single(game().rules.view, static_argnums=2)
    state = begin_one(settings, np.full(start.NEW_UNIFORMS, 0.3, np.float32))
    hidden = state._replace(levels=tuple(jnp.int32(x) for x in (3, 200, 90)))
    for seat in (0, 1):
        seen, other = view(settings, state, seat), view(settings, hidden, seat)
        assert all(
            (np.asarray(a) == np.asarray(b)).all()
            for a, b in zip(jax.tree.leaves(seen), jax.tree.leaves(other), strict=True)
        )


@cache
def random_starts() -> Any:
    """States, whether each mask has an open value, and the features of both seats."""
    record, settings = game(), CricketOptions(max_overs=20, pool=8, random_start=True).settings()

    def begin(settings: Any, u: Any) -> Any:
        state = start.new(settings, u)
        opened = jnp.stack([mask.any() for seat in (0, 1) for mask in laws.legal(settings, state, seat)])
        views = [record.rules.view(settings, state, seat) for seat in (0, 1)]
        return state, opened, jnp.stack([record.learning.features(settings, view) for view in views])

    u = np.random.default_rng(0).random((512, start.NEW_UNIFORMS), np.float32)
    return jax.device_get(jit_batch(jax.vmap(begin, in_axes=(None, 0)))(settings, u))


def test_a_random_start_is_a_legal_position() -> None:
    states, opened, _ = random_starts()
    assert opened.all()
    assert (states.legal % 6 == 0).all()
    assert (states.wickets <= 9).all()
    assert (states.striker != states.other).all()
    assert (states.score <= states.first)[states.second].all()
    assert 0.3 < states.second.mean() < 0.7


def test_features_are_scaled_for_a_network() -> None:
    _, _, features = random_starts()
    assert np.isfinite(features).all()
    assert np.abs(features).max() < 4


@pytest.mark.conformance  # compiles a program for each captain
def test_every_captain_chooses_legally() -> None:
    settings = CricketOptions(max_overs=5, pool=8, random_start=True).settings()
    u = jax.random.uniform(jax.random.key(1), (256, start.NEW_UNIFORMS))
    record = game()

    def check(settings: Any, x: Any, bot: Any) -> Any:
        state = start.new(settings, x)
        good = []
        for seat in (0, 1):
            masks = laws.legal(settings, state, seat)
            memory = bot.start(settings, seat, x[: bot.uniforms])
            _, act = bot.choose(settings, memory, record.rules.view(settings, state, seat), masks, x[: bot.uniforms])
            good += [mask[choice] for mask, choice in zip(masks, act, strict=True)]
        return jnp.stack(good)

    for name, bot in CAPTAINS.items():
        many = jax.jit(jax.vmap(partial(check, bot=bot), in_axes=(None, 0)))
        assert np.asarray(many(settings, u)).all(), name
