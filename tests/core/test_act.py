"""Acts as masked heads: one and many, and heads that do not matter."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from kibitz.core import act as acts

MATTERS = np.array([[True, True, False], [True, False, False], [True, True, True]])
SIZES = (3, 2, 4)


def _random(seed: int, games: int) -> tuple[acts.Logits, acts.Masks]:
    keys = jax.random.split(jax.random.key(seed), 2 * len(SIZES))
    logits = tuple(2 * jax.random.normal(k, (n, games)) for k, n in zip(keys, SIZES, strict=False))
    masks = tuple(
        jax.random.bernoulli(k, 0.6, (n, games)).at[0].set(True) for k, n in zip(keys[3:], SIZES, strict=True)
    )
    return logits, masks


def test_a_closed_value_is_never_drawn_and_open_ones_come_with_their_probability() -> None:
    logits = (jnp.array([0.0, 5.0, 1.0]), jnp.array([0.0, 0.0]), jnp.zeros(4))
    masks = (jnp.array([True, False, True]), jnp.array([False, True]), jnp.array([False, True, True, False]))
    u = jax.random.uniform(jax.random.key(0), (3, 20_000))
    wide = [jnp.broadcast_to(x[:, None], (x.shape[0], 20_000)) for x in (*logits, *masks)]
    drawn = acts.sample(tuple(wide[:3]), tuple(wide[3:]), u)
    assert set(np.unique(drawn[0])) == {0, 2}
    assert set(np.unique(drawn[1])) == {1}
    assert abs(float(jnp.mean(drawn[0] == 2)) - np.e / (1 + np.e)) < 0.02
    assert abs(float(jnp.mean(drawn[2] == 1)) - 0.5) < 0.02


def test_the_largest_uniform_still_gives_an_open_value() -> None:
    masks = (jnp.array([True, True, False]), jnp.array([True, False]), jnp.array([True, False, False, False]))
    logits = tuple(jnp.zeros(n) for n in SIZES)
    drawn = acts.sample(logits, masks, jnp.full(3, 1.0))
    assert [int(x) for x in drawn] == [1, 0, 0]


def test_probabilities_of_distinct_acts_add_up_to_one() -> None:
    logits, masks = _random(1, 1)
    one = [tuple(x[:, 0] for x in part) for part in (logits, masks)]
    total, seen = 0.0, set()
    for act in itertools.product(*map(range, SIZES)):
        played = tuple(v if m else 0 for v, m in zip(act, MATTERS[act[0]], strict=True))
        if played in seen or not bool(acts.is_legal(one[1], act, MATTERS)):
            continue
        seen.add(played)
        total += float(jnp.exp(acts.log_prob(one[0], one[1], tuple(map(jnp.int32, act)), MATTERS)))
    assert abs(total - 1) < 1e-5


def test_entropy_is_that_of_the_acts_as_played() -> None:
    logits, masks = _random(2, 1)
    one = [tuple(x[:, 0] for x in part) for part in (logits, masks)]
    by_hand, seen = 0.0, set()
    for act in itertools.product(*map(range, SIZES)):
        played = tuple(v if m else 0 for v, m in zip(act, MATTERS[act[0]], strict=True))
        if played in seen or not bool(acts.is_legal(one[1], act, MATTERS)):
            continue
        seen.add(played)
        logp = float(acts.log_prob(one[0], one[1], tuple(map(jnp.int32, act)), MATTERS))
        by_hand -= np.exp(logp) * logp
    assert abs(by_hand - float(acts.entropy(one[0], one[1], MATTERS))) < 1e-5


def test_no_gradient_flows_through_a_head_that_does_not_matter_or_a_closed_value() -> None:
    logits, masks = _random(3, 1)
    one = tuple(x[:, 0] for x in logits)
    opened = tuple(x[:, 0] for x in masks)
    act = (jnp.int32(0), jnp.int32(0), jnp.int32(0))  # the third head does not matter

    def both(x: acts.Logits) -> jax.Array:
        return acts.log_prob(x, opened, act, MATTERS) + acts.entropy(x, opened, MATTERS)

    gradient = jax.grad(lambda x: acts.log_prob(x, opened, act, MATTERS))(one)
    assert np.all(np.asarray(gradient[2]) == 0)
    assert np.any(np.asarray(gradient[1]) != 0) or int(opened[1].sum()) == 1
    for part, mask in zip(jax.grad(both)(one), opened, strict=True):
        assert np.all(np.asarray(part)[~np.asarray(mask)] == 0)


def test_many_acts_at_once_are_what_each_is_alone() -> None:
    logits, masks = _random(4, 50)
    u = jax.random.uniform(jax.random.key(5), (3, 50))
    many = acts.sample(logits, masks, u)
    logp, entropy = acts.log_prob(logits, masks, many, MATTERS), acts.entropy(logits, masks, MATTERS)
    for game in range(50):
        one = [tuple(x[:, game] for x in part) for part in (logits, masks)]
        act = acts.sample(one[0], one[1], u[:, game])
        assert [int(x) for x in act] == [int(x[game]) for x in many]
        assert abs(float(acts.log_prob(one[0], one[1], act, MATTERS)) - float(logp[game])) < 1e-5
        assert abs(float(acts.entropy(one[0], one[1], MATTERS)) - float(entropy[game])) < 1e-5
        assert bool(acts.is_legal(one[1], act, MATTERS))


def test_the_best_act_is_open() -> None:
    logits, masks = _random(6, 200)
    best = acts.best(logits, masks)
    assert bool(jnp.all(acts.is_legal(masks, best, MATTERS)))
    for head, mask, choice in zip(logits, masks, best, strict=True):
        assert bool(
            jnp.all(jnp.max(jnp.where(mask, head, -jnp.inf), axis=0) == jnp.take_along_axis(head, choice[None], 0)[0])
        )
