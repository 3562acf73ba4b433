"""`kibitz bench env`: the negotiation as a single game, as a vector environment and as batched rules."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import kibitz  # noqa: F401  (registers the environment)
from kibitz.core.bots import seated, where
from kibitz.core.chance import block
from kibitz.core.game import Game
from kibitz.core.solo import against
from kibitz.games import get_game

SUBJECTS = ("single", "vector_4096", "batched_4096", "open_spiel")
GAMES = 4096
STEPS = 256  # per compiled call
WINDOWS = 5  # timings per subject; their median counts


def run(seconds: float, progress: Callable[[int], None] = lambda count: None) -> dict[str, Any]:
    """Steps per second by subject. A step is one act of the learner."""
    step_us = _single_steps_us(seconds)
    progress(1)
    single = 1e6 / step_us["mean"]
    vector = median_rate(vector_steps(), seconds)
    progress(1)
    batched = median_rate(batched_steps(get_game("deal_or_no_deal")), seconds)
    progress(1)
    spiel = _open_spiel_steps()
    peer = None if spiel is None else median_rate(spiel, seconds)
    progress(1)
    rates = dict(zip(SUBJECTS, (single, vector, batched, peer), strict=True))
    return {
        "steps_per_s": {name: None if rate is None else round(rate) for name, rate in rates.items()},
        "ratio_batched_to_single": round(batched / single, 1),
        "single_step_us": round(step_us["median"], 1),
        "device": str(jax.devices()[0]),
    }


def median_rate(burst: Callable[[], int], seconds: float) -> float:
    """Steps per second: the median over the windows, after one burst that compiles."""
    burst()
    rates = []
    for _ in range(WINDOWS):
        steps, began = 0, time.perf_counter()
        while (spent := time.perf_counter() - began) < seconds / WINDOWS:
            steps += burst()
        rates.append(steps / spent)
    return statistics.median(rates)


def _single_steps_us(seconds: float) -> dict[str, float]:
    """Microseconds per `step` call of the Gymnasium environment, with random offers."""
    env: Any = gymnasium.make("DealOrNoDialog-v0", disable_env_checker=True).unwrapped
    rng = np.random.default_rng(0)
    observation, _ = env.reset(seed=0)
    times: list[float] = []
    until = time.perf_counter() + seconds
    env.step({"act_type": 4, "oA": [0, 0, 0]})  # compiles, and ends the episode
    observation, _ = env.reset()
    while time.perf_counter() < until or len(times) < 200:
        action = {"act_type": int(rng.integers(2)), "oA": rng.integers(observation["counts"] + 1)}
        began = time.perf_counter()
        observation, _, over, _, _ = env.step(action)
        times.append(1e6 * (time.perf_counter() - began))
        if over:
            observation, _ = env.reset()
    return {"median": statistics.median(times), "mean": statistics.fmean(times)}


def vector_steps(games: int = GAMES, arrays: str = "numpy") -> Callable[[], int]:
    """The vector environment as a user steps it, with offers drawn in advance."""
    envs: Any = gymnasium.make_vec("DealOrNoDialog-v0", num_envs=games, clip_offers=True, arrays=arrays)
    rng = np.random.default_rng(0)
    envs.reset(seed=0)
    actions: Any = {"act_type": rng.integers(2, size=games), "oA": rng.integers(3, size=(games, 3))}
    if arrays == "jax":
        actions = jax.tree.map(lambda x: jnp.asarray(x, jnp.int32), actions)

    def burst() -> int:
        jax.block_until_ready(envs.step(actions)[1])
        return games

    return burst


def batched_steps(game: Game, games: int = GAMES) -> Callable[[], int]:
    """The rules alone, as a trainer runs them: random legal acts, the partner's replies, new contexts."""
    play, player = against(game, game.bot("heuristic")), game.bot("random")
    settings = seated(game.default_options.settings(), {0: player, 1: play.opponent})
    uniforms = player.uniforms + play.step_uniforms + play.new_uniforms

    def step(settings: Any, packed: Any, u: Array) -> tuple[Any, Array]:
        mine, theirs, fresh = jnp.split(u, [player.uniforms, player.uniforms + play.step_uniforms])
        solo = play.layout.unpack(packed)
        view, masks = game.rules.view(settings, solo.state, 0), game.rules.legal(settings, solo.state, 0)
        _, act = player.choose(settings, (), view, masks, mine)
        solo, rewards, over, _ = play.step(settings, solo, act, theirs)
        return play.layout.pack(where(over, play.new(settings, fresh), solo)), rewards[0]

    many = jax.vmap(step, in_axes=(None, 0, -1))

    @partial(jax.jit, donate_argnums=(1, 2))
    def steps(settings: Any, packed: Any, paid: Array, key: Array) -> tuple[Any, Array]:
        def body(carry: Any, key: Array) -> tuple[Any, None]:
            packed, paid = carry
            packed, rewards = many(settings, packed, block(key, (uniforms, games)))
            return (packed, paid + rewards), None

        return lax.scan(body, (packed, paid), jax.random.split(key, STEPS))[0]

    @jax.jit
    def begin(settings: Any, key: Array) -> Any:
        u = jax.random.uniform(key, (play.new_uniforms, games))
        return jax.vmap(lambda one: play.layout.pack(play.new(settings, one)), in_axes=-1)(u)

    latest = {"games": begin(settings, jax.random.key(0)), "paid": jnp.zeros(games), "calls": 0}

    def burst() -> int:
        latest["calls"] += 1
        latest["games"], latest["paid"] = steps(
            settings, latest["games"], latest["paid"], jax.random.key(latest["calls"])
        )
        jax.block_until_ready(latest["paid"])
        return games * STEPS

    return burst


def _open_spiel_steps() -> Callable[[], int] | None:
    """OpenSpiel's `bargaining` from Python with random legal actions; None if it is not installed."""
    try:
        import pyspiel
    except ImportError:
        return None
    game = pyspiel.load_game("bargaining")
    uniform = random.Random(0).random
    instances = len(game.all_instances())

    def burst() -> int:
        steps = 0
        for _ in range(100):
            state = game.new_initial_state()
            state.apply_action(int(uniform() * instances))
            while not state.is_terminal():
                legal = state.legal_actions()
                state.apply_action(legal[int(uniform() * len(legal))])
                steps += 1
            state.returns()
        return steps

    return burst
