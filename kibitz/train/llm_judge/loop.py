"""Updates whose reward comes from a judge on the host: one compiled rollout, the questions, one compiled update."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import NDArray

from kibitz.advice.batch import usage_columns
from kibitz.advice.judge import Finished, LLMJudge
from kibitz.core.xla.jit import jit_batch
from kibitz.train.llm_hints.loop import StepPrograms
from kibitz.train.llm_judge.rollout import FOR_THE_JUDGE
from kibitz.train.opponents import choose_self
from kibitz.train.rollout import Learner, mean_metrics, roll_out

if TYPE_CHECKING:
    from kibitz.train.phase import CompiledPhase


@dataclass(frozen=True)
class RolloutPrograms(StepPrograms):
    """The two parts of an update between which the host asks the judge; every argument has seeds first."""

    @cached_property
    def play(self) -> Any:
        """learners, settings -> learners, the earlier selves they played against, what the rollout saw."""

        def one(learner: Learner, settings: Any) -> Any:
            learner, index = choose_self(learner, self.compiled.config)
            practice = self.compiled.practice(learner.pool, index)
            learner, key = self.algorithm.begin(learner, settings, practice)
            policy, steps = self.compiled.actor(learner.weights), self.compiled.config.rollout
            games, seen = roll_out(policy, practice, settings, learner.games, key, steps)
            return learner._replace(games=games), index, seen

        return jit_batch(jax.vmap(one, in_axes=(0, None)))


@lru_cache(maxsize=8)
def _rollout_programs(compiled: CompiledPhase, algorithm: Any) -> RolloutPrograms:
    """Equal phases share what they have compiled."""
    return RolloutPrograms(compiled, algorithm)


class HostJudgeLoop:
    """Advances the learners of a phase with the rewards of a judge."""

    def __init__(self, compiled: CompiledPhase, algorithm: Any, source: LLMJudge) -> None:
        self.compiled, self.source = compiled, source
        self.programs = _rollout_programs(compiled, algorithm)
        self.report: Callable[[dict[str, float]], None] = lambda progress: None

    def advance(self, learner: Learner, settings: Any, count: int) -> tuple[Learner, dict[str, Any]]:
        """learners, settings, number of updates -> learners, mean metrics f64[seeds] each, and the judge's usage.

        The given learner stays usable, so a failure in between loses nothing.
        """
        if count == 0:  # compiles both programs without asking
            after, index, seen = self.programs.play(learner, settings)
            jax.block_until_ready(self.programs.learn(after, index, _kept(seen), settings))
            return learner, {}
        before, host_settings = [ledger.snapshot() for ledger in self.source.ledgers], jax.device_get(settings)
        sums: dict[str, Any] = {}
        for _ in range(count):
            learner, index, seen = self.programs.play(learner, settings)
            seen = self._judged(jax.device_get(seen), host_settings)
            learner, metrics = self.programs.learn(learner, index, seen, settings)
            sums = {name: sums.get(name, 0.0) + np.asarray(value, float) for name, value in metrics.items()}
        with np.errstate(invalid="ignore"):  # without an ended episode the return is NaN
            means = mean_metrics(sums, count)
        used = [ledger.since(earlier) for ledger, earlier in zip(self.source.ledgers, before, strict=True)]
        return learner, means | usage_columns(used, self.source.about)

    def close(self) -> None:
        self.source.close()

    def _judged(self, seen: dict[str, Any], settings: Any) -> dict[str, Any]:
        """The rollout with the judge's reward at every end of an episode.

        An episode without an answer pays what the learner expected, so that it teaches nothing.
        """
        ended = seen["over"] & (seen["steps"] > 0)  # bool[seeds, time, games]
        if self.compiled.algo == "reinforce":  # it learns from the first episode of each game only
            ended &= np.cumsum(seen["over"], axis=1) == 1
        places = np.argwhere(ended)
        began, asked = time.monotonic(), self.source.ledger.asked
        answers = self.source.judge([_episode(seen, settings, place) for place in places], places[:, 0].tolist())
        seconds = max(time.monotonic() - began, 1e-9)
        self.report({"judge_per_s": (self.source.ledger.asked - asked) / seconds})
        reward, returned = seen["reward"].copy(), seen["returned"].copy()
        for place, yes in zip(map(tuple, places.tolist()), answers, strict=True):
            paid = seen["value"][place] * self.compiled.config.unit if yes is None else float(yes)
            reward[place] += paid
            returned[place] += paid
        return _kept(seen) | {"reward": reward, "returned": returned}


def _episode(seen: dict[str, Any], settings: Any, place: NDArray[np.int64]) -> Finished:
    at = tuple(place.tolist())
    state = jax.tree.map(lambda leaf: leaf[at], seen["final"])
    lines = seen["lines"][at][: int(seen["length"][at])].tolist()
    return Finished(settings, state, [{"seat": line[0], "act": tuple(line[1:])} for line in lines])


def _kept(seen: dict[str, Any]) -> dict[str, Any]:
    """What the algorithm learns from."""
    return {name: value for name, value in seen.items() if name not in FOR_THE_JUDGE}
