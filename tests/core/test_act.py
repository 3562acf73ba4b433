"""Acts as masked heads: one and many, and heads that do not matter."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from kibitz.core import act as acts

MATTERS = np.array([[True, True, False], [True, False, False], [True, True, True]])
SIZES = (3, 2, 4)

# compiled, as they are used; operation by operation each would be compiled by itself
sample, best = jax.jit(acts.sample), jax.jit(acts.best)
log_prob = jax.jit(lambda logits, masks, act: acts.log_prob(logits, masks, act, MATTERS))
entropy = jax.jit(lambda logits, masks: acts.entropy(logits, masks, MATTERS))
is_legal = jax.jit(lambda masks, act: acts.is_legal(masks, act, MATTERS))


def _random(seed: int, games: int) -> tuple[acts.Logits, acts.Masks]:
    rng = np.random.default_rng(seed)
    logits = tuple(2 * rng.standard_normal((n, games), np.float32) for n in SIZES)
    masks = tuple((rng.random((n, games)) < 0.6) | (np.arange(n) == 0)[:, None] for n in SIZES)
    return tuple(map(jnp.asarray, logits)), tuple(map(jnp.asarray, masks))


def test_a_closed_value_is_never_drawn_and_open_ones_come_with_their_probability() -> None:
    logits = (np.array([0.0, 5.0, 1.0], np.float32), np.zeros(2, np.float32), np.zeros(4, np.float32))
    masks = (np.array([True, False, True]), np.array([False, True]), np.array([False, True, True, False]))
    u = np.random.default_rng(0).random((3, 20_000), np.float32)
    wide = [np.broadcast_to(x[:, None], (x.shape[0], 20_000)) for x in (*logits, *masks)]
    drawn = [np.asarray(x) for x in sample(tuple(wide[:3]), tuple(wide[3:]), u)]
    assert set(np.unique(drawn[0])) == {0, 2}
    assert set(np.unique(drawn[1])) == {1}
    assert abs(float(np.mean(drawn[0] == 2)) - np.e / (1 + np.e)) < 0.02
    assert abs(float(np.mean(drawn[2] == 1)) - 0.5) < 0.02


def test_the_largest_uniform_still_gives_an_open_value() -> None:
    masks = (jnp.array([True, True, False]), jnp.array([True, False]), jnp.array([True, False, False, False]))
    logits = tuple(jnp.zeros(n) for n in SIZES)
    drawn = sample(logits, masks, jnp.full(3, 1.0))
    assert [int(x) for x in drawn] == [1, 0, 0]


def test_probabilities_of_distinct_acts_add_up_to_one() -> None:
    logits, masks = _random(1, 1)
    one = [tuple(np.asarray(x)[:, 0] for x in part) for part in (logits, masks)]
    total, seen = 0.0, set()
    for act in itertools.product(*map(range, SIZES)):
        played = tuple(v if m else 0 for v, m in zip(act, MATTERS[act[0]], strict=True))
        if played in seen or not bool(is_legal(one[1], act)):
            continue
        seen.add(played)
        total += np.exp(float(log_prob(one[0], one[1], act)))
    assert abs(total - 1) < 1e-5


def test_entropy_is_that_of_the_acts_as_played() -> None:
    logits, masks = _random(2, 1)
    one = [tuple(np.asarray(x)[:, 0] for x in part) for part in (logits, masks)]
    by_hand, seen = 0.0, set()
    for act in itertools.product(*map(range, SIZES)):
        played = tuple(v if m else 0 for v, m in zip(act, MATTERS[act[0]], strict=True))
        if played in seen or not bool(is_legal(one[1], act)):
            continue
        seen.add(played)
        logp = float(log_prob(one[0], one[1], act))
        by_hand -= np.exp(logp) * logp
    assert abs(by_hand - float(entropy(one[0], one[1]))) < 1e-5


def test_no_gradient_flows_through_a_head_that_does_not_matter_or_a_closed_value() -> None:
    logits, masks = _random(3, 1)
    one = tuple(x[:, 0] for x in logits)
    opened = tuple(x[:, 0] for x in masks)
    act = (jnp.int32(0), jnp.int32(0), jnp.int32(0))  # the third head does not matter

    def both(x: acts.Logits) -> jax.Array:
        return acts.log_prob(x, opened, act, MATTERS) + acts.entropy(x, opened, MATTERS)

    gradient = jax.jit(jax.grad(lambda x: acts.log_prob(x, opened, act, MATTERS)))(one)
    assert np.all(np.asarray(gradient[2]) == 0)
    assert np.any(np.asarray(gradient[1]) != 0) or int(opened[1].sum()) == 1
    for part, mask in zip(jax.jit(jax.grad(both))(one), opened, strict=True):
        assert np.all(np.asarray(part)[~np.asarray(mask)] == 0)


def test_many_acts_at_once_are_what_each_is_alone() -> None:
    logits, masks = _random(4, 50)
    u = np.random.default_rng(5).random((3, 50), np.float32)
    many = sample(logits, masks, u)
    logp, spread = log_prob(logits, masks, many), entropy(logits, masks)
    for game in range(50):
        one = [tuple(np.asarray(x)[:, game] for x in part) for part in (logits, masks)]
        act = sample(one[0], one[1], u[:, game])
        assert [int(x) for x in act] == [int(x[game]) for x in many]
        assert abs(float(log_prob(one[0], one[1], act)) - float(logp[game])) < 1e-5
        assert abs(float(entropy(one[0], one[1])) - float(spread[game])) < 1e-5
        assert bool(is_legal(one[1], act))


def test_the_best_act_is_open() -> None:
    logits, masks = _random(6, 200)
    chosen = best(logits, masks)
    assert np.asarray(is_legal(masks, chosen)).all()
    for head, mask, choice in zip(logits, masks, chosen, strict=True):
        values, taken = np.asarray(head), np.asarray(choice)[None]
        highest = np.where(mask, values, -np.inf).max(axis=0)
        np.testing.assert_array_equal(highest, np.take_along_axis(values, taken, 0)[0])
