"""Many games at once as a learner meets them: opponent in the other seat, adviser in the ear.

Arrays have games last where they are read as numbers (features, masks), so that a network is one
matrix product and everything else a vector loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from kibitz.advice.features import Hint, HintAdapter
from kibitz.core import act as acts
from kibitz.core.act import Act, Masks
from kibitz.core.bots import Bot, where
from kibitz.core.game import Game, game_over
from kibitz.core.solo import Against, Reply, Solo, against


class Games(NamedTuple):
    """A batch of games between two steps; every leaf has games first, as `vmap` leaves them."""

    solo: Any  # packed
    hint: Hint
    ear: Any  # the adviser's memory
    since: Array  # i32[n], steps since the last hint
    returned: Array  # f32[n], what this episode has paid so far
    steps: Array  # i32[n], the learner's steps in this episode


class Dealt(NamedTuple):
    """One game that goes on, or a new one."""

    solo: Solo
    reply: Reply  # the opponent's act that led here
    returned: Array  # f32[]
    steps: Array  # i32[]


class Past(NamedTuple):
    """What a step carries over into the next position."""

    over: Array  # bool[]: the next position begins a new game
    act: Act  # the learner's
    ear: Any
    since: Array  # i32[], steps since the last hint


class Stepped(NamedTuple):
    reward: Array  # f32[n]
    over: Array  # bool[n]: terminated; nothing in these games truncates
    returned: Array  # f32[n], the whole episode's return where it is over
    steps: Array  # i32[n], and its length


@dataclass(frozen=True, eq=False)
class Practice:
    """What a learner practises on: a game, an opponent, and perhaps an adviser."""

    game: Game
    opponent: Bot
    adviser: Bot | None = None
    cadence: int = 1  # a hint on reset and after every so many steps

    @cached_property
    def play(self) -> Against:
        return against(self.game, self.opponent)

    @cached_property
    def adapter(self) -> HintAdapter:
        return HintAdapter(self.game)

    @property
    def begin_uniforms(self) -> int:
        return self.play.new_uniforms + self.advice_uniforms

    @property
    def advice_uniforms(self) -> int:
        return 2 * self.adviser.uniforms if self.adviser else 0

    @property
    def step_uniforms(self) -> int:
        return self.play.step_uniforms + self.play.new_uniforms + self.advice_uniforms

    def begin(self, settings: Any, u: Array) -> Games:
        """`u` is f32[begin_uniforms, games]."""
        return jax.vmap(lambda one: self._begin(settings, one), in_axes=-1)(u)

    def observe(self, settings: Any, games: Games) -> tuple[Array, Masks]:
        """f32[features, games] and masks with games last."""

        def one(packed: Any) -> tuple[Array, Masks]:
            state = self.play.layout.unpack(packed).state
            view = self.game.rules.view(settings, state, 0)
            return self.game.learning.features(settings, view), self.game.rules.legal(settings, state, 0)

        base, masks = jax.vmap(one, out_axes=-1)(games.solo)
        return self.adapter(base, games.hint, masks), masks

    def step(self, settings: Any, games: Games, act: Act, u: Array) -> tuple[Games, Stepped]:
        """`u` is f32[step_uniforms, games]; a game that is over begins again at once."""
        return jax.vmap(lambda g, a, one: self._step(settings, g, a, one), in_axes=(0, 0, -1))(games, act, u)

    def _begin(self, settings: Any, u: Array) -> Games:
        return self._enter(settings, self._deal(settings, u), None, u[self.play.new_uniforms :])

    def _step(self, settings: Any, games: Games, act: Act, u: Array) -> tuple[Games, Stepped]:
        play = self.play
        before: Solo = play.layout.unpack(games.solo)
        solo, rewards, over, reply = play.step(settings, before, act, u[: play.step_uniforms])
        fresh = self._deal(settings, u[play.step_uniforms :])
        returned, steps = games.returned + rewards[0], games.steps + 1
        dealt = where(over, fresh, Dealt(solo, reply, returned, steps))
        past = Past(over, act, games.ear, games.since + 1)
        after = self._enter(settings, dealt, past, u[play.step_uniforms + play.new_uniforms :])
        return after, Stepped(rewards[0], over, returned, steps)

    def _deal(self, settings: Any, u: Array) -> Dealt:
        """An opening act may pay, or end the game: then the step that clears the table is nobody's."""
        solo, paid, reply = self.play.opening(settings, self.play.first_state(settings, u), u)
        return Dealt(solo, reply, paid[0], -game_over(self.game, solo.state).astype(jnp.int32))

    def _enter(self, settings: Any, dealt: Dealt, past: Past | None, u: Array) -> Games:
        """Puts a position into the batch, with a hint if one is due."""
        since = jnp.int32(0) if past is None else jnp.where(past.over, 0, past.since)
        hint, ear = self._advise(settings, dealt, past, since, u)
        return Games(self.play.layout.pack(dealt.solo), hint, ear, since, dealt.returned, dealt.steps)

    def _advise(self, settings: Any, dealt: Dealt, past: Past | None, since: Array, u: Array) -> tuple[Hint, Any]:
        """The hint for a position and the adviser's memory."""
        if self.adviser is None:
            return self.adapter.no_hint(jnp.int32(0)), ()
        adviser, n, state = self.adviser, self.adviser.uniforms, dealt.solo.state
        ear = adviser.start(settings, 0, u[:n])
        if past is not None:
            ear = where(past.over, ear, past.ear)
        view, masks = self.game.rules.view(settings, state, 0), self.game.rules.legal(settings, state, 0)
        ear, act = adviser.choose(settings, ear, view, masks, u[n:])
        return Hint(act, jnp.float32(1.0), since % self.cadence == 0), ear


def longest(game: Game, settings: Any) -> int:
    """Steps of the learner after which every episode is over."""
    steps = game.rules.max_steps(settings)
    return steps if game.rules.simultaneous else steps // 2 + 1


def pack_masks(masks: Masks) -> Array:
    """u32[words, games]: all heads' masks as bits, a thirtieth of their size."""
    flat = jnp.concatenate(masks).astype(jnp.uint32)
    words = -(-flat.shape[0] // 32)
    padded = jnp.concatenate([flat, jnp.zeros((32 * words - flat.shape[0], *flat.shape[1:]), jnp.uint32)])
    shifts = jnp.arange(32, dtype=jnp.uint32).reshape(1, 32, *[1] * (flat.ndim - 1))
    return jnp.sum(padded.reshape(words, 32, *flat.shape[1:]) << shifts, axis=1)


def unpack_masks(bits: Array, sizes: tuple[int, ...]) -> Masks:
    shifts = jnp.arange(32, dtype=jnp.uint32).reshape(1, 32, *[1] * (bits.ndim - 1))
    flat = ((bits[:, None] >> shifts) & 1).astype(bool).reshape(-1, *bits.shape[1:])
    masks, start = [], 0
    for size in sizes:
        masks.append(flat[start : start + size])
        start += size
    return tuple(masks)


def policy_bot(
    game: Game, policy: Any, name: str, adviser: Bot | None = None, cadence: int = 1, greedy: bool = True
) -> Bot:
    """A network as a rule: player, opponent or expert. With an adviser it hears its hints as in training."""
    adapter = HintAdapter(game)
    hears = adviser.uniforms if adviser else 0

    def start(settings: Any, seat: int, u: Array) -> Any:
        return (jnp.int32(0), adviser.start(settings, seat, u[:hears]) if adviser else ())

    def pick(settings: Any, memory: Any, view: Any, masks: Masks, u: Array) -> tuple[Any, Act]:
        since, ear = memory
        hint = adapter.no_hint(jnp.int32(0))
        if adviser:
            ear, advice = adviser.choose(settings, ear, view, masks, u[:hears])
            hint = Hint(advice, jnp.float32(1.0), since == 0)
        logits, _ = policy(adapter(game.learning.features(settings, view), hint, masks))
        act = acts.best(logits, masks) if greedy else acts.sample(logits, masks, u[hears:])
        return ((since + 1) % cadence, ear), act

    return Bot(
        name=name,
        choose=pick,
        start=start,
        precompute=adviser.precompute if adviser else lambda settings, seat: settings,
        uniforms=hears + (0 if greedy else len(game.heads)),
        bit_widths=(cadence.bit_length(), adviser.bit_widths if adviser else ()),
    )
