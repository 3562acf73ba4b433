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
from kibitz.core.bots import seated
from kibitz.core.game import SEATS, Game
from kibitz.core.solo import against
from kibitz.core.xla.jit import jit_batch
from kibitz.core.xla.packing import Layout


def check_game(game: Game, options: Any = None, games: int = 256, seed: int = 0) -> None:
    """Raises AssertionError about the first promise of `Game` that does not hold."""
    options = options if options is not None else game.default_options
    settings = options.settings()
    _record(game)
    _play(game, settings, games, seed)
    _against(game, settings, games, seed)


def _record(game: Game) -> None:
    assert game.name.isidentifier(), f"The name {game.name!r} should be a Python identifier."
    assert game.version >= 1, "The version should count from 1."
    shape = (game.heads[0].size, len(game.heads))
    assert game.matters.shape == shape, f"`matters` should have shape {shape}, not {game.matters.shape}."
    assert game.matters[:, 0].all(), "The first head always matters."
    for name in ("random", "heuristic", game.reference):
        assert name in game.bots, f"The game should have a rule {name!r}."


def _play(game: Game, settings: Any, games: int, seed: int) -> None:
    """Uniform legal acts for both seats until every game is over, and once more."""
    layout, rng = Layout(game.bit_widths, game.example), np.random.default_rng(seed)

    def choose(state: Any, seat: int, u: Any) -> Any:
        masks = game.rules.legal(settings, state, seat)
        return acts.sample(tuple(jnp.zeros(size) for size in game.sizes), masks, u), masks

    def packs(state: Any) -> Any:
        back = layout.unpack(layout.pack(state))
        for old, new in zip(jax.tree.leaves(state), jax.tree.leaves(back), strict=True):
            assert old.dtype == new.dtype, f"Packing should keep the type {old.dtype}, not make it {new.dtype}."
        return _same(state, back)

    def begin(u: Any) -> Any:
        state = game.rules.new(settings, u)
        return state, packs(state)

    def turn(state: Any, u: Any) -> dict[str, Any]:
        heads = len(game.heads)
        (mine, masks0), (theirs, masks1) = choose(state, 0, u[:heads]), choose(state, 1, u[heads : 2 * heads])
        after, rewards, over = game.rules.step(settings, state, (mine, theirs), u[2 * heads :])
        return {
            "after": after,
            "rewards": rewards,
            "over": over,
            "to_act": game.rules.to_act(state),
            "after_to_act": game.rules.to_act(after),
            "open": jnp.stack([jnp.any(mask) for mask in (*masks0, *masks1)]),
            "legal": acts.is_legal(masks0, mine, game.matters) & acts.is_legal(masks1, theirs, game.matters),
            "frozen": _same(state, after),
            "packs": packs(after),
            "features": jnp.stack([jnp.all(jnp.isfinite(_features(game, settings, after, s))) for s in SEATS]),
        }

    many = jit_batch(jax.vmap(turn))
    state, packed = jit_batch(jax.vmap(begin))(rng.random((games, game.rules.new_uniforms), np.float32))
    assert np.asarray(packed).all(), "Packing a state should lose nothing."
    over = np.zeros(games, bool)
    longest = game.rules.max_steps(settings)
    for step in range(longest + 1):
        assert step < longest or over.all(), f"Every game should be over after `max_steps` = {longest} steps."
        u = rng.random((games, 2 * len(game.heads) + game.rules.step_uniforms), np.float32)
        seen = {name: np.asarray(x) if name != "after" else x for name, x in many(state, u).items()}
        running = ~over
        assert (seen["to_act"].any(1) == running).all(), "Somebody is to act until the game is over, then nobody."
        if not game.rules.simultaneous:
            assert (seen["to_act"].sum(1) <= 1).all(), "In an alternating game one seat acts at a time."
        assert seen["open"][running].all(), "No mask may be empty before the end."
        assert seen["legal"][running].all(), "Values drawn from the masks should be legal."
        assert np.isfinite(seen["rewards"]).all(), "Rewards should be finite."
        assert (seen["rewards"][over] == 0).all(), "Nothing is paid after the end."
        assert seen["frozen"][over].all(), "A game that is over should stay as it is."
        assert (seen["over"] >= over).all(), "A game that is over should stay over."
        assert (seen["over"] == ~seen["after_to_act"].any(1)).all(), "`terminated` and `to_act` should agree."
        assert seen["packs"].all(), "Every reachable state should survive packing."
        assert seen["features"].all(), "Features should be finite."
        state, over = seen["after"], seen["over"]
    scores = jit_batch(jax.vmap(lambda s: game.measures.score(settings, s)))(state)
    assert "ceiling" in scores, "`score` should give a ceiling."
    for name, value in scores.items():
        assert value.shape == (games, 2), f"The measure {name!r} should be one number for each seat."


def _same(one: Any, other: Any) -> Any:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return jnp.all(jnp.stack([jnp.all(a == b) for a, b in pairs]))


def _features(game: Game, settings: Any, state: Any, seat: int) -> Any:
    return game.learning.features(settings, game.rules.view(settings, state, seat))


def _against(game: Game, settings: Any, games: int, seed: int) -> None:
    """Every rule begins with legal acts, and the learner is always to act or the episode over."""
    count = min(games, 64)
    for name, bot in game.bots.items():
        told = seated(settings, {1: bot})
        play = against(game, bot)

        def look(u: Any, bot: Any = bot, told: Any = told, play: Any = play) -> Any:
            # what the rule is asked first, as `play.new` asks it: what both compute is compiled once
            state, rest, n = (
                game.rules.new(told, u[: game.rules.new_uniforms]),
                u[game.rules.new_uniforms :],
                bot.uniforms,
            )
            view, masks = game.rules.view(told, state, 1), game.rules.legal(told, state, 1)
            _, act = bot.choose(told, bot.start(told, 1, rest[:n]), view, masks, rest[n : 2 * n])
            legal = acts.is_legal(masks, act, game.matters) | ~game.rules.to_act(state)[1]
            return game.rules.to_act(play.new(told, u).state), legal

        u = np.random.default_rng(seed).random((count, play.new_uniforms), np.float32)
        turn, legal = map(np.asarray, jit_batch(jax.vmap(look))(u))
        assert (turn[:, 0] | ~turn.any(1)).all(), f"Against {name!r} the learner should be to act at the start."
        assert legal.all(), f"The rule {name!r} should only choose legal acts."
