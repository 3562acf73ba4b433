"""Positions in which hints are judged, and what an act costs there beside the game's reference player.

Positions come from episodes in which seat 0 mixes reference and random acts, each stopped at a random turn. The regret
of an act is what the reference earns from there minus what it earns after the act, against the same opponent with the
same luck. It can be negative for a single position, because the reference does not know the opponent's hand either.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from kibitz.advice.ask import History, Position
from kibitz.core.act import Act, matter
from kibitz.core.bots import Bot, seated, where
from kibitz.core.chance import episode_luck, happens, pick, seat_luck, seed_key, uniforms
from kibitz.core.errors import BadInput
from kibitz.core.game import Game, game_over
from kibitz.core.play.resolve import bot_named
from kibitz.core.solo import Against, against
from kibitz.core.xla.jit import jit_batch

GAMES_PER_BATCH = 128  # small enough for a reference player's tables to stay in the processor's cache
NO_COST = {"prompt_tokens": 0, "completion_tokens": 0, "money": 0.0}
CONTINUATIONS = 4  # episodes played on from each act, with different luck


class Drawn(NamedTuple):
    """Positions of the learner; games first."""

    luck: Any  # u32[n, 2], the episode's
    solo: Any
    reference_memory: Any  # after it has chosen here
    best: Act  # what the reference chose
    advice: Act  # what the source chose, if it is a bot; otherwise the same
    turn: Any  # i32[n], the learner's turns so far
    view: Any
    masks: Any
    past: Any  # the opponent's opening; then for each turn: moved, own act, answered, the opponent's act
    alive: Any  # bool[n]: false where the opponent's opening ended the game


def regrets(
    game: Game, settings: Any, drawn: Drawn, opponent: str, adviser: Bot, reference: Bot
) -> NDArray[np.float64]:
    """f64[n]: what the adviser's act costs in each position; bots as in `draw_positions`."""
    follow = follower(game, opponent, reference, adviser)
    return follow(settings, drawn, drawn.best) - follow(settings, drawn, drawn.advice)


def follower(
    game: Game, opponent: str, reference: Bot, adviser: Bot
) -> Callable[[Any, Drawn, Act], NDArray[np.float64]]:
    """settings, positions, acts -> what seat 0 earns with each act and the reference from then on."""
    other = bot_named(game, opponent)
    assert other is not None, "draw_positions has used this opponent"
    return partial(_followed, _programs(game, other, reference, adviser)[1])


def position(game: Game, settings: Any, drawn: Drawn, i: int) -> Position:
    """One of the drawn positions, as the seat knows it."""
    view, masks, past = jax.tree.map(lambda leaf: np.asarray(leaf)[i], (drawn.view, drawn.masks, drawn.past))
    history: History = []
    (opened, opening), (moved, mine, answered, theirs) = past
    if opened:
        history.append({"seat": 1, "act": tuple(int(x) for x in opening)})
    for turn in range(len(moved)):
        if moved[turn]:
            history.append({"seat": 0, "act": tuple(int(x[turn]) for x in mine)})
        if moved[turn] and answered[turn]:
            history.append({"seat": 1, "act": tuple(int(x[turn]) for x in theirs)})
    return Position(settings, view, tuple(masks), history)


def _followed(follow: Any, settings: Any, drawn: Drawn, acts: Act) -> NDArray[np.float64]:
    """In batches of one size, so that one program serves any number of positions."""
    count, size = len(drawn.alive), GAMES_PER_BATCH // CONTINUATIONS
    paid = []
    for first in range(0, count, size):
        rows = np.arange(first, first + size) % count
        paid.append(np.asarray(follow(settings, *jax.tree.map(lambda leaf: leaf[rows], (drawn, acts))), float))  # noqa: B023
    return np.concatenate(paid)[:count]


def draw_positions(
    game: Game,
    options: Any,
    states: int,
    opponent: str,
    seed: int,
    adviser: Bot | None = None,
    reference: Bot | None = None,  # walks instead of the game's reference, which takes long to compile
) -> tuple[Any, Drawn]:
    """The settings, and positions drawn from a seed with the adviser's acts."""
    other, reference = bot_named(game, opponent), reference or game.bot(game.reference)
    if other is None:
        raise BadInput(f"{opponent!r} cannot be compiled; name a bot of {game.name} as the opponent.")
    adviser = adviser or reference
    settings = seated(options.settings(), {1: other}, {0: reference})
    advised = settings if adviser is reference else seated(options.settings(), {1: other}, {0: adviser})
    turns = game.rules.max_steps(settings) if game.rules.simultaneous else game.rules.max_steps(settings) // 2 + 1
    draw, key = _programs(game, other, reference, adviser)[0], seed_key(seed)
    parts: list[Drawn] = []
    found = 0
    while found < states:
        numbers = jnp.arange(len(parts) * GAMES_PER_BATCH, (len(parts) + 1) * GAMES_PER_BATCH, dtype=jnp.int32)
        parts.append(jax.device_get(draw(settings, advised, key, numbers, turns)))
        found += int(parts[-1].alive.sum())
        if len(parts) > 8 and found < len(parts):
            raise BadInput(f"{opponent} ends too many games with its first act; name another opponent.")
    drawn: Drawn = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    kept = np.flatnonzero(drawn.alive)[:states]
    chosen: Drawn = jax.tree.map(lambda leaf: np.asarray(leaf)[kept], drawn)
    return settings, chosen


@lru_cache(maxsize=16)
def _programs(game: Game, opponent: Bot, reference: Bot, adviser: Bot) -> tuple[Any, Any]:
    """Compiled: draw positions; follow an act from each of them."""
    play = against(game, opponent)

    def draw(settings: Any, advised: Any, key: Array, numbers: Array, turns: int) -> Drawn:
        def one(number: Array) -> Drawn:
            return _draw(play, reference, adviser, settings, advised, episode_luck(key, number), turns)

        return jax.vmap(one)(numbers)

    def follow(settings: Any, drawn: Drawn, acts: Act) -> Array:
        lines = jnp.arange(CONTINUATIONS, dtype=jnp.int32)

        def one(drawn: Drawn, act: Act) -> Array:
            return jnp.mean(jax.vmap(lambda line: _follow(play, reference, settings, drawn, act, line))(lines))

        return jax.vmap(one)(drawn, acts)

    return jit_batch(draw, static_argnums=4), jit_batch(follow)


def _draw(play: Against, reference: Bot, adviser: Bot, settings: Any, advised: Any, luck: Array, turns: int) -> Drawn:
    game, mine, walk = play.game, seat_luck(luck, 0), seat_luck(luck, 2)
    dice = game.bot("random")
    u = uniforms(luck, 0, play.new_uniforms)
    solo, _, opening = play.opening(settings, play.first_state(settings, u), u)
    alive = ~game_over(game, solo.state)
    stop, _ = pick(uniforms(walk, 0, 1)[0], turns)

    def start(bot: Bot, settings: Any) -> Any:
        return bot.start(settings, 0, uniforms(mine, 0, bot.uniforms))

    def consult(state: Any, memories: Any, turn: Array) -> tuple[Any, Act, Act]:
        view, masks = game.rules.view(settings, state, 0), game.rules.legal(settings, state, 0)
        first, best = reference.choose(settings, memories[0], view, masks, uniforms(mine, turn + 1, reference.uniforms))
        if adviser is reference:
            return (first, first), best, best
        u = uniforms(mine, turn + 1, adviser.uniforms)
        second, advice = adviser.choose(advised, memories[1], view, masks, u)
        return (first, second), best, advice

    def step(carry: Any, turn: Array) -> tuple[Any, Any]:
        """One move, until the walk stops; after that the position stays."""
        solo, memories, going, count, _ = carry
        found = consult(solo.state, memories, count)
        u = uniforms(walk, turn + 1, 1 + dice.uniforms)
        view, masks = game.rules.view(settings, solo.state, 0), game.rules.legal(settings, solo.state, 0)
        _, any_act = dice.choose(settings, dice.start(settings, 0, u[1:]), view, masks, u[1:])
        act = where(happens(u[0], 0.5)[0], found[1], any_act)
        luck_now = uniforms(luck, turn + 1, play.step_uniforms)
        moved, _, over, reply = play.step(settings, solo, act, luck_now)
        goes = going & (turn < stop) & ~over
        solo, memories = where(goes, (moved, found[0]), (solo, memories))
        return (solo, memories, goes, count + goes, found), (goes, act, reply.acted, reply.act)

    memories = (start(reference, settings), start(adviser, advised))
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(consult, solo.state, memories, stop))
    begun = (solo, memories, alive, jnp.int32(0), nothing)
    (solo, _, _, count, (after, best, advice)), past = lax.scan(step, begun, jnp.arange(turns + 1, dtype=jnp.int32))
    view, masks = game.rules.view(settings, solo.state, 0), game.rules.legal(settings, solo.state, 0)
    return Drawn(luck, solo, after[0], best, advice, count, view, masks, (tuple(opening), past), alive)


def _follow(play: Against, reference: Bot, settings: Any, drawn: Drawn, act: Act, line: Array) -> Array:
    """What seat 0 earns with this act and the reference from then on."""
    game, luck = play.game, episode_luck(drawn.luck, 1_000_000 + line)

    def step(carry: Any) -> Any:
        solo, memory, act, paid, turn, _ = carry
        solo, rewards, over, _ = play.step(settings, solo, act, uniforms(luck, turn + 1, play.step_uniforms))
        view, masks = game.rules.view(settings, solo.state, 0), game.rules.legal(settings, solo.state, 0)
        u = uniforms(seat_luck(luck, 0), turn + 2, reference.uniforms)
        memory, act = reference.choose(settings, memory, view, masks, u)
        return solo, memory, act, paid + rewards[0], turn + 1, over

    start = (
        drawn.solo,
        drawn.reference_memory,
        act,
        jnp.float32(0),
        jnp.asarray(drawn.turn, jnp.int32),
        jnp.bool_(False),
    )
    ended: Any = lax.while_loop(lambda carry: ~carry[5], step, start)
    return jnp.asarray(ended[3])


def mattering(game: Game, acts: NDArray[Any]) -> NDArray[np.bool_]:
    """bool[n, heads]: the heads that matter in acts i[n, heads]."""
    return np.stack([np.asarray(matter(game.matters, acts[:, 0], head)) for head in range(len(game.heads))], axis=1)


def agrees(game: Game, acts: NDArray[Any], best: NDArray[Any]) -> NDArray[np.bool_]:
    """bool[n]: the same act on every head that matters; both are i[n, heads]."""
    same: NDArray[np.bool_] = ((acts == best) | ~(mattering(game, acts) | mattering(game, best))).all(axis=1)
    return same
