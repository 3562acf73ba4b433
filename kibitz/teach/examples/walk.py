"""Positions and an expert's answers, drawn in compiled batches of episodes.

Seat 0 follows the expert, plays random acts for a share of its turns, or follows a student, and the expert
says at every turn what it would do. So a model also learns what to do after mistakes, its own included (DAgger).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from kibitz.advice.ask import History, Position
from kibitz.core.act import Act
from kibitz.core.bots import Bot, seated, where
from kibitz.core.chance import episode_luck, happens, seat_luck, seed_key, uniforms
from kibitz.core.game import Game, game_over
from kibitz.core.solo import Against, against
from kibitz.core.xla.jit import jit_batch

EPISODES_PER_BATCH = {"cpu": 128}  # a reference player's tables then stay in the processor's cache
ACCELERATOR_BATCH = 8192


@dataclass(frozen=True)
class LessonSource:
    """Who plays and who answers. The expert knows whatever the opponent discloses; a reader of the rows does not."""

    expert: Bot
    opponent: Bot
    student: Bot | None = None  # plays in place of the expert
    random_share: float = 0.0  # of seat 0's turns in episodes with odd numbers; the others have none


class Example(NamedTuple):
    """One position and what the expert does there."""

    position: Position
    act: tuple[int, ...]
    paid: float  # what seat 0 earns in the whole episode


class SeenTurns(NamedTuple):
    """Turns of seat 0; in a batch, episodes first, then turns."""

    going: Any  # bool, seat 0 was to act
    view: Any
    masks: Any
    label: Act  # the expert's act
    act: Act  # the act played
    replied: Any  # bool, the opponent acted after it
    reply: Act


class Walked(NamedTuple):
    """A batch of episodes."""

    seen: SeenTurns
    opened: Any  # bool[n], the opponent acted first
    opening: Act
    paid: Any  # f32[n]


def batch_size() -> int:
    """Episodes of a batch on this machine's devices."""
    return EPISODES_PER_BATCH.get(jax.default_backend(), ACCELERATOR_BATCH)


def examples(
    game: Game, options: Any, source: LessonSource, seed: int, start: int = 0, size: int | None = None
) -> Iterator[list[Example]]:
    """Endless batches of examples, episode by episode in the order of their numbers from `start` on."""
    settings = seated(options.settings(), {1: source.opponent}, {0: source.expert})
    mine = seated(options.settings(), {1: source.opponent}, {0: source.student}) if source.student else settings
    steps = game.rules.max_steps(settings)
    turns = steps if game.rules.simultaneous else steps // 2 + 1
    program, key, shown = _program(game, source), seed_key(seed), jax.device_get(settings)
    size = size or batch_size()
    first = start
    while True:
        numbers = jnp.arange(first, first + size, dtype=jnp.int32)
        walked = jax.device_get(program(settings, mine, key, numbers, turns))
        yield _examples(game, shown, walked)
        first += size


@lru_cache(maxsize=16)
def _program(game: Game, source: LessonSource) -> Callable[..., Walked]:
    play = against(game, source.opponent)

    def walk(settings: Any, mine: Any, key: Array, numbers: Array, turns: int) -> Walked:
        def one(number: Array) -> Walked:
            share = source.random_share * (number % 2)
            return _walk(play, source, settings, mine, episode_luck(key, number), share, turns)

        return jax.vmap(one)(numbers)

    return jit_batch(walk, static_argnums=4)


def _walk(
    play: Against, source: LessonSource, settings: Any, mine: Any, luck: Array, share: Array, turns: int
) -> Walked:
    game, own, mistakes = play.game, seat_luck(luck, 0), seat_luck(luck, 2)
    dice, expert, student = game.bot("random"), source.expert, source.student or source.expert
    u = uniforms(luck, 0, play.new_uniforms)
    solo, opened_for, opening = play.opening(settings, play.first_state(settings, u), u)

    def turn(carry: Any, number: Array) -> tuple[Any, Any]:
        solo, memory, other, going, paid = carry
        view, masks = game.rules.view(settings, solo.state, 0), game.rules.legal(settings, solo.state, 0)
        after, label = expert.choose(settings, memory, view, masks, uniforms(own, number + 1, expert.uniforms))
        other_after, act = after, label
        if source.student is not None:
            other_after, act = student.choose(mine, other, view, masks, uniforms(own, number + 1, student.uniforms))
        u = uniforms(mistakes, number + 1, 1 + dice.uniforms)
        _, any_act = dice.choose(settings, dice.start(settings, 0, u[1:]), view, masks, u[1:])
        act = where(happens(u[0], share)[0], any_act, act)
        moved = play.step(settings, solo, act, uniforms(luck, number + 1, play.step_uniforms))
        kept = where(going, (moved.solo, after, other_after), (solo, memory, other))
        paid = paid + jnp.where(going, moved.rewards[0], 0)
        seen = SeenTurns(going, view, masks, label, act, going & moved.reply.acted, moved.reply.act)
        return (*kept, going & ~moved.over, paid), seen

    def begin(bot: Bot, settings: Any) -> Any:
        return bot.start(settings, 0, uniforms(own, 0, bot.uniforms))

    begun = (solo, begin(expert, settings), begin(student, mine), ~game_over(game, solo.state), opened_for[0])
    (*_, paid), seen = lax.scan(turn, begun, jnp.arange(turns, dtype=jnp.int32))
    return Walked(seen, opening.acted, tuple(opening.act), paid)


def _examples(game: Game, settings: Any, walked: Walked) -> list[Example]:
    """On the host, as plain numbers: a row is written many times faster from them than from arrays."""
    found, seen = [], walked.seen
    leaves, tree = jax.tree.flatten(seen.view)
    views = [np.asarray(leaf).tolist() for leaf in leaves]
    masks = [np.asarray(mask) for mask in seen.masks]
    labels, acts, replies = (_stacked(act) for act in (seen.label, seen.act, seen.reply))
    opening = _stacked(walked.opening)
    for i, going in enumerate(seen.going):
        history: History = [{"seat": 1, "act": tuple(opening[i].tolist())}] if walked.opened[i] else []
        for t in np.flatnonzero(going):
            view = jax.tree.unflatten(tree, [leaf[i][t] for leaf in views])
            position = Position(settings, view, tuple(mask[i, t] for mask in masks), list(history))
            found.append(Example(position, tuple(labels[i, t].tolist()), float(walked.paid[i])))
            history.append({"seat": 0, "act": tuple(acts[i, t].tolist())})
            if seen.replied[i, t]:
                history.append({"seat": 1, "act": tuple(replies[i, t].tolist())})
    return found


def _stacked(act: Act) -> NDArray[Any]:
    """i32[..., heads]"""
    return np.stack([np.asarray(head) for head in act], axis=-1)
