"""What a phase of training compiles: to deal, to advance the learners, to judge them.

Everything a program depends on is a field, and what changes from run to run (settings, seeds, how long) is
an argument. So equal phases share their programs (`shared`): a second run in the same process, with another
seed or from a checkpoint, traces and compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from kibitz.core.bots import Bot
from kibitz.core.game import Game
from kibitz.core.xla.jit import jit_batch
from kibitz.evaluate.loop import match_program
from kibitz.train import ppo, reinforce, supervised
from kibitz.train.config import TrainOptions
from kibitz.train.learner import Learner, deal, play_one, told_of
from kibitz.train.llm_hints.rollout import Listening
from kibitz.train.network import Flat, feature_size, flatten, new_policy
from kibitz.train.opponents import self_bot
from kibitz.train.rollout import Games, Practice, policy_bot

ALGORITHMS: dict[str, Any] = {"ppo": ppo, "reinforce": reinforce, "supervised": supervised}
SELVES = 16  # earlier selves that are kept
AXIS = "games"


@dataclass(frozen=True)
class Compiled:
    algo: str
    game: Game
    opponent: Bot | None  # None: earlier selves
    adviser: Bot | None
    cadence: int
    config: TrainOptions
    devices: tuple[Any, ...]
    lines: int | None = None  # the adviser lives on the host, who is told at most so many lines of an episode

    @cached_property
    def flat(self) -> Flat:
        """Shapes only; every learner has its own weights."""
        return flatten(self.policy(0))

    @property
    def selves(self) -> int:
        return SELVES if self.opponent is None else 0

    def policy(self, seed: int) -> Any:
        key = jax.random.fold_in(jax.random.key(seed), 1)
        return new_policy(self.game, feature_size(self.game), self.config.hidden, key)

    def practice(self, pool: Array, index: Array | int = 0) -> Practice:
        opponent = self.opponent or self_bot(self.game, self.flat, pool, index)
        if self.lines is not None:
            return Listening(self.game, opponent, None, self.cadence, self.lines)
        return Practice(self.game, opponent, self.adviser, self.cadence)

    def meet(self, learner: Learner) -> tuple[Learner, Array]:
        """Before an update: the learner, and which of its earlier selves it meets."""
        learner = self._next_self(learner)
        key = jax.random.fold_in(jax.random.wrap_key_data(learner.key), 7)
        return learner, jax.random.randint(key, (), 0, max(learner.pool.shape[0], 1))

    @cached_property
    def deal(self) -> Callable[[Learner, Any], Learner]:
        """learners, settings -> learners with new games."""

        def one(learner: Learner, settings: Any) -> Learner:
            key, first = jax.random.split(jax.random.wrap_key_data(learner.key))
            games = deal(self.practice(learner.pool), settings, self.config.num_envs, first)
            return learner._replace(games=games, key=jax.random.key_data(key))

        return jax.jit(jax.vmap(one, in_axes=(0, None)))

    @cached_property
    def advance(self) -> Callable[[Learner, Any, Any], tuple[Learner, dict[str, Array]]]:
        """learners, settings, number of updates -> learners, mean metrics f32[seeds] each."""
        axis = AXIS if len(self.devices) > 1 else None
        config = self.config.split(len(self.devices))
        update = ALGORITHMS[self.algo].update

        def one(learner: Learner, settings: Any) -> tuple[Learner, dict[str, Array]]:
            learner, index = self.meet(learner)
            practice = self.practice(learner.pool, index)
            return update(learner, settings, self.flat, practice, config, axis)  # type: ignore[no-any-return]

        def several(learner: Learner, settings: Any, count: Any) -> tuple[Learner, dict[str, Array]]:
            told = jax.eval_shape(one, learner, settings)[1]
            zeros = {name: jnp.zeros(x.shape, x.dtype) for name, x in told.items()}

            def body(_: Any, carry: Any) -> Any:
                learner, sums = carry
                learner, metrics = one(learner, settings)
                return learner, {name: sums[name] + value for name, value in metrics.items()}

            learner, sums = lax.fori_loop(0, count, body, (learner, zeros))
            return learner, told_of(sums, jnp.maximum(count, 1))

        many = jax.vmap(several, in_axes=(0, None, None))
        if axis is None:
            return jit_batch(many, donate_argnums=0)
        mesh, spec = self._mesh, self._spec
        split = jax.shard_map(
            many, mesh=mesh, in_specs=(spec, PartitionSpec(), PartitionSpec()), out_specs=(spec, PartitionSpec()),
            check_vma=False,
        )  # fmt: skip
        return jit_batch(split, donate_argnums=0)

    @cached_property
    def judge(self) -> Callable[[Array, Any, Array, Array], tuple[Array, dict[str, Array]]]:
        """weights, settings, key, episode numbers -> returns f32[seeds, episodes, 2] and scores: greedy acts."""
        opponent = self.opponent or self.game.bot("heuristic")
        adviser = None if self.algo == "supervised" else self.adviser

        def one(weights: Array, settings: Any, key: Array, numbers: Array) -> Any:
            bot = policy_bot(self.game, self.flat.rebuild(weights), "learner", adviser, self.cadence)
            return match_program(self.game, (bot, opponent))(settings, key, numbers)

        return jit_batch(lambda weights, *rest: lax.map(lambda w: one(w, *rest), weights))

    # the parts of an update whose hints come from the host: see hosted.py

    @cached_property
    def begin_update(self) -> Any:
        def one(learner: Learner, settings: Any) -> Any:
            learner, index = self.meet(learner)
            practice = self.practice(learner.pool, index)
            learner, roll_key, learn_key = ALGORITHMS[self.algo].begin(learner, settings, practice)
            keys = jax.random.split(roll_key, self.config.rollout)
            return learner, index, jax.random.key_data(keys), jax.random.key_data(learn_key)

        return jit_batch(jax.vmap(one, in_axes=(0, None)))

    @cached_property
    def step(self) -> Any:
        def one(
            weights: Array, pool: Array, index: Array, settings: Any, games: Games, seen: Any, keys: Array, step: Array
        ) -> Any:
            policy, practice = self.flat.rebuild(weights), self.practice(pool, index)
            games, now = play_one(policy, practice, settings, games, jax.random.wrap_key_data(keys[step]))
            return games, {name: seen[name].at[step].set(now[name]) for name in seen}

        return jit_batch(jax.vmap(one, in_axes=(0, 0, 0, None, 0, 0, 0, None)), donate_argnums=5)

    def nothing_seen(self, learner: Learner, settings: Any) -> Any:
        """Zeros in the shape of what a rollout sees."""

        def one(weights: Array, pool: Array, games: Games, settings: Any) -> Any:
            return play_one(self.flat.rebuild(weights), self.practice(pool), settings, games, jax.random.key(0))[1]

        many = jax.vmap(one, in_axes=(0, 0, 0, None))
        shapes = jax.eval_shape(many, learner.weights, learner.pool, learner.games, settings)
        return {name: jnp.zeros((x.shape[0], self.config.rollout, *x.shape[1:]), x.dtype) for name, x in shapes.items()}

    @cached_property
    def learn(self) -> Any:
        def one(learner: Learner, index: Array, seen: Any, learn_key: Array, settings: Any) -> Any:
            practice = self.practice(learner.pool, index)
            key = jax.random.wrap_key_data(learn_key)
            return ALGORITHMS[self.algo].learn(learner, seen, key, settings, self.flat, practice, self.config)

        return jit_batch(jax.vmap(one, in_axes=(0, 0, 0, 0, None)))

    @cached_property
    def look(self) -> Any:
        """games, pool, settings -> what the questions are made of."""

        def one(games: Games, pool: Array, settings: Any) -> Any:
            practice: Any = self.practice(pool)
            return practice.look(settings, games)

        return jit_batch(jax.vmap(one, in_axes=(0, 0, None)))

    def placed(self, learner: Learner) -> Learner:
        """Its games split over the devices."""
        if len(self.devices) == 1:
            return learner
        places = [NamedSharding(self._mesh, spec) for spec in self._spec]
        return Learner(*(jax.device_put(part, place) for part, place in zip(learner, places, strict=True)))

    def _next_self(self, learner: Learner) -> Learner:
        """The pool takes in the present weights now and then, in place of its oldest self."""
        if self.opponent is not None:
            return learner
        every = max(1, self.config.updates // (4 * SELVES))
        slot = (learner.updates // every) % SELVES
        due = learner.updates % every == 0
        taken = learner.pool.at[slot].set(learner.weights)
        return learner._replace(pool=jnp.where(due, taken, learner.pool))

    @cached_property
    def _mesh(self) -> Mesh:
        return Mesh(np.array(self.devices), (AXIS,))

    @cached_property
    def _spec(self) -> Any:
        """Games are split over the devices; everything else is the same on all of them."""
        whole = PartitionSpec()
        return Learner(whole, whole, PartitionSpec(None, AXIS), whole, whole, whole)  # type: ignore[arg-type]


def shared(compiled: Compiled) -> Compiled:
    """An equal one that was used before, with all it has compiled, or this one."""
    if compiled.opponent is not None and compiled.config.constant:  # how long it trains is no part of it
        length = {"num_train_steps": compiled.config.batch}
        compiled = replace(compiled, config=compiled.config.model_copy(update=length))
    return kept(compiled)


@lru_cache(maxsize=8)
def kept(compiled: Compiled) -> Compiled:
    return compiled
