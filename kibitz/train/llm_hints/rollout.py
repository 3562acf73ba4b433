"""Practice with an adviser on the host.

The compiled step records all that a question needs: the acts so far, whether a hint is due, and a hash of
everything that the question is made from, by which the host finds a known position without writing the question.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kibitz.advice.features import Hint
from kibitz.core.act import Act, Masks
from kibitz.core.bots import where
from kibitz.core.game import Game
from kibitz.train.rollout import Games, Past, Placed, Practice, pack_masks

LANES = 4  # 128 bits: two equal hashes among a billion positions are less likely than a broken disk


class HintState(NamedTuple):
    """What the host must know of one game."""

    lines: Array  # i16[max_lines, 1 + heads]: 1 + seat and act of every turn, oldest first, then zeros
    length: Array  # i32[], lines so far
    lines_hash: Array  # u32[LANES]
    key: Array  # u32[LANES], a hash of view, masks and lines
    due: Array  # bool[], a hint is due


class RolloutContext(NamedTuple):
    """What a question is made from; every leaf has the axes of the batch first."""

    view: Any
    masks: Masks
    lines: Array
    length: Array


@dataclass(frozen=True, eq=False)
class HostHintPractice(Practice):
    """`Games.adviser_memory` is a HintState. The host sets `Games.hint` and then clears `due`."""

    max_lines: int = 1

    @property
    def advised(self) -> bool:
        return True

    def hint_context(self, settings: Any, games: Games) -> RolloutContext:
        def one(games: Games) -> RolloutContext:
            state = self.play.layout.unpack(games.solo).state
            view, masks = self.game.rules.view(settings, state, 0), self.game.rules.legal(settings, state, 0)
            return RolloutContext(view, masks, games.adviser_memory.lines, games.adviser_memory.length)

        return jax.vmap(one)(games)

    def _advise(
        self, settings: Any, placed: Placed, past: Past | None, since: Array, u: Array
    ) -> tuple[Hint, HintState]:
        hints = self._no_lines()
        if past is not None:
            hints = where(past.over, hints, self._with_line(past.adviser_memory, jnp.bool_(True), 0, past.act))
        hints = self._with_line(hints, placed.reply.acted, 1, placed.reply.act)
        state = placed.solo.state
        due = self.game.rules.to_act(state)[0] & (since % self.cadence == 0)
        hints = hints._replace(key=self.position_key(settings, state, hints.lines_hash), due=due)
        return self.adapter.no_hint(jnp.int32(0)), hints

    def position_key(self, settings: Any, state: Any, lines_hash: Array) -> Array:
        """u32[LANES]: a hash of everything that a question is made from."""
        view, masks = self.game.rules.view(settings, state, 0), self.game.rules.legal(settings, state, 0)
        return digest(jnp.concatenate([*map(_words, jax.tree.leaves(view)), pack_masks(masks), lines_hash]))

    def _no_lines(self) -> HintState:
        lines = jnp.zeros((self.max_lines, 1 + len(self.game.heads)), jnp.int16)
        zeros = jnp.zeros(LANES, jnp.uint32)
        return HintState(lines, jnp.int32(0), zeros, zeros, jnp.bool_(False))

    def _with_line(self, hints: HintState, acted: Array, seat: int, act: Act) -> HintState:
        line = jnp.stack([jnp.int32(1 + seat), *(jnp.asarray(x, jnp.int32) for x in act)])
        here = (jnp.arange(self.max_lines) == hints.length) & acted
        lines_hash = hints.lines_hash + digest(jnp.concatenate([hints.length[None], line]).astype(jnp.uint32))
        return hints._replace(
            lines=jnp.where(here[:, None], line.astype(jnp.int16), hints.lines),
            length=hints.length + acted,
            lines_hash=jnp.where(acted, lines_hash, hints.lines_hash),
        )


def max_lines(game: Game, settings: Any) -> int:
    """Acts of both seats in one episode, and an opening act."""
    with jax.ensure_compile_time_eval():  # also called while a program is traced
        return game.rules.max_steps(settings) * (2 if game.rules.simultaneous else 1) + 1


def digest(words: Array) -> Array:
    """u32[n] -> u32[LANES]: each word is mixed with constants of its place, and the results are added."""
    count = words.shape[0]
    numbers = np.arange(1, 2 * count * LANES + 1, dtype=np.uint32).reshape(2, count, LANES)
    with np.errstate(over="ignore"):
        factor, start = _mixed(numbers * np.uint32(0x9E3779B9))
    mixed = _mixed(words[:, None] * (factor | np.uint32(1)) + start)
    whole: Array = _mixed(jnp.sum(mixed, axis=0, dtype=jnp.uint32))
    return whole


def _mixed(x: Any) -> Any:
    """The finaliser of MurmurHash3 (public domain): one to one, every bit depends on every bit."""
    x = (x ^ (x >> 16)) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * np.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def _words(leaf: Any) -> Array:
    """A leaf of a view as u32[n]."""
    flat = jnp.atleast_1d(jnp.asarray(leaf)).ravel()
    if jnp.issubdtype(flat.dtype, jnp.floating):
        return jax.lax.bitcast_convert_type(flat.astype(jnp.float32), jnp.uint32)
    return flat.astype(jnp.uint32)
