"""Training whose adviser cannot be compiled: compiled steps, and questions to the host between them.

An update is one compiled start, `rollout` compiled steps and one compiled lesson, the same functions that a
fully compiled update is made of. After each step the games that are due get their hints, all at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kibitz.hints.adapter import Hint
from kibitz.hints.batched import COLUMNS, Source
from kibitz.train import ppo, reinforce
from kibitz.train.learner import Learner, play_one, told_of
from kibitz.train.rollout import Games

if TYPE_CHECKING:
    from kibitz.train.program import Program

ALGORITHMS: dict[str, Any] = {"ppo": ppo, "reinforce": reinforce}
PULSE = 0.5  # seconds between two signs of life


class Hosted:
    """Advances the learners of a program with the hints of a source."""

    def __init__(self, program: Program, source: Source) -> None:
        self.program, self.source = program, source
        self.algorithm = ALGORITHMS[program.job.algo]
        self.pulse: Callable[[dict[str, float]], None] = lambda told: None
        self._seen: Any = None  # what the rollout has seen; written in place, used again
        self._last_pulse = self._last_given = 0.0

    def advance(self, learner: Learner, settings: Any, count: int) -> tuple[Learner, dict[str, Any]]:
        """learners, settings, number of updates -> learners, mean metrics f64[seeds] each; hints are counted.

        The given learner stays usable: what fails in between loses nothing that was there before.
        """
        if count == 0:
            self._compile(learner, settings)
            return learner, {}
        before = self.source.counts.copy()
        sums: dict[str, Any] = {}
        for _ in range(count):
            learner, metrics = self._update(learner, settings)
            sums = {name: sums.get(name, 0.0) + np.asarray(value, float) for name, value in metrics.items()}
        with np.errstate(invalid="ignore"):  # no episode ended: its return does not exist
            told = told_of(sums, count)
        return learner, told | dict(zip(COLUMNS, self.source.counts - before, strict=True))

    def close(self) -> None:
        self.source.close()

    def _update(self, learner: Learner, settings: Any) -> tuple[Learner, dict[str, Array]]:
        learner, index, keys, learn_key = self._begin(learner, settings)
        wanted: NDArray[np.bool_] | None = None
        if self.algorithm is reinforce:  # what a game plays after its end is left out: nobody need advise it
            wanted = np.ones(learner.games.steps.shape, bool)
        games = self.heed(learner.games, settings, wanted)
        for step in range(self.program.config.rollout):
            games, self._seen = self._step(
                learner.weights, learner.pool, index, settings, games, self._seen_like(learner), keys, step
            )
            if wanted is not None:
                wanted &= np.asarray(games.steps) > 0
            games = self.heed(games, settings, wanted)
        return self._learn(learner._replace(games=games), index, self._seen, learn_key, settings)  # type: ignore[no-any-return]

    def heed(self, games: Games, settings: Any, wanted: NDArray[np.bool_] | None = None) -> Games:
        """Hints for all games that are due; the others have none, as the step left them."""
        due = np.asarray(games.ear.due)
        if wanted is not None:
            due = due & wanted
        if not due.any():
            return games
        given = self.source.hints(due, np.asarray(games.ear.place), lambda: self._look(games, settings))
        self._show_life()
        hint = Hint(tuple(given.act), given.confidence, given.available)
        return games._replace(hint=hint, ear=games.ear._replace(due=self._nobody))

    def _show_life(self) -> None:
        now, given = time.monotonic(), float(self.source.counts[COLUMNS.index("hints_given")].sum())
        if now - self._last_pulse >= PULSE:
            if self._last_pulse:
                self.pulse({"hints_per_s": (given - self._last_given) / (now - self._last_pulse)})
            self._last_pulse, self._last_given = now, given

    def _compile(self, learner: Learner, settings: Any) -> None:
        """Every program once; what comes out is thrown away and nobody is asked."""
        ready, index, keys, learn_key = self._begin(learner, settings)
        shape = (len(self.program.game.heads), *ready.games.steps.shape)
        act, zeros = np.zeros(shape, np.int32), np.zeros(shape[1:], np.float32)
        silent = ready.games._replace(
            hint=Hint(tuple(act), zeros, zeros.astype(bool)), ear=ready.games.ear._replace(due=self._nobody)
        )
        games, self._seen = self._step(
            ready.weights, ready.pool, index, settings, silent, self._seen_like(ready), keys, 0
        )
        jax.block_until_ready(self._learn(ready._replace(games=games), index, self._seen, learn_key, settings))
        jax.block_until_ready(self._look(games, settings))

    def _seen_like(self, learner: Learner) -> Any:
        if self._seen is None:
            rollout = self.program.config.rollout

            def one(weights: Array, pool: Array, games: Games, settings: Any) -> Any:
                policy = self.program.flat.rebuild(weights)
                return play_one(policy, self.program.practice(pool), settings, games, jax.random.key(0))[1]

            shapes = jax.eval_shape(
                jax.vmap(one, in_axes=(0, 0, 0, None)),
                learner.weights, learner.pool, learner.games, self.program.settings,
            )  # fmt: skip
            self._seen = {name: jnp.zeros((x.shape[0], rollout, *x.shape[1:]), x.dtype) for name, x in shapes.items()}
        return self._seen

    @cached_property
    def _nobody(self) -> Array:
        return jnp.zeros((self.program.job.seeds, self.program.config.num_envs), bool)

    @cached_property
    def _begin(self) -> Any:
        def one(learner: Learner, settings: Any) -> Any:
            learner, index = self.program.meet(learner)
            practice = self.program.practice(learner.pool, index)
            learner, roll_key, learn_key = self.algorithm.begin(learner, settings, practice)
            keys = jax.random.split(roll_key, self.program.config.rollout)
            return learner, index, jax.random.key_data(keys), jax.random.key_data(learn_key)

        return jax.jit(jax.vmap(one, in_axes=(0, None)))

    @cached_property
    def _step(self) -> Any:
        def one(
            weights: Array, pool: Array, index: Array, settings: Any, games: Games, seen: Any, keys: Array, step: Array
        ) -> Any:
            policy, practice = self.program.flat.rebuild(weights), self.program.practice(pool, index)
            games, now = play_one(policy, practice, settings, games, jax.random.wrap_key_data(keys[step]))
            return games, {name: seen[name].at[step].set(now[name]) for name in seen}

        return jax.jit(jax.vmap(one, in_axes=(0, 0, 0, None, 0, 0, 0, None)), donate_argnums=5)

    @cached_property
    def _learn(self) -> Any:
        def one(learner: Learner, index: Array, seen: Any, learn_key: Array, settings: Any) -> Any:
            practice = self.program.practice(learner.pool, index)
            key = jax.random.wrap_key_data(learn_key)
            return self.algorithm.learn(learner, seen, key, settings, self.program.flat, practice, self.program.config)

        return jax.jit(jax.vmap(one, in_axes=(0, 0, 0, 0, None)))

    @cached_property
    def _look(self) -> Any:
        def one(games: Games, pool: Array, settings: Any) -> Any:
            practice: Any = self.program.practice(pool)
            return practice.look(settings, games)

        pool = jnp.zeros((self.program.job.seeds, self.program.selves, self.program.flat.vector.shape[0]))
        many = jax.jit(jax.vmap(one, in_axes=(0, 0, None)))
        return lambda games, settings: many(games, pool, settings)
