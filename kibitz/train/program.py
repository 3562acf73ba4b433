"""A phase of a training job: what it plays and by which compiled programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from kibitz.advice.batch import LLMHints
from kibitz.core.bots import Bot, seated
from kibitz.core.chance import seed_key
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.train.compiled import Compiled, shared
from kibitz.train.config import Job, TrainOptions
from kibitz.train.learner import Learner, optimiser
from kibitz.train.llm_hints.loop import Hosted
from kibitz.train.llm_hints.rollout import most_lines
from kibitz.train.network import feature_size, flatten
from kibitz.train.opponents import adviser_for, game_of, opponent_for, whisperer_for
from kibitz.train.rollout import longest


@dataclass(frozen=True, eq=False)
class Program:
    """Everything of a phase that does not change while it runs."""

    job: Job
    settings: Any
    config: TrainOptions
    compiled: Compiled
    advice: str  # what the adviser is, in words
    source: LLMHints | None = None  # an adviser who lives on the host
    notes: tuple[str, ...] = ()  # for the run's record

    @property
    def game(self) -> Game:
        return self.compiled.game

    def advised_by(self, source: LLMHints) -> Program:
        """The same phase with an adviser who lives on the host."""
        heard = replace(self.compiled, adviser=None, lines=most_lines(self.game, self.settings))
        return replace(self, source=source, compiled=shared(heard))

    def begin(self) -> Learner:
        """Fresh learners, one for each seed, stacked."""
        seeds = range(self.job.seed, self.job.seed + self.job.seeds)
        weights = jnp.stack([flatten(self.compiled.policy(seed)).vector for seed in seeds])
        keys = jnp.stack([jax.random.key_data(jax.random.key(seed)) for seed in seeds])
        pool = jnp.repeat(weights[:, None], self.compiled.selves, axis=1)
        moments = jax.vmap(optimiser(self.config).init)(weights)
        learner = Learner(weights, moments, (), keys, jnp.zeros(self.job.seeds, jnp.int32), pool)  # type: ignore[arg-type]
        return self.deal_again(learner)

    def deal_again(self, learner: Learner) -> Learner:
        """New games for every learner: at the start, and when a phase changes what is played."""
        selves = self.compiled.selves
        if learner.pool.shape[1] != selves:  # selves are met from now on, or no longer
            learner = learner._replace(pool=jnp.repeat(learner.weights[:, None], selves, axis=1))
        return self.compiled.placed(self.compiled.deal(learner, self.settings))

    @property
    def advance(self) -> Callable[[Learner, Any, Any], tuple[Learner, dict[str, Array]]]:
        """learners, settings, number of updates -> learners, mean metrics f32[seeds] each."""
        return self.compiled.advance if self.host is None else self.host.advance

    def judge(self, weights: Array) -> tuple[Array, dict[str, Array]]:
        """weights -> returns f32[seeds, episodes, 2] and scores: greedy acts on fresh contexts."""
        key = seed_key(2**40 + self.job.seed)  # contexts from a seed that no learner trains on
        numbers = jnp.arange(self.job.logging.eval_episodes, dtype=jnp.int32)
        return self.compiled.judge(weights, self.settings, key, numbers)

    @cached_property
    def host(self) -> Hosted | None:
        """Who steps the games where the adviser cannot be compiled."""
        if self.source is None:
            return None
        return Hosted(self.compiled, self.source, self.job.seeds)


def build(job: Job, devices: tuple[Any, ...]) -> Program:
    """BadInput for whatever does not fit together, before anything is written or compiled."""
    game, options = game_of(job)
    hints = job.hints
    if job.algo == "supervised":
        if hints.mode not in ("none", "expert"):
            raise BadInput(f"--algo supervised learns the acts of the expert; use --hint expert, not {hints.mode}.")
        hints = hints.model_copy(update={"mode": "expert"})
    notes: list[str] = []
    adviser, advice = adviser_for(hints, game, notes)
    opponent = opponent_for(job, game, notes)
    seats: dict[int, Bot] = {} if opponent is None else {1: opponent}
    settings = seated(options.settings(), seats, {0: adviser} if adviser else {})
    source = whisperer_for(hints, game, settings, job.seeds) if hints.mode == "llm" else None
    changed: dict[str, Any] = {"scale": job.train.scale or game.learning.scale(settings)}
    if job.algo == "reinforce":
        whole = longest(game, settings)
        changed |= {"rollout": whole, "minibatch": whole * job.train.num_envs, "epochs": 1}
    if job.algo == "supervised":  # a gradient step at every step of the games
        changed |= {"minibatch": job.train.num_envs, "epochs": 1}
    config = job.train.model_copy(update=changed)
    for name in ("num_envs", "minibatch"):
        if getattr(config, name) % len(devices):
            raise BadInput(
                f"{name} is {getattr(config, name)}, which {len(devices)} devices cannot share equally; "
                f"make it a multiple of {len(devices)}."
            )
    compiled = shared(Compiled(job.algo, game, opponent, adviser, hints.cadence_k, config, devices))
    program = Program(job, settings, config, compiled, advice, notes=tuple(notes))
    return program if source is None else program.advised_by(source)


def build_phases(job: Job, devices: tuple[Any, ...]) -> list[tuple[int, Program]]:
    """Where each phase ends and its program; all of them train one network and count steps alike."""
    parts = job.phases()
    if any(part.hints.mode == "llm" for _, part in parts):
        devices = devices[:1]  # the host steps the games: more devices would only wait together
    phases = [(end, build(part, devices)) for end, part in parts]
    shapes = {(p.game.name, p.game.version, p.game.sizes, feature_size(p.game)) for _, p in phases}
    if len(shapes) > 1:
        raise BadInput(
            "The phases of the curriculum play games of different shapes, which one network cannot learn; "
            "options that change what is seen or chosen belong in env."
        )
    if job.algo == "reinforce":  # an update plays the longest episodes of all phases to their end
        rollout = max(program.config.rollout for _, program in phases)
        shape = {"rollout": rollout, "minibatch": rollout * job.train.num_envs}
        phases = [(end, _in_shape(program, shape)) for end, program in phases]
    return phases


def _in_shape(program: Program, shape: dict[str, int]) -> Program:
    config = program.config.model_copy(update=shape)
    return replace(program, config=config, compiled=shared(replace(program.compiled, config=config)))
