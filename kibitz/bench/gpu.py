"""`kibitz bench gpu`: everything about the speed of one device in one table. It runs on a CPU as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
from jax import lax

from kibitz.bench import start
from kibitz.bench.env import batched_steps, median_rate, vector_steps
from kibitz.bench.train import ENV_ID, ours
from kibitz.core.errors import BadInput
from kibitz.games import get_game
from kibitz.train.config import Job, read_job
from kibitz.train.phase import build
from kibitz.train.rollout import roll_out

ROLLOUT, MINIBATCHES = 16, 8  # of the jobs of 2x64
GAMES = (4_096, 65_536)


def subjects(games: Sequence[int]) -> int:
    return 5 * len(games) + 3


def run(
    seconds: float, games: Sequence[int], config: str, progress: Callable[[int], None] = lambda count: None
) -> dict[str, Any]:
    """Steps per second by number of games and for the config; None where the fused kernel cannot run, and why."""
    rows: dict[str, dict[str, float | None]] = {}
    why: str | None = None

    def measured(measure: Callable[[], float]) -> float:
        try:
            return round(measure())
        finally:
            progress(1)

    def learner(job: Job, fused: bool) -> Callable[[], float]:
        return partial(ours, job.model_copy(update={"train": job.train.model_copy(update={"fused": fused})}), seconds)

    def fused(job: Job) -> float | None:
        nonlocal why
        try:
            return measured(learner(job, True))
        except BadInput as error:  # a device or a network that the fused kernel does not support
            why = str(error)
            return None

    given = read_job(config, {})  # first, because the measurements take minutes
    negotiation = get_game("deal_or_no_deal")
    for count in games:
        job = _job_of(count)
        rows[f"{count:,} games"] = {
            "batched_rules": measured(partial(_rate, partial(batched_steps, negotiation, count), seconds)),
            "vector_env": measured(partial(_rate, partial(vector_steps, count, "jax"), seconds)),
            "rollout": measured(partial(_rate, partial(_rollout_steps, job), seconds)),
            "training": measured(learner(job, False)),
            "training_fused": fused(job),
        }
    rows[config] = {
        "training": measured(learner(given, False)),
        "training_fused": fused(given),
    }
    started = start.run(config)
    progress(1)
    return {
        "steps_per_s": rows,
        "start_s": {"first": started["first_run_s"], "warm": started["warm_run_s"]},
        "fused_unsupported": why,
        "device": str(jax.devices()[0].device_kind),
    }


def _job_of(games: int) -> Job:
    """PPO with two layers of 64."""
    sizes = {"num_envs": games, "rollout": ROLLOUT, "minibatch": games * ROLLOUT // MINIBATCHES}
    return Job.read({"env": {"id": ENV_ID}, "train": {**sizes, "num_train_steps": 10**9}})


def _rollout_steps(job: Job) -> Callable[[], int]:
    """The network, the opponent and the rules, without learning."""
    phase = build(job, tuple(jax.local_devices()[:1]))
    learner, compiled = phase.begin(), phase.compiled
    practice = compiled.practice(learner.pool[0])

    @partial(jax.jit, donate_argnums=2)
    def play(settings: Any, weights: Any, games: Any, key: Any) -> tuple[Any, Any]:
        policy = compiled.actor(weights)
        games, seen = roll_out(policy, practice, settings, games, key, job.train.rollout)
        return games, lax.optimization_barrier(seen)  # a learner reads all of it

    latest = {"games": jax.tree.map(lambda x: x[0], learner.games), "calls": 0}

    def burst() -> int:
        latest["calls"] += 1
        key = jax.random.key(latest["calls"])
        latest["games"], seen = play(phase.settings, learner.weights[0], latest["games"], key)
        jax.block_until_ready(seen)
        return job.train.batch

    return burst


def _rate(make: Callable[[], Callable[[], int]], seconds: float) -> float:
    return median_rate(make(), seconds)
