"""Balls per second in one compiled program and in the NumPy batch, and the time of a win probability."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from kibitz.bench import cricket_numpy
from kibitz.core.chance import episode_luck, seed_key
from kibitz.core.xla.jit import jit_batch
from kibitz.games.cricket.captains.bots import BALANCED
from kibitz.games.cricket.chances import winprob
from kibitz.games.cricket.fitting.simulate import batch
from kibitz.games.cricket.options import CricketOptions

DELIVERIES = 120  # from the start of twenty-over matches; none is over earlier
MATCHES = 4096
REPEATS = 5  # of the compiled batch
CALLS = 200  # for a win probability


def compiled_rate(matches: int = MATCHES) -> float:
    """Balls per second, the best of a few runs, including the captains' choices and random numbers."""
    settings = CricketOptions(max_overs=20, pool=32).settings()
    program = batch((BALANCED, BALANCED))

    @jit_batch
    def run(settings: Any, packed: Any, key: Array, one: Any) -> Any:
        def many(packed: Any, t: Array) -> tuple[Any, None]:
            u = jax.random.uniform(jax.random.fold_in(key, t), (program.width, matches))
            return program.turn(settings, packed, u, one), None

        return jax.lax.scan(many, packed, jnp.arange(DELIVERIES))[0]

    lucks = jax.vmap(lambda i: episode_luck(seed_key(0), i))(jnp.arange(matches))
    packed = jit_batch(program.begin)(settings, lucks)
    jax.block_until_ready(run(settings, packed, jax.random.key(1), 1))
    best = 0.0
    for turn in range(REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(run(settings, packed, jax.random.key(turn), 1))
        best = max(best, matches * DELIVERIES / (time.perf_counter() - start))
    return best


def _numpy_rate() -> float:
    settings = CricketOptions(max_overs=20, pool=32).settings()
    start = time.perf_counter()
    balls, _, _ = cricket_numpy.play(settings, MATCHES, 0)
    return balls / (time.perf_counter() - start)


def _winprob_ms() -> float:
    uncached = winprob.win_probability.__wrapped__
    uncached(second=False, score=0, first=0, legal=0, wickets=0, overs=20, era=2)
    start = time.perf_counter()
    for i in range(CALLS):
        uncached(second=i % 2 == 1, score=80, first=180, legal=60, wickets=3, overs=20, era=2)
    return 1000 * (time.perf_counter() - start) / CALLS


def bench() -> dict[str, float | str | int]:
    """The figures of `kibitz bench cricket`."""
    ours, theirs = compiled_rate(), _numpy_rate()
    return {
        "device": jax.devices()[0].device_kind,
        "matches": MATCHES,
        "balls_per_s": ours,
        "numpy_balls_per_s": theirs,
        "ratio_to_numpy": ours / theirs,
        "winprob_ms": _winprob_ms(),
    }
