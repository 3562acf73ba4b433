"""A phase of a training job: what it plays, and the programs it compiles.

A compiled program depends only on the fields of `CompiledPhase`; what differs between runs (settings, seeds,
number of steps) is an argument. Equal phases share their programs, so a second run in the same process, with
another seed or from a checkpoint, traces and compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from kibitz.advice.batch import LLMHints
from kibitz.advice.judge import LLMJudge
from kibitz.core.bots import NO_HINTS, Bot, seated
from kibitz.core.chance import seed_key
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.xla import hosts
from kibitz.core.xla.jit import jit_batch
from kibitz.core.xla.stored import StoredProgram
from kibitz.evaluate.loop import match_program
from kibitz.train import ppo, reinforce, supervised
from kibitz.train.config import Job, TrainOptions
from kibitz.train.gpu.choice import actor
from kibitz.train.gpu.plan import faster, make_plan, unsupported
from kibitz.train.llm_hints.loop import HostHintLoop
from kibitz.train.llm_hints.rollout import HostHintPractice, max_lines
from kibitz.train.llm_judge.loop import HostJudgeLoop
from kibitz.train.llm_judge.rollout import JudgedPractice
from kibitz.train.network import Flat, feature_size, flatten, new_policy, policy_bot, shape_of
from kibitz.train.opponents import (
    MAX_SELVES,
    adviser_for,
    choose_self,
    game_of,
    make_llm_hints,
    make_llm_judge,
    opponent_for,
    origin_of,
    reward_for,
    self_bot,
)
from kibitz.train.rollout import Learner, Practice, StyleReward, max_learner_steps, mean_metrics, optimiser

ALGORITHMS: dict[str, Any] = {"ppo": ppo, "reinforce": reinforce, "supervised": supervised}
EVALUATION_SEED = 2**40  # plus the job's seed: no learner trains on contexts of this seed
AXIS = "games"


@dataclass(frozen=True)
class CompiledPhase:
    algo: str
    game: Game
    opponent: Bot | None  # None: earlier selves
    adviser: Bot | None
    cadence: int
    config: TrainOptions
    devices: tuple[Any, ...]
    max_lines: int | None = None  # the adviser is on the host and reads at most this many lines per episode
    reward: StyleReward | None = None  # None: the game's own
    judge_lines: int | None = None  # the judge is on the host and reads at most this many lines per episode
    origin: str | None = field(default=None, compare=False)  # see `opponents.origin_of`

    @cached_property
    def flat(self) -> Flat:
        """Shapes only; every learner has its own weights."""
        traced: list[Flat] = []
        jax.eval_shape(lambda: traced.append(flatten(self.policy(0))))
        return traced[0]

    @property
    def selves(self) -> int:
        return MAX_SELVES if self.opponent is None else 0

    def policy(self, seed: int | Array) -> Any:
        key = jax.random.fold_in(jax.random.key(seed), 1)
        return new_policy(self.game, feature_size(self.game), shape_of(self.config, self.game), key)

    def actor(self, weights: Array) -> Any:
        return actor(weights, self.flat, self.game, self.config)

    def practice(self, pool: Array, index: Array | int = 0) -> Practice:
        opponent = self.opponent or self_bot(self.game, self.flat, pool, index)
        both = self.config.critic == "both"
        given = (self.game, opponent, self.adviser, self.cadence, self.reward, both)
        if self.max_lines is not None:
            return HostHintPractice(*given, max_lines=self.max_lines)
        if self.judge_lines is not None:
            return JudgedPractice(*given, max_lines=self.judge_lines)
        return Practice(*given)

    def deal(self, learner: Learner, settings: Any) -> Learner:
        """One learner with new games."""
        key, deal_key = jax.random.split(jax.random.wrap_key_data(learner.key))
        practice = self.practice(learner.pool)
        u = jax.random.uniform(deal_key, (practice.begin_uniforms, self.config.num_envs))
        return learner._replace(games=practice.begin(settings, u), key=jax.random.key_data(key))

    @cached_property
    def deal_again(self) -> Callable[[Learner, Any], Learner]:
        """learners, settings -> learners with new games."""
        return jax.jit(jax.vmap(self.deal, in_axes=(0, None)))

    @cached_property
    def begin(self) -> StoredProgram:
        """u32[seeds], settings -> new learners."""

        def new(seeds: Array, settings: Any) -> Learner:
            weights = lax.map(lambda seed: flatten(self.policy(seed)).vector, seeds)
            keys = jax.vmap(lambda seed: jax.random.key_data(jax.random.key(seed)))(seeds)
            pool = jnp.repeat(weights[:, None], self.selves, axis=1)
            moments = jax.vmap(optimiser(self.config).init)(weights)
            updates = jnp.zeros(len(seeds), jnp.int32)
            learners = Learner(weights, moments, (), keys, updates, pool)  # type: ignore[arg-type]
            return jax.vmap(self.deal, in_axes=(0, None))(learners, settings)

        return self._stored("begin", new)

    def _stored(self, name: str, function: Callable[..., Any], **more: Any) -> StoredProgram:
        return StoredProgram(function, self.origin and f"{name} {self.origin} {self.config.model_dump_json()}", **more)

    @cached_property
    def advance(self) -> Callable[[Learner, Any, Any], tuple[Learner, dict[str, Array]]]:
        """learners, settings, number of updates -> learners, mean metrics f32[seeds] each."""
        axis = AXIS if len(self.devices) > 1 else None
        config = self.config.split(len(self.devices))
        update = ALGORITHMS[self.algo].update

        def one(learner: Learner, settings: Any) -> tuple[Learner, dict[str, Array]]:
            learner, index = choose_self(learner, self.config)
            practice = self.practice(learner.pool, index)
            return update(learner, settings, self.flat, practice, config, axis)  # type: ignore[no-any-return]

        each = jax.vmap(one, in_axes=(0, None))
        if axis is None:
            each = jax.jit(each)  # traced once, for its shapes and for the loop

        def many(learners: Learner, settings: Any, count: Any) -> tuple[Learner, dict[str, Array]]:
            shapes = jax.eval_shape(each, learners, settings)[1]
            zeros = {name: jnp.zeros(x.shape, x.dtype) for name, x in shapes.items()}

            def body(_: Any, carry: Any) -> Any:
                learners, sums = carry
                learners, metrics = each(learners, settings)
                return learners, {name: sums[name] + value for name, value in metrics.items()}

            learners, sums = lax.fori_loop(0, count, body, (learners, zeros))
            return learners, mean_metrics(sums, jnp.maximum(count, 1))

        if axis is None:
            return self._stored("advance", many, donate_argnums=(0,))
        mesh, spec = self._mesh, self._spec
        split = jax.shard_map(
            many, mesh=mesh, in_specs=(spec, PartitionSpec(), PartitionSpec()), out_specs=(spec, PartitionSpec()),
            check_vma=False,
        )  # fmt: skip
        program = jit_batch(split, donate_argnums=0)
        return lambda learner, settings, count: program(learner, hosts.on_host(settings), count)

    @property
    def heard_adviser(self) -> Bot | None:
        """The adviser that the learner may hear in evaluations; a supervised learner never hears its teacher."""
        return None if self.algo == "supervised" else self.adviser

    @cached_property
    def judge(self) -> Callable[[Array, Any, Array, Array, Any], tuple[Array, dict[str, Array]]]:
        """weights, settings, key, episode numbers, whether hints are heard -> returns f32[seeds, episodes, 2], scores.

        One program plays with and without hints, so that both cost one compilation.
        """
        opponent = self.opponent or self.game.bot(self.game.fallback)

        def one(weights: Array, settings: Any, key: Array, numbers: Array, heard: Array) -> Any:
            policy = self.flat.rebuild(weights)
            bot = policy_bot(self.game, policy, "learner", self.heard_adviser, self.cadence, heard=heard)
            return match_program(self.game, (bot, opponent), styles=self.reward is not None)(settings, key, numbers)

        return self._stored("judge", lambda weights, *rest: lax.map(lambda w: one(w, *rest), weights))

    def placed(self, learner: Learner) -> Learner:
        """The learner with its games split over the devices."""
        if len(self.devices) == 1:
            return learner
        places, learner = [NamedSharding(self._mesh, spec) for spec in self._spec], hosts.on_host(learner)
        return Learner(*(jax.device_put(part, place) for part, place in zip(learner, places, strict=True)))

    @cached_property
    def _mesh(self) -> Mesh:
        return Mesh(np.array(self.devices), (AXIS,))

    @cached_property
    def _spec(self) -> Any:
        """Games are split over the devices; every device has all of the rest."""
        whole = PartitionSpec()
        return Learner(whole, whole, PartitionSpec(None, AXIS), whole, whole, whole)  # type: ignore[arg-type]


def shared(compiled: CompiledPhase) -> CompiledPhase:
    """An equal phase that was used before, with its compiled programs, or this one."""
    if compiled.opponent is not None and compiled.config.constant:  # then programs do not depend on the length
        length = {"num_train_steps": compiled.config.batch}
        compiled = replace(compiled, config=compiled.config.model_copy(update=length))
    return first_equal(compiled)


@lru_cache(maxsize=8)
def first_equal(compiled: CompiledPhase) -> CompiledPhase:
    return compiled


@dataclass(frozen=True, eq=False)
class TrainingPhase:
    """Everything about a phase that does not change while it runs."""

    job: Job
    settings: Any
    config: TrainOptions
    compiled: CompiledPhase
    advice: str  # the adviser, in words
    source: LLMHints | LLMJudge | None = None  # an adviser or a judge on the host
    notes: tuple[str, ...] = ()  # for the run's record

    @property
    def game(self) -> Game:
        return self.compiled.game

    def advised_by(self, source: LLMHints) -> TrainingPhase:
        """The same phase with an adviser on the host."""
        compiled = replace(self.compiled, adviser=None, max_lines=max_lines(self.game, self.settings))
        return replace(self, source=source, compiled=shared(compiled))

    def begin(self) -> Learner:
        """New learners, one for each seed, stacked."""
        return self.compiled.placed(self.compiled.begin(self._seeds, self.settings))

    def shapes(self) -> Learner:
        """Of the learners, without the work."""
        learners: Learner = self.compiled.begin.shapes(self._seeds, self.settings)
        return learners

    def compile_ahead(self) -> None:
        """Compiles the first programs of a run at the same time."""
        begin, advance = self.compiled.begin, self.advance
        begin.compile_ahead(self._seeds, self.settings)
        if isinstance(advance, StoredProgram):
            advance.compile_ahead(self.shapes(), self.settings, 0)

    @property
    def _seeds(self) -> NDArray[np.uint32]:
        return np.arange(self.job.seed, self.job.seed + self.job.seeds).astype(np.uint32)

    def deal_again(self, learner: Learner) -> Learner:
        """New games for every learner: at the start, and when a new phase plays something else."""
        selves, learner = self.compiled.selves, hosts.gathered(learner)
        if learner.pool.shape[1] != selves:  # self-play begins or ends with this phase
            learner = learner._replace(pool=jnp.repeat(learner.weights[:, None], selves, axis=1))
        return self.compiled.placed(self.compiled.deal_again(learner, self.settings))

    @property
    def advance(self) -> Callable[[Learner, Any, Any], tuple[Learner, dict[str, Array]]]:
        """learners, settings, number of updates -> learners, mean metrics f32[seeds] each."""
        return self.compiled.advance if self.host is None else self.host.advance

    @property
    def hints_from(self) -> str:
        """Whose hints evaluations hear: a language model's would cost more questions than the training."""
        return NO_HINTS if self.compiled.heard_adviser is None else self.advice

    def judge(self, weights: Array, heard: bool = True) -> tuple[Array, dict[str, Array]]:
        """weights -> returns f32[seeds, episodes, 2] and scores of greedy play on fresh contexts."""
        key = seed_key(EVALUATION_SEED + self.job.seed)
        numbers = jnp.arange(self.job.logging.eval_episodes, dtype=jnp.int32)
        return self.compiled.judge(weights, self.settings, key, numbers, heard)

    @cached_property
    def host(self) -> HostHintLoop | HostJudgeLoop | None:
        """Advances the learners where the adviser or the judge cannot be compiled."""
        if self.source is None:
            return None
        if isinstance(self.source, LLMJudge):
            return HostJudgeLoop(self.compiled, ALGORITHMS[self.job.algo], self.source)
        return HostHintLoop(self.compiled, ALGORITHMS[self.job.algo], self.source, self.job.seeds)


def build(job: Job, devices: tuple[Any, ...]) -> TrainingPhase:
    """Raises BadInput for what does not fit together, before anything is written or compiled."""
    game, options = game_of(job)
    hints, reward = job.hints, reward_for(job, game)
    if job.algo == "supervised":
        if hints.mode not in ("none", "expert"):
            raise BadInput(f"--algo supervised learns the acts of the expert; use --hint expert, not {hints.mode}.")
        hints = hints.model_copy(update={"mode": "expert"})
    if job.algo != "ppo" and job.train.critic != "own":
        raise BadInput(
            f"train.critic is {job.train.critic} but algo is {job.algo}; remove train.critic, which PPO has."
        )
    notes: list[str] = []
    adviser, advice = adviser_for(hints, game, notes, options.settings())
    opponent = opponent_for(job, game, notes)
    seats: dict[int, Bot] = {} if opponent is None else {1: opponent}
    settings = seated(options.settings(), seats, {0: adviser} if adviser else {})
    source = make_llm_hints(hints, game, settings, job.seeds) if hints.mode == "llm" else None
    scale = game.learning.scale(settings)
    if reward is not None:
        reward = replace(reward, payoff_weight=reward.payoff_weight / scale)
    changed: dict[str, Any] = {"scale": job.train.scale or (1.0 if reward else scale)}
    if job.algo == "reinforce":
        rollout = max_learner_steps(game, settings)
        changed |= {"rollout": rollout, "minibatch": rollout * job.train.num_envs, "epochs": 1}
    if job.algo == "supervised":  # a gradient step at every step of the games
        changed |= {"minibatch": job.train.num_envs, "epochs": 1}
    changed["fused"] = _use_fused(job, game, devices)
    config = job.train.model_copy(update=changed)
    for name in ("num_envs", "minibatch"):
        if getattr(config, name) % len(devices):
            raise BadInput(
                f"{name} is {getattr(config, name)}, which {len(devices)} devices cannot share equally; "
                f"make it a multiple of {len(devices)}."
            )
    origin = None if len(devices) > 1 else origin_of(job, game, options)
    compiled = CompiledPhase(
        job.algo, game, opponent, adviser, hints.cadence_k, config, devices, reward=reward, origin=origin
    )
    phase = TrainingPhase(job, settings, config, shared(compiled), advice, notes=tuple(notes))
    if job.reward.mode == "llm_judge":
        compiled = replace(compiled, judge_lines=max_lines(game, settings))
        return replace(phase, compiled=shared(compiled), source=make_llm_judge(job.reward, game, job.seeds))
    return phase if source is None else phase.advised_by(source)


def _use_fused(job: Job, game: Game, devices: tuple[Any, ...]) -> bool:
    """Whether to learn with the GPU kernel. Raises BadInput if the job asks for it where it cannot run."""
    lacks = unsupported(game, job.train, devices[0])
    if job.train.fused is None:
        if job.algo != "ppo" or len(devices) > 1 or lacks:
            return False
        return faster(make_plan(game, feature_size(game), job.train))
    if job.train.fused and job.algo != "ppo":
        raise BadInput(f"train.fused is true but algo is {job.algo}; remove train.fused, which only PPO has.")
    if job.train.fused and lacks:
        raise BadInput(f"train.fused is true but the fused kernel does not support {lacks}; remove train.fused.")
    return job.train.fused


def build_phases(job: Job, devices: tuple[Any, ...]) -> list[tuple[int, TrainingPhase]]:
    """The end of each phase, in steps, and the phase; all of them train one network and count steps alike."""
    parts = job.phases()
    if any(part.hints.mode == "llm" or part.reward.mode == "llm_judge" for _, part in parts):
        if hosts.several():
            raise BadInput("A language model advises or judges on one host only; train without --hosts.")
        devices = devices[:1]  # the host steps or pays the games, so more devices would only wait
    phases = [(end, build(part, devices)) for end, part in parts]
    shapes = {(p.game.name, p.game.version, p.game.sizes, feature_size(p.game)) for _, p in phases}
    if len(shapes) > 1:
        raise BadInput(
            "The phases of the curriculum play games of different shapes, which one network cannot learn; "
            "set options that change features or acts in env."
        )
    if job.algo == "reinforce":  # an update plays the longest episodes of all phases to their end
        rollout = max(phase.config.rollout for _, phase in phases)
        shape = {"rollout": rollout, "minibatch": rollout * job.train.num_envs}
        phases = [(end, _reshaped(phase, shape)) for end, phase in phases]
    return phases


def _reshaped(phase: TrainingPhase, shape: dict[str, int]) -> TrainingPhase:
    config = phase.config.model_copy(update=shape)
    return replace(phase, config=config, compiled=shared(replace(phase.compiled, config=config)))
