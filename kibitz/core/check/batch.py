"""Checks of the rules in compiled batches: random legal acts from the first position to the end."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kibitz.core import act as acts
from kibitz.core.check.record import guarded
from kibitz.core.game import SEATS, Game
from kibitz.core.xla.jit import jit_batch
from kibitz.core.xla.packing import Layout


def check_batch(game: Game, settings: Any, games: int, seed: int) -> None:
    """Both seats draw legal acts until every game is over, and once more."""
    begin, turn, score = _programs(game)
    rng = np.random.default_rng(seed)
    state, packed = begin(settings, rng.random((games, game.rules.new_uniforms), np.float32))
    assert np.asarray(packed).all(), f"`learning.bit_widths` is too small for a first position with {_named(settings)}."
    over, max_steps = np.zeros(games, bool), int(game.rules.max_steps(settings))
    for step in range(max_steps + 1):
        assert step < max_steps or over.all(), f"`rules.max_steps` is {max_steps}, but some games last longer."
        u = rng.random((games, 2 * len(game.heads) + game.rules.step_uniforms), np.float32)
        seen = {name: np.asarray(x) if name != "after" else x for name, x in turn(settings, state, u).items()}
        _check_turn(game, settings, seen, over)
        state, over = seen["after"], seen["over"]
    for name, value in score(settings, state).items():
        assert value.shape == (games, 2), f"`measures.score` should return one number per seat for {name!r}."


def _check_turn(game: Game, settings: Any, seen: dict[str, Any], over: Any) -> None:
    running = ~over
    assert (seen["to_act"].any(1) == running).all(), "`rules.to_act` should name a seat until the end, then none."
    if not game.rules.simultaneous:
        assert (seen["to_act"].sum(1) <= 1).all(), "`rules.to_act` names both seats, but the game is not simultaneous."
        twice = (seen["to_act"] & seen["after_to_act"])[running].any()
        assert not twice, "`rules.to_act` names a seat twice in a row; where only one acts at a time, seats alternate."
    assert seen["open"][running].all(), "`rules.legal` returned an empty mask before the end."
    assert seen["legal"][running].all(), "`rules.legal` should allow the values drawn from its own masks."
    assert np.isfinite(seen["rewards"]).all(), "`rules.step` should pay finite rewards."
    assert (seen["rewards"][over] == 0).all(), "`rules.step` should pay nothing after the end."
    assert seen["frozen"][over].all(), "`rules.step` should leave a finished game unchanged."
    assert (seen["over"] >= over).all(), "`rules.step` should keep a finished game terminated."
    agree = (seen["over"] == ~seen["after_to_act"].any(1)).all()
    assert agree, "`rules.step` should report `terminated` exactly when `rules.to_act` names no seat."
    assert seen["packs"].all(), f"`learning.bit_widths` is too small for a state with {_named(settings)}."
    assert seen["features"].all(), "`learning.features` should be finite."
    lost = seen["takes_illegal"].all()
    assert lost, "`rules.step` should let an illegal act lose the turn, because `rules.takes_illegal_acts` says so."


@lru_cache(maxsize=8)
def _programs(game: Game) -> tuple[Any, Any, Any]:
    """Begin, take a turn, score: settings are arguments, so that other options compile nothing again."""
    game = guarded(game, "rules", "learning", "measures")
    try:
        layout = Layout(game.bit_widths, game.example)
    except (ValueError, TypeError) as error:
        raise AssertionError(f"`learning.bit_widths` should have the shape of the state: {error}") from None

    def choose(settings: Any, state: Any, seat: int, u: Any) -> Any:
        masks = game.rules.legal(settings, state, seat)
        return acts.sample(tuple(jnp.zeros(size) for size in game.sizes), masks, u), masks

    def survives_packing(state: Any) -> Any:
        back = layout.unpack(layout.pack(state))
        for old, new in zip(jax.tree.leaves(state), jax.tree.leaves(back), strict=True):
            assert old.dtype == new.dtype, f"`learning.bit_widths` turns {old.dtype} into {new.dtype}."
        return same(state, back)

    def begin(settings: Any, u: Any) -> Any:
        state = game.rules.new(settings, u)
        return state, survives_packing(state)

    def takes_illegal(settings: Any, state: Any, u: Any) -> Any:
        """Whether values outside their heads lead to a proper state; such acts are data, not mistakes."""
        if not game.rules.takes_illegal_acts:
            return jnp.bool_(True)
        wild = tuple(jnp.where(u[head] < 0.5, -1, size).astype(jnp.int32) for head, size in enumerate(game.sizes))
        after, rewards, over = game.rules.step(settings, state, (wild, wild), u[2 * len(game.heads) :])
        proper = survives_packing(after) & jnp.all(jnp.isfinite(rewards))
        return proper & (over == ~jnp.any(game.rules.to_act(after)))

    def turn(settings: Any, state: Any, u: Any) -> dict[str, Any]:
        heads = len(game.heads)
        mine, masks0 = choose(settings, state, 0, u[:heads])
        theirs, masks1 = choose(settings, state, 1, u[heads : 2 * heads])
        after, rewards, over = game.rules.step(settings, state, (mine, theirs), u[2 * heads :])
        return {
            "after": after,
            "rewards": rewards,
            "over": over,
            "to_act": game.rules.to_act(state),
            "after_to_act": game.rules.to_act(after),
            "open": jnp.stack([jnp.any(mask) for mask in (*masks0, *masks1)]),
            "legal": acts.is_legal(masks0, mine, game.matters) & acts.is_legal(masks1, theirs, game.matters),
            "frozen": same(state, after),
            "packs": survives_packing(after),
            "takes_illegal": takes_illegal(settings, state, u),
            "features": jnp.stack([jnp.all(jnp.isfinite(_features(game, settings, after, seat))) for seat in SEATS]),
        }

    return (
        jit_batch(jax.vmap(begin, in_axes=(None, 0))),
        jit_batch(jax.vmap(turn, in_axes=(None, 0, 0))),
        jit_batch(jax.vmap(game.measures.score, in_axes=(None, 0))),
    )


def same(one: Any, other: Any) -> Any:
    """Whether two trees hold the same numbers."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return jnp.all(jnp.stack([jnp.all(a == b) for a, b in pairs]))


def _features(game: Game, settings: Any, state: Any, seat: int) -> Any:
    features = game.learning.features(settings, game.rules.view(settings, state, seat))
    assert features.ndim == 1, f"`learning.features` should be a vector, not an array of rank {features.ndim}."
    return features


def _named(settings: Any) -> str:
    """Small settings by name, for messages."""
    names = getattr(settings, "_fields", ())
    small = [(name, value) for name, value in zip(names, settings, strict=False) if np.ndim(value) == 0]
    return ", ".join(f"{name} {value}" for name, value in small if not isinstance(value, tuple)) or "these options"
