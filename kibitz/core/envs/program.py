"""One environment as pure functions, and the same compiled for single steps.

The single and the vector environment run the same `Program` with the same chance,
`chance.uniforms(key, episode, turn)`, and therefore agree step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kibitz.core.act import Act, Masks
from kibitz.core.bots import Bot
from kibitz.core.chance import episode_luck, seed_key, uniforms
from kibitz.core.game import Game, game_over
from kibitz.core.solo import Against, OpponentReply, Solo, against
from kibitz.core.xla.flat_tree import FlatTree
from kibitz.core.xla.jit import jit_single

Observe: TypeAlias = Callable[[Any, Any, Masks], tuple[dict[str, Array], dict[str, Array]]]
"""settings, view, masks -> observation and info, as arrays of 32-bit numbers; booleans in info are masks or flags."""


EndInfo: TypeAlias = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Scores, f32[2] each -> what the last step's info adds, as f32 or bool."""


class EnvState(NamedTuple):
    """One environment between two calls; JAX arrays inside programs, NumPy arrays on the host."""

    solo: Any  # packed: the game's state, and the opponent's memory where a bot has the other seat
    key: Any  # u32[2], from the seed
    luck: Any  # u32[2], from the key and the episode
    episode: Any  # i32[], resets since the seed
    turn: Any  # i32[], steps since the reset
    pending_reward: Any = np.float32(0)  # f32[], earned before the learner's first step and paid with it


class Shown(NamedTuple):
    """What a call shows its caller."""

    observation: dict[str, Any]
    info: dict[str, Any]
    masks: tuple[Any, ...]
    reward: Any  # f32[], the learner's
    over: Any  # bool[], the step ended the episode
    ended: Any  # bool[], the episode is over: also where the opponent's opening act ended it
    reply: Any  # a Reply: what the opponent did since the learner last acted; empty in vector environments


def next_episode(env: EnvState) -> EnvState:
    episode = env.episode + 1
    return env._replace(episode=episode, luck=episode_luck(env.key, episode), turn=jnp.int32(0))


def empty_env(packed: Any) -> EnvState:
    """An environment before its first reset."""
    zeros = jnp.zeros(2, jnp.uint32)
    return EnvState(packed, zeros, zeros, jnp.int32(-1), jnp.int32(0))


class Program:
    """A learner in seat 0 against a bot, to be compiled for one environment or mapped over many."""

    def __init__(self, game: Game, opponent: Bot, observe: Observe, end_info: EndInfo) -> None:
        self.game, self.observe, self.end_info = game, observe, end_info
        self.play: Against = against(game, opponent)

    def fresh(self, settings: Any, env: EnvState) -> tuple[EnvState, Shown]:
        """The next episode of this environment."""
        env = next_episode(env)
        u = uniforms(env.luck, 0, self.play.new_uniforms)
        return self._begin(settings, env, self.play.first_state(settings, u), u)

    def place(self, settings: Any, env: EnvState, state: Any) -> tuple[EnvState, Shown]:
        """The next episode, from a given first position."""
        env = next_episode(env)
        return self._begin(settings, env, state, uniforms(env.luck, 0, self.play.new_uniforms))

    def advance(self, settings: Any, env: EnvState, act: Act) -> tuple[EnvState, Shown]:
        turn = env.turn + 1
        solo = self.play.layout.unpack(env.solo)
        u = uniforms(env.luck, turn, self.play.step_uniforms)
        solo, rewards, over, reply = self.play.step(settings, solo, act, u)
        shown = self._show(settings, solo, rewards[0] + env.pending_reward, over, reply)
        return env._replace(solo=self.play.layout.pack(solo), turn=turn, pending_reward=jnp.float32(0)), shown

    def score(self, settings: Any, env: EnvState) -> Mapping[str, Array]:
        """What the last step's info adds."""
        solo: Solo = self.play.layout.unpack(env.solo)
        found = self.end_info(self.game.measures.score(settings, solo.state))
        return {name: x if x.dtype == jnp.bool_ else x.astype(jnp.float32) for name, x in found.items()}

    def empty(self, settings: Any) -> EnvState:
        return empty_env(self.play.layout.pack(self.play.new(settings, jnp.zeros(self.play.new_uniforms))))

    def _begin(self, settings: Any, env: EnvState, state: Any, u: Array) -> tuple[EnvState, Shown]:
        """If the opponent's first act ends the game, `ended` says so and the learner's first step reports it."""
        solo, rewards, reply = self.play.opening(settings, state, u)
        env = env._replace(solo=self.play.layout.pack(solo), pending_reward=rewards[0])
        return env, self._show(settings, solo, jnp.float32(0), jnp.bool_(False), reply)

    def _show(self, settings: Any, solo: Solo, reward: Array, over: Array, reply: OpponentReply) -> Shown:
        rules = self.game.rules
        view, masks = rules.view(settings, solo.state, 0), rules.legal(settings, solo.state, 0)
        observation, info = self.observe(settings, view, masks)
        return Shown(observation, info, masks, reward, over, game_over(self.game, solo.state), reply)


class Single:
    """A program compiled for one environment: one vector in, one vector out.

    The vector holds the `EnvState`, what is shown, and the scores, which are zeros before the end.
    """

    def __init__(self, program: Any, shapes: Any) -> None:
        self.program = program
        self.settings = FlatTree(shapes)
        self.env = FlatTree(jax.eval_shape(program.empty, shapes))

        def shown(settings: Any) -> tuple[EnvState, Any, Mapping[str, Array]]:
            env, shown = program.fresh(settings, program.empty(settings))
            return env, shown, dict(program.score(settings, env))

        whole = jax.eval_shape(shown, shapes)
        self._score_shapes: Mapping[str, Any] = whole[2]
        self.flat_tree = FlatTree(whole)
        self._scores: Mapping[str, slice] = jax.tree.unflatten(self.flat_tree.tree, self.flat_tree.slices)[2]
        call = self._call
        self.fresh = jit_single(lambda s, v: call(program.fresh, s, v))
        self.place = jit_single(lambda s, v, state: call(program.place, s, v, state))
        self.advance = jit_single(lambda s, v, act: call(program.advance, s, v, tuple(act)))
        # fewer arguments cost less: settings, state and act in one array
        ends = self.settings.size, self.settings.size + self.env.size
        self.advance_joined = jit_single(
            lambda v: call(program.advance, v[: ends[0]], v[ends[0] : ends[1]], tuple(v[ends[1] :]))
        )

    def _call(self, function: Any, settings: Array, vector: Array, *rest: Any) -> Array:
        unpacked = self.settings.unpack(settings)
        env, shown = function(unpacked, self.env.unpack(vector[: self.env.size]), *rest)
        return self.flat_tree.pack(self._scored(unpacked, env, shown))

    def _scored(self, settings: Any, env: EnvState, shown: Any) -> tuple[EnvState, Any, Mapping[str, Array]]:
        """A branch, so that only the last step computes scores, and no step needs a second call."""

        def scores() -> Mapping[str, Array]:
            return dict(self.program.score(settings, env))

        def zeros() -> Mapping[str, Array]:
            return {name: jnp.zeros(value.shape, value.dtype) for name, value in self._score_shapes.items()}

        if not isinstance(shown.over, jax.core.Tracer) and not shown.over:  # a reset never ends a learner's episode
            return env, shown, zeros()
        return env, shown, jax.lax.cond(shown.over, scores, zeros)

    def score(self, row: NDArray[np.int32]) -> Mapping[str, NDArray[np.float32]]:
        """f32[2] each: the measures of a finished game with both seats free."""
        reals = row.view(np.float32)
        return {name: reals[where] for name, where in self._scores.items()}

    def first(self, seed: int) -> NDArray[np.int32]:
        """An environment before its first reset: zeros except for the key and the episode."""
        leaves = [np.zeros(shape, dtype) for shape, dtype in zip(self.env.shapes, self.env.dtypes, strict=True)]
        env: EnvState = jax.tree.unflatten(self.env.tree, leaves)
        env = env._replace(key=np.asarray(seed_key(seed)), episode=np.asarray(-1, np.int32))
        flat = [np.ascontiguousarray(leaf).reshape(-1).view(np.int32) for leaf in jax.tree.leaves(env)]
        vector = np.zeros(self.flat_tree.size, np.int32)
        vector[: self.env.size] = np.concatenate(flat)
        return vector


def shapes_of(settings: Any) -> tuple[Any, tuple[tuple[tuple[int, ...], str], ...]]:
    """A hashable description of a tree of arrays."""
    leaves, tree = jax.tree.flatten(settings)
    return tree, tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)


def from_shapes(described: Any) -> Any:
    tree, leaves = described
    return jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(shape, np.dtype(dtype)) for shape, dtype in leaves])


@lru_cache(maxsize=32)
def program_for(game: Game, opponent: Bot, observe: Observe, end_info: EndInfo) -> Program:
    return Program(game, opponent, observe, end_info)


@lru_cache(maxsize=32)
def single_for(program: Program, described: Any) -> Single:
    """Compiled once for all environments whose settings have the same shapes."""
    return Single(program, from_shapes(described))
