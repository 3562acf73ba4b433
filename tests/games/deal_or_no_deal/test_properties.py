"""Invariants in positions that hypothesis generates."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kibitz.games.deal_or_no_deal import build
from kibitz.games.deal_or_no_deal.envs.gym_env import NegotiationEnv, observe
from tests.games.deal_or_no_deal import board, oracle
from tests.games.deal_or_no_deal.oracle import AGREE, DISAGREE, END, Game, Triple

# deterministic examples, so that failures can be reproduced; no deadline, because the first example compiles
try_out = partial(settings, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def triples(low: int, high: int) -> st.SearchStrategy[Triple]:
    return st.tuples(*(st.integers(low, high) for _ in range(3)))


utilities = triples(0, 10).filter(any)
acts = st.tuples(st.integers(0, 4), triples(0, 4))


@st.composite
def positions(draw: st.DrawFn, over: bool | None = None) -> Game:
    """A game after a few acts of either seat."""
    game = Game(
        draw(triples(1, 4)),
        (draw(utilities), draw(utilities)),
        seat=draw(st.integers(0, 1)),
        max_turns=draw(st.integers(1, 10)),
        disagree_ends=draw(st.booleans()),
    )
    for act in draw(st.lists(acts, max_size=8)):
        # otherwise most games would end early
        after = game.play(act)
        if after.over and over is False:
            break
        game = after
    assume(over is None or game.over == over)
    return game


def settings_of(game: Game, **options: Any) -> Any:
    return board.settings_for(max_turns=game.max_turns, disagree_ends=game.disagree_ends, **options)


# Rules


@try_out(max_examples=100)
@given(positions(), acts)
def test_items_are_conserved_and_points_come_only_with_a_deal(game: Game, act: oracle.Act) -> None:
    before = board.state_of(game)
    after, rewards, over = jax.tree.map(np.asarray, board.play(settings_of(game), before, board.plain(act)))
    board.assert_same((after.counts, after.utilities), (before.counts, before.utilities))
    for claim in after.claims:
        assert all(0 <= kept <= count for kept, count in zip(claim, after.counts, strict=True))
    if after.deal:
        assert [int(a) + int(b) for a, b in zip(*after.claims, strict=True)] == [int(x) for x in after.counts]
        assert over
    closes = bool(after.deal) and not game.over
    worth = [
        sum(int(u) * int(k) for u, k in zip(*pair, strict=True))
        for pair in zip(after.utilities, after.claims, strict=True)
    ]
    assert rewards.tolist() == (worth if closes else [0, 0])
    assert after.turns_left == (before.turns_left if game.over else before.turns_left - 1)
    assert over == after.over and (after.turns_left > 0 or over)


@try_out(max_examples=100)
@given(positions(over=False), st.data())
def test_the_mask_is_never_empty_before_the_end_and_legal_acts_are_played(game: Game, data: st.DataObject) -> None:
    state, options = board.state_of(game), settings_of(game)
    masks = [np.asarray(mask) for mask in board.masks(options, state)[game.seat]]
    assert all(mask.any() for mask in masks)
    act_type, *keep = (int(data.draw(st.sampled_from(np.flatnonzero(mask).tolist()))) for mask in masks)
    after, _, over = board.play(options, state, board.plain((act_type, (keep[0], keep[1], keep[2]))))
    assert int(after.last_acts[game.seat]) == act_type and int(after.seat) == 1 - game.seat
    if act_type in (AGREE, END):
        assert over
    elif act_type == DISAGREE:
        assert over == (game.disagree_ends or game.turns_left == 1)
    else:
        assert tuple(int(x) for x in after.claims[game.seat]) == tuple(keep)


@try_out(max_examples=100)
@given(positions(over=True), acts, st.integers(0, 1))
def test_a_finished_game_never_changes(game: Game, act: oracle.Act, seat: int) -> None:
    before = board.state_of(replace(game, seat=seat))
    after, rewards, over = board.play(settings_of(game), before, board.plain(act))
    board.assert_same(after, before)
    assert over and np.asarray(rewards).tolist() == [0, 0]


# Secrets

PAST = 2  # own offers that features remember


@cache
def _observer(max_count: int, revealed: bool, seat: int) -> Any:
    game = build(max_count, revealed, PAST)

    def everything(options: Any, state: Any) -> Any:
        view, masks = game.rules.view(options, state, seat), game.rules.legal(options, state, seat)
        return {
            "view": view._replace(seat=np.int32(seat)),
            "features": game.learning.features(options, view),
            "masks": masks,
            "observation": observe(options, view, masks),
        }

    return jax.jit(everything)


def everything_shown(game: Game, seat: int, **options: Any) -> dict[str, Any]:
    """Everything that the package shows to a seat in this position, and to the public."""
    arrays, state = settings_of(game, past_offers=PAST, **options), board.state_of(game, PAST)
    record = build(4, bool(options), PAST)
    by_record = {r: jax.device_get(_observer(4, r, seat)(arrays, state)) for r in (False, True)}
    view, masks = by_record[bool(options)]["view"]._replace(seat=seat), by_record[bool(options)]["masks"]
    history = [{"seat": who, "act": (act, *game.claimed(who))} for who, act in enumerate(game.acts) if act is not None]
    shown = {
        "arrays": by_record,
        "describe": dict(record.words.prompt_variables(arrays, view, history)),
        "fields": dict(record.words.answer_fields(view, masks)),
        "legal_text": record.words.choices_text(view, masks),
        "private": dict(record.drawing.private(arrays, state, seat)),
        "frame": dict(record.drawing.frame(arrays, state)),
    }
    json.dumps(shown["frame"])  # what a page draws must travel as JSON
    return shown


def differences(a: Any, b: Any) -> list[str]:
    found, _ = jax.tree_util.tree_flatten_with_path(a)
    other, _ = jax.tree_util.tree_flatten_with_path(b)
    assert len(found) == len(other)
    return [
        jax.tree_util.keystr(path)
        for (path, x), (_, y) in zip(found, other, strict=True)
        if not np.array_equal(np.asarray(x), np.asarray(y))
    ]


@try_out(max_examples=60)
@given(positions(), utilities, st.integers(0, 1))
def test_nothing_that_a_seat_sees_depends_on_the_other_seats_utilities(game: Game, others: Triple, seat: int) -> None:
    mine = game.utilities[seat]
    changed = replace(game, utilities=(mine, others) if seat == 0 else (others, mine))
    assert differences(everything_shown(game, seat), everything_shown(changed, seat)) == []


@try_out(max_examples=40)
@given(positions(), utilities, utilities)
def test_the_public_frame_does_not_depend_on_utilities(game: Game, a: Triple, b: Triple) -> None:
    arrays = settings_of(game)
    frames = [build(4).drawing.frame(arrays, board.state_of(g)) for g in (game, replace(game, utilities=(a, b)))]
    assert frames[0] == frames[1]


@try_out(max_examples=25)
@given(positions(over=False), utilities)
def test_revealed_utilities_appear_where_they_should(game: Game, others: Triple) -> None:
    # proves that the comparison of the test above can fail
    assume(others != game.utilities[1])
    changed = replace(game, utilities=(game.utilities[0], others))
    shown = [everything_shown(g, 0, reveal_partner_utilities=True) for g in (game, changed)]
    places = differences(*shown)
    for place in ("['view'].other_utilities", "[True]['features']", "['partner_utilities']", "['describe']['p']"):
        assert any(place in found for found in places), place
    # not to the public, and not in the features of a record without them
    assert not any("['frame']" in found or "[False]['features']" in found for found in places)


@try_out(max_examples=25)
@given(positions(over=False), utilities)
def test_a_bots_choice_does_not_depend_on_the_other_seats_utilities(game: Game, others: Triple) -> None:
    arrays = settings_of(game)
    for name in ("heuristic", "random"):
        chosen = []
        for theirs in (game.utilities[1], others):
            state = board.state_of(replace(game, utilities=(game.utilities[0], theirs)))
            chosen.append([int(x) for x in _chooser(name)(arrays, state)])
        assert chosen[0] == chosen[1]


@cache
def _chooser(name: str) -> Any:
    record = build(4)
    bot = record.bot(name)

    def choose(arrays: Any, state: Any) -> Any:
        u = np.full(bot.uniforms, 0.4, np.float32)
        view, masks = record.rules.view(arrays, state, 0), record.rules.legal(arrays, state, 0)
        return bot.choose(arrays, bot.start(arrays, 0, u), view, masks, u)[1]

    return jax.jit(choose)


# Environments


@pytest.fixture(scope="module")
def envs() -> tuple[NegotiationEnv, NegotiationEnv]:
    return NegotiationEnv(render_mode="ansi", illegal="penalty"), NegotiationEnv(render_mode="ansi", illegal="penalty")


def plain(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: plain(value) for name, value in tree.items()}
    if isinstance(tree, tuple):
        return [plain(value) for value in tree]
    return np.asarray(tree).tolist()


@try_out(max_examples=100)
@given(st.integers(0, 2**63 - 1), st.lists(acts, min_size=5, max_size=5))
def test_the_same_seed_gives_the_same_episode(
    envs: tuple[NegotiationEnv, NegotiationEnv], seed: int, script: list[oracle.Act]
) -> None:
    stories = []
    for env in envs:
        first, info = env.reset(seed=seed)
        story = [plain(first), plain(info)]
        for act_type, keep in script:
            *step, over, truncated, info = env.step({"act_type": act_type, "oA": keep})
            story += [plain(step[0]), step[1], over, truncated, plain(info), env.render()]
            if over:
                break
        stories.append(story)
    assert stories[0] == stories[1]


@try_out(max_examples=40)
@given(triples(1, 4), utilities, utilities, utilities, st.integers(0, 2**31))
def test_the_first_observation_does_not_depend_on_the_partners_utilities(
    envs: tuple[NegotiationEnv, NegotiationEnv], counts: Triple, mine: Triple, one: Triple, other: Triple, seed: int
) -> None:
    shown = []
    for env, theirs in zip(envs, (one, other), strict=True):
        context = {"counts": list(counts), "my_utilities": list(mine), "partner_utilities": list(theirs)}
        shown.append(
            [plain(env.reset(seed=seed, options={"context": context})), env.render(), env.action_masks().tolist()]
        )
    assert shown[0] == shown[1]
