"""`check_game`: the conformance suite for whoever adds a game.

    from kibitz.core.check import check_game
    check_game(my_game)

It plays a few hundred random games and raises AssertionError with a sentence about the first broken
promise.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kibitz.core import act as acts
from kibitz.core.game import SEATS, Game, against, seated
from kibitz.core.kernel import large
from kibitz.core.pack import Layout


def check_game(game: Game, options: Any = None, games: int = 256, seed: int = 0) -> None:
    """Raises AssertionError about the first promise of `Game` that does not hold."""
    options = options if options is not None else game.plain_options
    settings = options.settings()
    _record(game)
    _layout(game, settings)
    _play(game, settings, games, seed)
    _against(game, settings, games, seed)


def _record(game: Game) -> None:
    assert game.name.isidentifier(), f"The name {game.name!r} should be a Python identifier."
    assert game.version >= 1, "The version should count from 1."
    shape = (game.heads[0].size, len(game.heads))
    assert game.matters.shape == shape, f"`matters` should have shape {shape}, not {game.matters.shape}."
    assert game.matters[:, 0].all(), "The first head always matters."
    for name in ("random", "heuristic", game.reference):
        assert name in game.rules, f"The game should have a rule {name!r}."


def _layout(game: Game, settings: Any) -> None:
    u = jax.random.uniform(jax.random.key(1), (64, game.new_uniforms))
    states = jax.vmap(lambda x: game.new(settings, x))(u)
    layout = Layout(game.widths, game.example)
    back = jax.vmap(lambda s: layout.unpack(layout.pack(s)))(states)
    for old, new in zip(jax.tree.leaves(states), jax.tree.leaves(back), strict=True):
        assert old.dtype == new.dtype, f"Packing should keep the type {old.dtype}, not make it {new.dtype}."
        assert bool(jnp.all(old == new)), "Packing a state should lose nothing."


def _play(game: Game, settings: Any, games: int, seed: int) -> None:
    """Uniform legal acts for both seats until every game is over."""
    layout = Layout(game.widths, game.example)

    def choose(state: Any, seat: int, u: Any) -> Any:
        masks = game.legal(settings, state, seat)
        return acts.sample(tuple(jnp.zeros(size) for size in game.sizes), masks, u), masks

    def turn(state: Any, u: Any) -> dict[str, Any]:
        heads = len(game.heads)
        (mine, masks0), (theirs, masks1) = choose(state, 0, u[:heads]), choose(state, 1, u[heads : 2 * heads])
        after, rewards, over = game.step(settings, state, (mine, theirs), u[2 * heads :])
        same, _, still = game.step(settings, after, (mine, theirs), u[2 * heads :])
        frozen = [jnp.all(a == b) for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(same), strict=True)]
        packed = layout.unpack(layout.pack(after))
        kept = [jnp.all(a == b) for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(packed), strict=True)]
        return {
            "after": after,
            "rewards": rewards,
            "over": over,
            "to_act": game.to_act(state),
            "after_to_act": game.to_act(after),
            "open": jnp.stack([jnp.any(mask) for mask in (*masks0, *masks1)]),
            "legal": acts.is_legal(masks0, mine, game.matters) & acts.is_legal(masks1, theirs, game.matters),
            "frozen": jnp.all(jnp.stack(frozen)) & still,
            "packs": jnp.all(jnp.stack(kept)),
            "features": jnp.stack([jnp.all(jnp.isfinite(_features(game, settings, after, s))) for s in SEATS]),
        }

    many = large(jax.vmap(turn))
    key = jax.random.key(seed)
    state = large(jax.vmap(lambda u: game.new(settings, u)))(jax.random.uniform(key, (games, game.new_uniforms)))
    over = np.zeros(games, bool)
    longest = game.longest(settings)
    for step in range(longest):
        u = jax.random.uniform(jax.random.fold_in(key, step), (games, 2 * len(game.heads) + game.step_uniforms))
        seen = {name: np.asarray(x) if name != "after" else x for name, x in many(state, u).items()}
        running = ~over
        assert (seen["to_act"].any(1) == running).all(), "Somebody is to act until the game is over, then nobody."
        if not game.simultaneous:
            assert (seen["to_act"].sum(1) <= 1).all(), "In an alternating game one seat acts at a time."
        assert seen["open"][running].all(), "No mask may be empty before the end."
        assert seen["legal"][running].all(), "Values drawn from the masks should be legal."
        assert np.isfinite(seen["rewards"]).all(), "Rewards should be finite."
        assert (seen["rewards"][over] == 0).all(), "Nothing is paid after the end."
        assert (seen["frozen"] | ~seen["over"]).all(), "A game that is over should stay as it is."
        assert (seen["over"] >= over).all(), "A game that is over should stay over."
        assert (seen["over"] == ~seen["after_to_act"].any(1)).all(), "`terminated` and `to_act` should agree."
        assert seen["packs"].all(), "Every reachable state should survive packing."
        assert seen["features"].all(), "Features should be finite."
        state, over = seen["after"], seen["over"]
    assert over.all(), f"Every game should be over after `longest` = {longest} steps."
    scores = large(jax.vmap(lambda s: game.score(settings, s)))(state)
    assert "ceiling" in scores, "`score` should give a ceiling."
    for name, value in scores.items():
        assert value.shape == (games, 2), f"The measure {name!r} should be one number for each seat."


def _features(game: Game, settings: Any, state: Any, seat: int) -> Any:
    return game.features(settings, game.view(settings, state, seat))


def _against(game: Game, settings: Any, games: int, seed: int) -> None:
    """Every rule plays legal acts, and the learner is always to act or the episode over."""
    count = min(games, 64)
    for name, rule in game.rules.items():
        told = seated(settings, {1: rule})
        play = against(game, rule)

        def look(new: Any, u: Any, rule: Any = rule, told: Any = told, play: Any = play) -> Any:
            solo = play.new(told, new)
            turn = game.to_act(solo.state)
            view, masks = game.view(told, solo.state, 1), game.legal(told, solo.state, 1)
            _, act = rule.choose(told, solo.mind, view, masks, u)
            return turn, acts.is_legal(masks, act, game.matters) | ~turn[1]

        first, second = jax.random.split(jax.random.key(seed))
        new = jax.random.uniform(first, (count, play.new_uniforms))
        turn, legal = map(np.asarray, large(jax.vmap(look))(new, jax.random.uniform(second, (count, rule.uniforms))))
        assert (turn[:, 0] | ~turn.any(1)).all(), f"Against {name!r} the learner should be to act at the start."
        assert legal.all(), f"The rule {name!r} should only choose legal acts."
