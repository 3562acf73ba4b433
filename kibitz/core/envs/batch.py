"""Many environments in one compiled call, which steps, resets or skips each of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from gymnasium.vector import AutoresetMode
from jax import Array, lax

from kibitz.core.act import Act, Masks, is_legal, values
from kibitz.core.bots import where
from kibitz.core.envs.program import EnvState, Program, from_shapes
from kibitz.core.game import game_over
from kibitz.core.xla.jit import jit_batch
from kibitz.core.xla.packing import fusion_barrier
from kibitz.core.xla.row_tree import RowTree

CHUNK = 128  # rows at a time in `_for_rows`

Repair: TypeAlias = Callable[[Masks, Act], Act]


class Seen(NamedTuple):
    """One environment's position, as its learner sees it."""

    observation: dict[str, Any]
    info: dict[str, Any]  # the form's, with `illegal` and `over`
    masks: Any  # bool[sum of the heads' sizes]


class StepResult(NamedTuple):
    """What one call did to an environment."""

    now: Seen
    final: Any  # Seen before an autoreset in the same step; empty in the other modes
    scores: dict[str, Any]  # the form's `end_info`, zeros unless the step ended the episode
    reward: Any  # f32[], the learner's
    over: Any  # bool[], the step ended the episode
    illegal: Any  # bool[], the learner's act
    exchange: Any  # an Exchange if a wrapper reads it; otherwise empty, because every array that leaves takes time


class StepActs(NamedTuple):
    """The acts of one step."""

    own: Act  # the learner's
    reply: Any  # the opponent's, a `solo.Reply`


class EnvBatch:
    """A program for many environments; games are the last axis of every array in it.

    `call(settings, envs, acts, reset, hold, one)` returns the environments and a packed `StepResult`, i32[rows, games].
    `call_unpacked` takes actions and the charge for an illegal one instead, and returns a `StepResult` of arrays, games
    first. An environment starts its next episode where `reset` is set and stays unchanged where `hold` is; `one` is
    the number 1, which separates the kernels (`fusion_barrier`).
    """

    def __init__(
        self,
        program: Program,
        shapes: Any,
        mode: AutoresetMode,
        repair: Repair,
        heads: Callable[[Any], Act],
        replies: bool,
    ) -> None:
        self.program, self.mode, self.repair, self.replies = program, mode, repair, replies
        self.env = jax.eval_shape(program.empty, shapes)
        self.layout: RowTree | None = None  # known once `call` is traced, which takes seconds

        def call(settings: Any, envs: EnvState, acts: Array, *rest: Array) -> tuple[EnvState, Array]:
            after, result = self._step(settings, envs, tuple(acts), *rest)
            one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[:-1], x.dtype), result)
            self.layout = RowTree(one)
            return after, jax.vmap(self.layout.pack, in_axes=-1, out_axes=-1)(result)

        def call_unpacked(
            settings: Any, envs: EnvState, actions: Any, charge: Array, *rest: Array
        ) -> tuple[EnvState, StepResult]:
            sizes = program.game.sizes
            acts = (_within(x, size) for x, size in zip(heads(actions), sizes, strict=True))
            after, result = self._step(settings, envs, tuple(acts), *rest)
            result = result._replace(reward=result.reward - jnp.where(result.illegal, charge, 0))
            return after, jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), result)

        self.call, self.call_unpacked = jit_batch(call), jit_batch(call_unpacked)

    def empty(self, count: int) -> EnvState:
        envs: EnvState = jax.tree.map(lambda x: jnp.zeros((*x.shape, count), x.dtype), self.env)
        return envs

    def _step(
        self, settings: Any, envs: EnvState, acts: Act, reset: Array, hold: Array, one: Array
    ) -> tuple[EnvState, StepResult]:
        program, game, idle = self.program, self.program.game, reset | hold

        def legal(env: EnvState) -> tuple[Masks, Array]:
            state = program.play.layout.unpack(env.solo).state
            return game.rules.legal(settings, state, 0), game_over(game, state)

        def advance(env: EnvState, act: Act, idle: Array) -> tuple[EnvState, Array, Array, Any]:
            after, shown = program.advance(settings, env, act)
            reply = shown.reply if self.replies else ()
            return where(idle, env, after), jnp.where(idle, 0, shown.reward), shown.over & ~idle, reply

        def play() -> tuple[EnvState, Array, Array, Any, Array, Act]:
            masks, done = jax.vmap(legal, in_axes=-1, out_axes=-1)(envs)
            said = played = self.repair(masks, acts)
            illegal = ~is_legal(masks, said, game.matters) & ~done & ~idle
            if not game.rules.takes_illegal_acts:
                played = where(illegal, _made_legal(masks, said), said)
            stepped = jax.vmap(advance, in_axes=-1, out_axes=-1)(envs, played, idle)
            return *stepped, illegal, said if self.replies else ()

        stepped, reward, over, reply, illegal, said = fusion_barrier(one, play)

        def score(env: EnvState) -> dict[str, Any]:
            return dict(program.score(settings, env))

        def begin(env: EnvState) -> tuple[EnvState, Any]:
            after, shown = program.fresh(settings, env)
            return after, shown.reply if self.replies else ()

        def see(env: EnvState, illegal: Array) -> Seen:
            state = program.play.layout.unpack(env.solo).state
            view, masks = game.rules.view(settings, state, 0), game.rules.legal(settings, state, 0)
            observation, info = program.observe(settings, view, masks)
            return Seen(
                observation, info | {"illegal": illegal, "over": game_over(game, state)}, jnp.concatenate(masks)
            )

        scores = _for_rows(over, score, stepped)
        same_step = self.mode is AutoresetMode.SAME_STEP
        after, reply = _for_rows(reset | over if same_step else reset, begin, stepped, (stepped, reply))
        see_all = jax.vmap(see, in_axes=-1, out_axes=-1)
        final = see_all(stepped, illegal) if same_step else ()
        now = see_all(after, illegal & ~over if same_step else illegal)
        exchange = StepActs(said, reply) if self.replies else ()
        return after, StepResult(now, final, scores, reward, over, illegal, exchange)


def _within(values: Array, size: int) -> Array:
    """i32: whole numbers of any type, with -1 or `size` for those outside the head."""
    if values.dtype == jnp.uint32:  # its largest numbers are negative in int32
        values = jnp.minimum(values, jnp.uint32(size))
    return jnp.clip(values.astype(jnp.int32), -1, size)


def _made_legal(masks: Masks, act: Act) -> Act:
    """Every closed value replaced by its head's first open one."""
    opened = (jnp.any((values(mask) == value) & mask, axis=0) for mask, value in zip(masks, act, strict=True))
    return tuple(
        jnp.where(ok, value, jnp.argmax(mask, axis=0).astype(jnp.int32))
        for ok, mask, value in zip(opened, masks, act, strict=True)
    )


def _for_rows(mask: Array, function: Callable[[Any], Any], envs: Any, otherwise: Any = None) -> Any:
    """The function of each environment where the mask is set; elsewhere `otherwise`, by default zeros.

    A CPU computes only those rows, a few at a time. Other devices compute all of them faster than they find out which.
    """
    every = jax.vmap(function, in_axes=-1, out_axes=-1)
    count, all_rows = mask.shape[0], mask.shape[0] <= CHUNK or jax.default_backend() != "cpu"
    made = every(envs) if all_rows else None  # before the zeros: tracing the function for its shapes takes as long
    if otherwise is None:
        shapes = made if all_rows else jax.eval_shape(every, envs)
        otherwise = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    if all_rows:
        return where(mask, made, otherwise)
    rows = jnp.nonzero(mask, size=-(-count // CHUNK) * CHUNK, fill_value=count)[0]

    def one_chunk(i: Array, whole: Any) -> Any:
        part = lax.dynamic_slice(rows, (i * CHUNK,), (CHUNK,))
        made = every(jax.tree.map(lambda x: x[..., part], envs))
        return jax.tree.map(lambda old, new: old.at[..., part].set(new, mode="drop"), whole, made)

    return lax.fori_loop(0, -(-jnp.sum(mask) // CHUNK), one_chunk, otherwise)


@lru_cache(maxsize=32)
def batch_for(
    program: Program,
    described: Any,
    mode: AutoresetMode,
    repair: Repair,
    heads: Callable[[Any], Act],
    replies: bool,
) -> EnvBatch:
    """Compiled once for all environments whose settings have the same shapes."""
    return EnvBatch(program, from_shapes(described), mode, repair, heads, replies)
