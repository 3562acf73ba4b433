"""Training whose adviser cannot be compiled: compiled steps, and questions to the host between them.

An update is one compiled start, `rollout` compiled steps and one compiled lesson, the same functions that a
fully compiled update is made of. After each step the games that are due get their hints, all at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kibitz.advice.batch import COLUMNS, Source
from kibitz.advice.features import Hint
from kibitz.train.compiled import Compiled
from kibitz.train.learner import Learner, told_of
from kibitz.train.rollout import Games

PULSE = 0.5  # seconds between two signs of life


class Hosted:
    """Advances the learners of a phase with the hints of a source."""

    def __init__(self, compiled: Compiled, source: Source, seeds: int) -> None:
        self.compiled, self.source, self.seeds = compiled, source, seeds
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
        learner, index, keys, learn_key = self.compiled.begin_update(learner, settings)
        wanted: NDArray[np.bool_] | None = None
        if self.compiled.algo == "reinforce":  # what a game plays after its end is left out: nobody need advise it
            wanted = np.ones(learner.games.steps.shape, bool)
        games = self.heed(learner.games, settings, wanted)
        for step in range(self.compiled.config.rollout):
            games, self._seen = self.compiled.step(
                learner.weights, learner.pool, index, settings, games, self._seen_like(learner, settings), keys, step
            )
            if wanted is not None:
                wanted &= np.asarray(games.steps) > 0
            games = self.heed(games, settings, wanted)
        return self.compiled.learn(learner._replace(games=games), index, self._seen, learn_key, settings)  # type: ignore[no-any-return]

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
        ready, index, keys, learn_key = self.compiled.begin_update(learner, settings)
        shape = (len(self.compiled.game.heads), *ready.games.steps.shape)
        act, zeros = np.zeros(shape, np.int32), np.zeros(shape[1:], np.float32)
        silent = ready.games._replace(
            hint=Hint(tuple(act), zeros, zeros.astype(bool)), ear=ready.games.ear._replace(due=self._nobody)
        )
        games, self._seen = self.compiled.step(
            ready.weights, ready.pool, index, settings, silent, self._seen_like(ready, settings), keys, 0
        )
        jax.block_until_ready(self.compiled.learn(ready._replace(games=games), index, self._seen, learn_key, settings))
        jax.block_until_ready(self._look(games, settings))

    def _seen_like(self, learner: Learner, settings: Any) -> Any:
        if self._seen is None:
            self._seen = self.compiled.nothing_seen(learner, settings)
        return self._seen

    def _look(self, games: Games, settings: Any) -> Any:
        return self.compiled.look(games, self._no_selves, settings)

    @cached_property
    def _no_selves(self) -> Array:
        return jnp.zeros((self.seeds, self.compiled.selves, self.compiled.flat.vector.shape[0]))

    @cached_property
    def _nobody(self) -> Array:
        return jnp.zeros((self.seeds, self.compiled.config.num_envs), bool)
