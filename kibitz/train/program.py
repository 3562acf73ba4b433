"""A phase of a training job as compiled programs: advance the learners, and judge them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, PartitionSpec

from kibitz.core.chance import seed_key
from kibitz.core.errors import BadInput
from kibitz.core.game import Game, Rule, seated
from kibitz.evaluate.loop import match_program
from kibitz.games import get_game
from kibitz.hints.batched import LLMHints
from kibitz.train import ppo, reinforce, supervised
from kibitz.train.advisers import adviser_for, opponent_for, self_rule, whisperer_for
from kibitz.train.config import Job, TrainOptions
from kibitz.train.hosted import Hosted
from kibitz.train.learner import Learner, deal, optimiser, told_of
from kibitz.train.listening import Listening, most_lines
from kibitz.train.network import Flat, feature_size, flatten, new_policy
from kibitz.train.rollout import Practice, policy_rule

UPDATES: dict[str, Callable[..., tuple[Learner, dict[str, Array]]]] = {
    "ppo": ppo.update,
    "reinforce": reinforce.update,
    "supervised": supervised.update,
}
SELVES = 16  # earlier selves that are kept
AXIS = "games"


@dataclass(frozen=True, eq=False)
class Program:
    """Everything of a phase that does not change while it runs."""

    job: Job
    game: Game
    settings: Any
    opponent: Rule | None  # None: earlier selves
    adviser: Rule | None
    advice: str  # what the adviser is, in words
    config: TrainOptions
    devices: tuple[Any, ...]
    source: LLMHints | None = None  # an adviser who lives on the host
    notes: tuple[str, ...] = ()  # for the run's record

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
        opponent = self.opponent or self_rule(self.game, self.flat, pool, index)
        if self.source is not None:
            most = most_lines(self.game, self.settings)
            return Listening(self.game, opponent, None, self.job.hints.cadence_k, most)
        return Practice(self.game, opponent, self.adviser, self.job.hints.cadence_k)

    def begin(self) -> Learner:
        """Fresh learners, one for each seed, stacked."""
        seeds = range(self.job.seed, self.job.seed + self.job.seeds)
        weights = jnp.stack([flatten(self.policy(seed)).vector for seed in seeds])
        keys = jnp.stack([jax.random.key_data(jax.random.key(seed)) for seed in seeds])
        pool = jnp.repeat(weights[:, None], self.selves, axis=1)
        moments = jax.vmap(optimiser(self.config).init)(weights)
        learner = Learner(weights, moments, (), keys, jnp.zeros(self.job.seeds, jnp.int32), pool)  # type: ignore[arg-type]
        return self.deal_again(learner)

    def deal_again(self, learner: Learner) -> Learner:
        """New games for every learner: at the start, and when a phase changes what is played."""
        if learner.pool.shape[1] != self.selves:  # selves are met from now on, or no longer
            learner = learner._replace(pool=jnp.repeat(learner.weights[:, None], self.selves, axis=1))

        def one(learner: Learner, settings: Any) -> Learner:
            key, first = jax.random.split(jax.random.wrap_key_data(learner.key))
            games = deal(self.practice(learner.pool), settings, self.config.num_envs, first)
            return learner._replace(games=games, key=jax.random.key_data(key))

        dealt: Learner = jax.jit(jax.vmap(one, in_axes=(0, None)))(learner, self.settings)
        return self._placed(dealt)

    @cached_property
    def advance(self) -> Callable[[Learner, Any, Any], tuple[Learner, dict[str, Array]]]:
        """learners, settings, number of updates -> learners, mean metrics f32[seeds] each."""
        if self.host is not None:
            return self.host.advance
        axis = AXIS if len(self.devices) > 1 else None
        config = self.config.split(len(self.devices))

        def one(learner: Learner, settings: Any) -> tuple[Learner, dict[str, Array]]:
            learner, index = self.meet(learner)
            practice = self.practice(learner.pool, index)
            return UPDATES[self.job.algo](learner, settings, self.flat, practice, config, axis)

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
            return jax.jit(many, donate_argnums=0)
        mesh, spec = self._mesh, self._spec
        split = jax.shard_map(
            many, mesh=mesh, in_specs=(spec, PartitionSpec(), PartitionSpec()), out_specs=(spec, PartitionSpec()),
            check_vma=False,
        )  # fmt: skip
        return jax.jit(split, donate_argnums=0)

    @cached_property
    def judge(self) -> Callable[[Array], tuple[Array, dict[str, Array]]]:
        """weights -> returns f32[seeds, episodes, 2] and scores: greedy acts on fresh contexts."""
        opponent = self.opponent or self.game.rule("heuristic")
        # evaluation contexts come from a seed that no learner trains on
        key = seed_key(2**40 + self.job.seed)
        numbers = jnp.arange(self.job.logging.eval_episodes, dtype=jnp.int32)
        adviser = None if self.job.algo == "supervised" else self.adviser

        def one(weights: Array, settings: Any, key: Array) -> Any:
            policy = self.flat.rebuild(weights)
            rule = policy_rule(self.game, policy, "learner", adviser, self.job.hints.cadence_k)
            return match_program(self.game, (rule, opponent))(settings, key, numbers)

        # settings and seed are arguments, so that another seed or phase finds the program compiled
        many = jax.jit(lambda weights, settings, key: lax.map(lambda w: one(w, settings, key), weights))
        return lambda weights: many(weights, self.settings, key)

    @cached_property
    def host(self) -> Hosted | None:
        """Who steps the games where the adviser cannot be compiled."""
        return None if self.source is None else Hosted(self, self.source)

    def meet(self, learner: Learner) -> tuple[Learner, Array]:
        """Before an update: the learner, and which of its earlier selves it meets."""
        learner = self._next_self(learner)
        key = jax.random.fold_in(jax.random.wrap_key_data(learner.key), 7)
        return learner, jax.random.randint(key, (), 0, max(learner.pool.shape[0], 1))

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

    def _placed(self, learner: Learner) -> Learner:
        if len(self.devices) == 1:
            return learner
        places = [jax.sharding.NamedSharding(self._mesh, spec) for spec in self._spec]
        placed = [jax.device_put(part, place) for part, place in zip(learner, places, strict=True)]
        return Learner(*placed)


def build(job: Job, devices: tuple[Any, ...]) -> Program:
    """BadInput for whatever does not fit together, before anything is written or compiled."""
    plain = get_game(job.env.game)
    options = plain.options.read(job.env.options, f"key of env (an option of {job.env.game})")
    game = get_game(job.env.game, options)
    hints = job.hints
    if job.algo == "supervised" and hints.mode != "expert":
        hints = hints.model_copy(update={"mode": "expert"})
    notes: list[str] = []
    adviser, advice = adviser_for(hints, game, notes)
    opponent = opponent_for(job.opponent, job, game, notes)
    seats: dict[int, Rule] = {} if opponent is None else {1: opponent}
    settings = seated(options.settings(), seats | ({0: adviser} if adviser else {}))
    source = whisperer_for(hints, game, settings, job.seeds) if hints.mode == "llm" else None
    changed: dict[str, Any] = {"scale": job.train.scale or game.scale(settings)}
    if job.algo == "reinforce":
        some = opponent or game.rule("heuristic")
        whole = Practice(game, some).longest(settings)
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
    return Program(job, game, settings, opponent, adviser, advice, config, devices, source, tuple(notes))


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
        phases = [(end, replace(p, config=p.config.model_copy(update=shape))) for end, p in phases]
    return phases
