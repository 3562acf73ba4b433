"""Finished episodes with their true styles, drawn in compiled batches: what judges learn from and are measured on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kibitz.advice.ask import History
from kibitz.advice.judge import Finished
from kibitz.core.act import Act, Masks
from kibitz.core.bots import Bot, mixed, seated
from kibitz.core.chance import seed_key, uniforms
from kibitz.core.errors import BadInput
from kibitz.core.game import SEATS, Game
from kibitz.core.play.resolve import bot_named
from kibitz.core.styles import watched
from kibitz.core.xla.jit import jit_batch
from kibitz.evaluate.loop import Loop, lucks_of

EPISODES_PER_BATCH = 128


class Labelled(NamedTuple):
    """Episodes in which seat 0 is judged; arrays on the host, episodes first."""

    settings: Any
    state: Any  # the final ones
    first: NDArray[np.bool_]  # [n], seat 0 acted first
    acts: NDArray[np.int16]  # [n, 2, turns, heads]
    turns: NDArray[np.int32]  # [n, 2], acts of each seat
    returns: NDArray[np.float32]  # [n, 2]
    shown: dict[str, NDArray[np.bool_]]  # the truth: [n] for each style

    def __len__(self) -> int:
        return len(self.first)


def draw(game: Game, options: Any, episodes: int, players: Sequence[str], opponent: str, seed: int) -> Labelled:
    """Episodes of the players, in equal shares by chance; without players, of every bot but the reference.

    The reference is left out because most references take long to compile.
    """
    game.styles.names(game=game.name)
    names = list(players) or [name for name in game.bots if name != game.reference]
    judged = mixed(tuple((_bot(game, name), 1 / len(names)) for name in names))
    other = _bot(game, opponent)
    settings = seated(options.settings(), {0: judged, 1: other})
    steps = game.rules.max_steps(settings)
    program = _program(game, judged, other, steps if game.rules.simultaneous else steps // 2 + 1)
    parts = []
    for start in range(0, episodes, EPISODES_PER_BATCH):
        numbers = jnp.arange(start, start + EPISODES_PER_BATCH, dtype=jnp.int32)
        parts.append(jax.device_get(program(settings, seed_key(seed), numbers)))
    whole = jax.tree.map(lambda *leaves: np.concatenate(leaves)[:episodes], *parts)
    return Labelled(jax.device_get(settings), *whole)


def finished(game: Game, labelled: Labelled, i: int) -> Finished:
    """One of the episodes, as a judge reads it."""
    state = jax.tree.map(lambda leaf: leaf[i], labelled.state)
    own, other = (
        [{"seat": seat, "act": tuple(act)} for act in labelled.acts[i, seat, : labelled.turns[i, seat]].tolist()]
        for seat in SEATS
    )
    turn = [own, other] if labelled.first[i] or game.rules.simultaneous else [other, own]
    history: History = [entries[number] for number in range(len(turn[0])) for entries in turn if number < len(entries)]
    return Finished(labelled.settings, state, history)


def _bot(game: Game, name: str) -> Bot:
    bot = bot_named(game, name)
    if bot is None:
        raise BadInput(f"{name!r} cannot be compiled; name a bot of {game.name} or policy:RUN.")
    return bot


@lru_cache(maxsize=8)
def _program(game: Game, judged: Bot, other: Bot, turns: int) -> Any:
    """settings, key, episode numbers -> everything of `Labelled` after the settings."""
    play = Loop(game, (_recorded(game, watched(game, judged), turns), _recorded(game, other, turns)))

    def run(settings: Any, key: Array, numbers: Array) -> Any:
        lucks = lucks_of(jnp.broadcast_to(key, (len(numbers), 2)), numbers, jnp.zeros(len(numbers), bool))
        states = jax.vmap(lambda luck: game.rules.new(settings, uniforms(luck, 0, game.rules.new_uniforms)))(lucks.game)
        first = jax.vmap(game.rules.to_act)(states)[:, 0]
        last, returns, _ = play.play(settings, lucks, states, (numbers[0] >= 0).astype(jnp.int32))
        (own, mine, count), (_, theirs, other_count) = last.memories
        shown = jax.vmap(lambda notes, state: game.styles.shown(settings, notes, state, 0))(own[1], last.state)
        acts, counts = jnp.stack([mine, theirs], axis=1), jnp.stack([count, other_count], axis=1)
        return last.state, first, acts, counts, returns, dict(shown)

    return jit_batch(run)


def _recorded(game: Game, bot: Bot, turns: int) -> Bot:
    """The same bot; its memory is its own, its acts i16[turns, heads], and their number."""

    def start(settings: Any, seat: int, u: Array) -> Any:
        return bot.start(settings, seat, u), jnp.zeros((turns, len(game.heads)), jnp.int16), jnp.int32(0)

    def choose(settings: Any, memory: Any, view: Any, masks: Masks, u: Array) -> tuple[Any, Act]:
        own, acts, count = memory
        own, act = bot.choose(settings, own, view, masks, u)
        line = jnp.stack([jnp.asarray(x, jnp.int16) for x in act])
        return (own, jnp.where((jnp.arange(turns) == count)[:, None], line, acts), count + 1), act

    return replace(bot, choose=choose, start=start, bit_widths=(bot.bit_widths, 0, 0))
