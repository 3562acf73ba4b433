"""Practice with an adviser who lives on the host: what was said is kept, and every position has an address.

The compiled step writes down all a question will need: the lines said so far, whether a hint is due, and a
hash of everything a question is made of, so that the host finds a known position without putting it into words.
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
from kibitz.train.rollout import Dealt, Games, Past, Practice, pack_masks

LANES = 4  # 128 bits: among a billion positions two alike are less likely than a broken disk


class Ear(NamedTuple):
    """What the host has to know of one game."""

    lines: Array  # i16[most, 1 + heads]: 1 + seat and the act of everything said, oldest first, then zeros
    length: Array  # i32[], lines so far
    told: Array  # u32[LANES], a hash of the lines
    place: Array  # u32[LANES], a hash of view, masks and lines
    due: Array  # bool[], a hint is to be asked for


class Look(NamedTuple):
    """What a question is made of; every leaf has the axes of the batch first."""

    view: Any
    masks: Masks
    lines: Array
    length: Array


@dataclass(frozen=True, eq=False)
class Listening(Practice):
    """The hint is put into `Games.hint` by the host, which then takes `Ear.due` away."""

    most: int = 1  # lines an episode can have

    def look(self, settings: Any, games: Games) -> Look:
        """f[games, ...] each."""

        def one(games: Games) -> Look:
            state = self.play.layout.unpack(games.solo).state
            view, masks = self.game.rules.view(settings, state, 0), self.game.rules.legal(settings, state, 0)
            return Look(view, masks, games.ear.lines, games.ear.length)

        return jax.vmap(one)(games)

    def _advise(self, settings: Any, dealt: Dealt, past: Past | None, since: Array, u: Array) -> tuple[Hint, Ear]:
        ear = self._nothing_said()
        if past is not None:
            ear = where(past.over, ear, self._heard(past.ear, jnp.bool_(True), 0, past.act))
        ear = self._heard(ear, dealt.reply.acted, 1, dealt.reply.act)
        due = self.game.rules.to_act(dealt.solo.state)[0] & (since % self.cadence == 0)
        ear = ear._replace(place=self.place(settings, dealt.solo.state, ear.told), due=due)
        return self.adapter.no_hint(jnp.int32(0)), ear

    def place(self, settings: Any, state: Any, told: Array) -> Array:
        """u32[LANES]: a hash of everything a question is made of."""
        view, masks = self.game.rules.view(settings, state, 0), self.game.rules.legal(settings, state, 0)
        return digest(jnp.concatenate([*map(_words, jax.tree.leaves(view)), pack_masks(masks), told]))

    def _nothing_said(self) -> Ear:
        nothing = jnp.zeros((self.most, 1 + len(self.game.heads)), jnp.int16)
        zeros = jnp.zeros(LANES, jnp.uint32)
        return Ear(nothing, jnp.int32(0), zeros, zeros, jnp.bool_(False))

    def _heard(self, ear: Ear, spoke: Array, seat: int, act: Act) -> Ear:
        line = jnp.stack([jnp.int32(1 + seat), *(jnp.asarray(x, jnp.int32) for x in act)])
        here = (jnp.arange(self.most) == ear.length) & spoke
        told = ear.told + digest(jnp.concatenate([ear.length[None], line]).astype(jnp.uint32))
        return ear._replace(
            lines=jnp.where(here[:, None], line.astype(jnp.int16), ear.lines),
            length=ear.length + spoke,
            told=jnp.where(spoke, told, ear.told),
        )


def most_lines(game: Game, settings: Any) -> int:
    """Of one episode: everybody's acts, and an opening one."""
    with jax.ensure_compile_time_eval():  # asked for while something is traced
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
