"""Training with an adviser that cannot be compiled: compiled steps, and questions on the host between them.

An update is one compiled start, `rollout` compiled steps and one compiled gradient update, made from the same
functions as a fully compiled update. After each step the host gets hints for all games at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kibitz.advice.batch import HintSource, usage_columns
from kibitz.advice.features import Hint
from kibitz.core.xla.jit import jit_batch
from kibitz.train.opponents import choose_self
from kibitz.train.rollout import Games, Learner, mean_metrics, play_step

if TYPE_CHECKING:
    from kibitz.train.phase import CompiledPhase

REPORT_SECONDS = 0.5  # between two progress reports within an update


@dataclass(frozen=True)
class StepPrograms:
    """The parts of an update between which the host gives hints; every argument has seeds first."""

    compiled: CompiledPhase
    algorithm: Any  # the module of the algorithm

    @cached_property
    def begin(self) -> Any:
        """learners, settings -> learners, the earlier selves they play against, keys of the steps."""

        def one(learner: Learner, settings: Any) -> Any:
            learner, index = choose_self(learner, self.compiled.config)
            practice = self.compiled.practice(learner.pool, index)
            learner, roll_key = self.algorithm.begin(learner, settings, practice)
            return learner, index, jax.random.key_data(jax.random.split(roll_key, self.compiled.config.rollout))

        return jit_batch(jax.vmap(one, in_axes=(0, None)))

    @cached_property
    def step(self) -> Any:
        """One step of every game; `seen` is written in place."""

        def one(
            weights: Array, pool: Array, index: Array, settings: Any, games: Games, seen: Any, keys: Array, step: Array
        ) -> Any:
            policy, practice = self.compiled.actor(weights), self.compiled.practice(pool, index)
            games, now = play_step(policy, practice, settings, games, jax.random.wrap_key_data(keys[step]))
            return games, {name: seen[name].at[step].set(now[name]) for name in seen}

        return jit_batch(jax.vmap(one, in_axes=(0, 0, 0, None, 0, 0, 0, None)), donate_argnums=5)

    @cached_property
    def learn(self) -> Any:
        def one(learner: Learner, index: Array, seen: Any, settings: Any) -> Any:
            practice = self.compiled.practice(learner.pool, index)
            return self.algorithm.learn(learner, seen, settings, self.compiled.flat, practice, self.compiled.config)

        return jit_batch(jax.vmap(one, in_axes=(0, 0, 0, None)))

    @cached_property
    def hint_context(self) -> Any:
        """games, pool, settings -> HintContext."""

        def one(games: Games, pool: Array, settings: Any) -> Any:
            practice: Any = self.compiled.practice(pool)
            return practice.hint_context(settings, games)

        return jit_batch(jax.vmap(one, in_axes=(0, 0, None)))

    def empty_rollout(self, learner: Learner, settings: Any) -> Any:
        """Zeros in the shape of what a rollout sees."""
        compiled = self.compiled

        def one(weights: Array, pool: Array, games: Games, settings: Any) -> Any:
            policy, practice = compiled.actor(weights), compiled.practice(pool)
            return play_step(policy, practice, settings, games, jax.random.key(0))[1]

        many = jax.vmap(one, in_axes=(0, 0, 0, None))
        shapes = jax.eval_shape(many, learner.weights, learner.pool, learner.games, settings)
        steps = compiled.config.rollout
        return {name: jnp.zeros((x.shape[0], steps, *x.shape[1:]), x.dtype) for name, x in shapes.items()}


@lru_cache(maxsize=8)
def step_programs(compiled: CompiledPhase, algorithm: Any) -> StepPrograms:
    """Equal phases share what they have compiled."""
    return StepPrograms(compiled, algorithm)


class HostHintLoop:
    """Advances the learners of a phase with hints from a source on the host."""

    def __init__(self, compiled: CompiledPhase, algorithm: Any, source: HintSource, seeds: int) -> None:
        self.compiled, self.source, self.seeds = compiled, source, seeds
        self.programs = step_programs(compiled, algorithm)
        self.report: Callable[[dict[str, float]], None] = lambda progress: None  # several times within an update
        self._seen: Any = None  # the rollout's buffer, reused by the next
        self._last_report, self._last_answered = 0.0, 0
        self._asked = self._asked_before = 0  # positions so far, answered or not; and before this update
        self._updates = 0  # complete ones of this call of `advance`
        source.waiting = self._report_progress

    def advance(self, learner: Learner, settings: Any, count: int) -> tuple[Learner, dict[str, Any]]:
        """learners, settings, number of updates -> learners, mean metrics f64[seeds] each, and hint usage.

        The given learner stays usable, so a failure in between loses nothing.
        """
        if count == 0:
            self._compile(learner, settings)
            return learner, {}
        before = [ledger.snapshot() for ledger in self.source.ledgers]
        sums: dict[str, Any] = {}
        for self._updates in range(count):
            learner, metrics = self._update(learner, settings)
            sums = {name: sums.get(name, 0.0) + np.asarray(value, float) for name, value in metrics.items()}
        with np.errstate(invalid="ignore"):  # without an ended episode the return is NaN
            means = mean_metrics(sums, count)
        used = [ledger.since(earlier) for ledger, earlier in zip(self.source.ledgers, before, strict=True)]
        return learner, means | usage_columns(used, self.source.about)

    def attach_hints(self, games: Games, settings: Any, playing: NDArray[np.bool_] | None = None) -> Games:
        """Hints for all games in which one is due; the step left the others without."""
        due = np.asarray(games.adviser_memory.due)
        if playing is not None:
            due = due & playing
        if not due.any():
            return games
        keys = np.asarray(games.adviser_memory.key)
        self._asked += int(due.sum())
        given = self.source.hints(due, keys, lambda: self._hint_context(games, settings))
        self._report_progress()
        hint = Hint(tuple(given.act), given.confidence, given.available)
        return games._replace(hint=hint, adviser_memory=games.adviser_memory._replace(due=self._none_due))

    @property
    def max_hints(self) -> int:
        """The most that an update asks for: a hint for every position of every game, its first one included."""
        return self.seeds * self.compiled.config.num_envs * (self.compiled.config.rollout + 1)

    def close(self) -> None:
        self.source.close()

    def _update(self, learner: Learner, settings: Any) -> tuple[Learner, dict[str, Array]]:
        self._asked_before = self._asked
        learner, index, keys = self.programs.begin(learner, settings)
        playing: NDArray[np.bool_] | None = None
        if self.compiled.algo == "reinforce":  # it omits what a game plays after its end, so no hint is needed there
            playing = np.ones(learner.games.steps.shape, bool)
        games = self.attach_hints(learner.games, settings, playing)
        for step in range(self.compiled.config.rollout):
            seen = self._rollout_buffer(learner, settings)
            games, self._seen = self.programs.step(
                learner.weights, learner.pool, index, settings, games, seen, keys, step
            )
            if playing is not None:
                playing &= np.asarray(games.steps) > 0
            games = self.attach_hints(games, settings, playing)
        return self.programs.learn(learner._replace(games=games), index, self._seen, settings)  # type: ignore[no-any-return]

    def _report_progress(self, waiting: int = 0) -> None:
        """`waiting` is the number of questions that are not yet answered."""
        now, answered = time.monotonic(), self._asked - waiting
        if now - self._last_report < REPORT_SECONDS:
            return
        wanted, done = self.max_hints, max(0, answered - self._asked_before)
        progress = {"hints_answered": done, "hints_wanted": wanted, "updates": self._updates + done / wanted}
        if self._last_report:
            progress["hints_per_s"] = max(0, answered - self._last_answered) / (now - self._last_report)
        self.report(progress)
        self._last_report, self._last_answered = now, answered

    def _compile(self, learner: Learner, settings: Any) -> None:
        """Runs every program once without asking for hints, and discards the results."""
        ready, index, keys = self.programs.begin(learner, settings)
        shape = (len(self.compiled.game.heads), *ready.games.steps.shape)
        act, zeros = np.zeros(shape, np.int32), np.zeros(shape[1:], np.float32)
        no_hints = ready.games._replace(
            hint=Hint(tuple(act), zeros, zeros.astype(bool)),
            adviser_memory=ready.games.adviser_memory._replace(due=self._none_due),
        )
        seen = self._rollout_buffer(ready, settings)
        games, self._seen = self.programs.step(ready.weights, ready.pool, index, settings, no_hints, seen, keys, 0)
        jax.block_until_ready(self.programs.learn(ready._replace(games=games), index, self._seen, settings))
        jax.block_until_ready(self._hint_context(games, settings))

    def _rollout_buffer(self, learner: Learner, settings: Any) -> Any:
        if self._seen is None:
            self._seen = self.programs.empty_rollout(learner, settings)
        return self._seen

    def _hint_context(self, games: Games, settings: Any) -> Any:
        return self.programs.hint_context(games, self._empty_pool, settings)

    @cached_property
    def _empty_pool(self) -> Array:
        return jnp.zeros((self.seeds, self.compiled.selves, self.compiled.flat.vector.shape[0]))

    @cached_property
    def _none_due(self) -> Array:
        return jnp.zeros((self.seeds, self.compiled.config.num_envs), bool)
