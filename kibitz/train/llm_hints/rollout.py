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

from kibitz.advice import overhear
from kibitz.core.act import Act, Masks
from kibitz.core.bots import where
from kibitz.core.game import Game
from kibitz.train.rollout import Games, Practice, Stepped, pack_masks

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

    def _begin(self, settings: Any, u: Array) -> Games:
        return self._placed(settings, super()._begin(settings, u), self._opened(settings, u))

    def _step(self, settings: Any, games: Games, act: Act, u: Array) -> tuple[Games, Stepped]:
        after, stepped = super()._step(settings, games, act, u)
        play = self.play
        said = overhear.reply(play, settings, play.layout.unpack(games.solo), act, u[: play.step_uniforms])
        ear = self._heard(games.ear, jnp.bool_(True), 0, act)
        ear = self._heard(ear, said.spoke, 1, said.act)
        ear = where(stepped.over, self._opened(settings, u[play.step_uniforms :]), ear)
        return self._placed(settings, after, ear), stepped

    def _opened(self, settings: Any, u: Array) -> Ear:
        """Of a new game; `u` is the block it was dealt from."""
        nothing = jnp.zeros((self.most, 1 + len(self.game.heads)), jnp.int16)
        zeros = jnp.zeros(LANES, jnp.uint32)
        ear = Ear(nothing, jnp.int32(0), zeros, zeros, jnp.bool_(False))
        first = self.game.rules.new(settings, u[: self.game.rules.new_uniforms])
        said = overhear.opening(self.play, settings, first, u)
        return self._heard(ear, said.spoke, 1, said.act)

    def _heard(self, ear: Ear, spoke: Array, seat: int, act: Act) -> Ear:
        line = jnp.stack([jnp.int32(1 + seat), *(jnp.asarray(x, jnp.int32) for x in act)])
        here = (jnp.arange(self.most) == ear.length) & spoke
        told = ear.told + digest(jnp.concatenate([ear.length[None], line]).astype(jnp.uint32))
        return ear._replace(
            lines=jnp.where(here[:, None], line.astype(jnp.int16), ear.lines),
            length=ear.length + spoke,
            told=jnp.where(spoke, told, ear.told),
        )

    def _placed(self, settings: Any, games: Games, ear: Ear) -> Games:
        state = self.play.layout.unpack(games.solo).state
        view, masks = self.game.rules.view(settings, state, 0), self.game.rules.legal(settings, state, 0)
        place = digest(jnp.concatenate([*map(_words, jax.tree.leaves(view)), pack_masks(masks), ear.told]))
        due = self.game.rules.to_act(state)[0] & (games.since % self.cadence == 0)
        return games._replace(ear=ear._replace(place=place, due=due))


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
