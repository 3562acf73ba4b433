"""`kibitz bench train`: steps per second and time to 95 % of the reference, beside SB3, PyTorch and TorchRL.

All learn on our own environment with the same sizes: 64 games, minibatches of 2,048, 4 epochs, two
hidden layers of 64 with tanh. The seed's default sizes (minibatches of 64) are timed too.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import numpy as np

from kibitz.bench import torch_ppo, torchrl_ppo
from kibitz.core.bots import seated
from kibitz.evaluate.match import play_bots
from kibitz.train.config import Job
from kibitz.train.phase import build

ENV_ID = "DealOrNoDialog-v0"
LARGE = {"num_envs": 64, "rollout": 128, "minibatch": 2048, "epochs": 4}
SEED = {"num_envs": 64, "rollout": 128, "minibatch": 64, "epochs": 4}
SUBJECTS = (
    "kibitz", "seed sizes", "config", "PyTorch PPO", "TorchRL", "sb3", "sb3 masked", "sb3 seed sizes", "time to 95 %",
)  # fmt: skip
GOAL = 0.95  # of the reference player's mean return


def run(
    seconds: float, job: Job, max_seconds: float, progress: Callable[[int], None] = lambda count: None
) -> dict[str, Any]:
    """`job` is timed as well, and is the one that runs to 95 %."""
    rates: dict[str, float | None] = {}
    for name, sizes in (("kibitz", LARGE), ("kibitz_seed_default", SEED)):
        values = {"env": {"id": ENV_ID}, "train": {**sizes, "num_train_steps": 10**9}}
        rates[name] = ours(Job.read(values), seconds)
        progress(1)
    rates["kibitz_config"] = ours(job, seconds)
    progress(1)
    for name, peer in (("torch_ppo_our_envs", torch_ppo), ("torchrl_ppo_our_envs", torchrl_ppo)):
        rates[name] = peer.steps_per_second(LARGE, seconds)
        progress(1)
    for name, sizes, masked in (
        ("sb3_ppo", LARGE, False),
        ("sb3_maskable_ppo", LARGE, True),
        ("sb3_ppo_seed_default", SEED, False),
    ):
        rates[name] = sb3(sizes, masked, seconds)
        progress(1)
    reached = _time_to_goal(job, max_seconds)
    progress(1)
    return {
        "steps_per_s": {name: None if rate is None else round(rate) for name, rate in rates.items()},
        "ratio_to_sb3_best": _ratio(rates["kibitz"], rates["sb3_ppo"], rates["sb3_maskable_ppo"]),
        "ratio_to_torch_ppo": _ratio(rates["kibitz"], rates["torch_ppo_our_envs"]),
        "ratio_to_torchrl": _ratio(rates["kibitz"], rates["torchrl_ppo_our_envs"]),
        "ratio_to_sb3_seed_default": _ratio(rates["kibitz_seed_default"], rates["sb3_ppo_seed_default"]),
        "time_to_95_percent": reached,
        "device": str(jax.devices()[0]),
    }


def _ratio(ours: float | None, *peers: float | None) -> float | None:
    known = [peer for peer in peers if peer]
    return round(ours / max(known), 1) if ours and known else None


def ours(job: Job, seconds: float) -> float:
    """Steps per second of rollout and update together, the median of five windows after compiling."""
    phase = build(job, tuple(jax.local_devices()[:1]))
    learner = phase.begin()
    batch = phase.config.batch
    learner, metrics = phase.advance(learner, phase.settings, 1)
    began = time.perf_counter()
    learner, metrics = phase.advance(learner, phase.settings, 1)
    jax.block_until_ready(metrics)
    updates = max(1, int(seconds / 5 / max(time.perf_counter() - began, 1e-6)))
    rates = []
    for _ in range(5):
        began = time.perf_counter()
        learner, metrics = phase.advance(learner, phase.settings, updates)
        jax.block_until_ready((learner.weights, metrics))
        rates.append(updates * batch / (time.perf_counter() - began))
    return statistics.median(rates)


def sb3(sizes: dict[str, int], masked: bool, seconds: float) -> float | None:
    """Stable-Baselines3 on the flat wrapper of the same environment; None where it is not installed."""
    try:
        import torch
        from sb3_contrib import MaskablePPO
        from stable_baselines3 import PPO
        from stable_baselines3.common.env_util import make_vec_env
    except ImportError:
        return None
    from kibitz.games.deal_or_no_deal.envs.wrappers import FlatActions

    def make() -> Any:
        # plain PPO has no masks: an illegal act costs a turn
        env = gymnasium.make(ENV_ID, illegal="penalty", disable_env_checker=True)
        return gymnasium.wrappers.FilterObservation(FlatActions(env), list(env.observation_space.spaces))  # type: ignore[attr-defined]

    envs = make_vec_env(make, n_envs=sizes["num_envs"], seed=0)
    algorithm: Any = MaskablePPO if masked else PPO
    model = algorithm(
        "MultiInputPolicy",
        envs,
        n_steps=sizes["rollout"],
        batch_size=sizes["minibatch"],
        n_epochs=sizes["epochs"],
        policy_kwargs={"net_arch": [64, 64], "activation_fn": torch.nn.Tanh},
        device="cpu",
        seed=0,
    )
    batch = sizes["num_envs"] * sizes["rollout"]
    model.learn(batch)
    steps, began = 0, time.perf_counter()
    while steps == 0 or time.perf_counter() - began < seconds:
        model.learn(batch, reset_num_timesteps=False)
        steps += batch
    return steps / (time.perf_counter() - began)


def _time_to_goal(job: Job, max_seconds: float) -> dict[str, Any]:
    """Seconds of training until greedy acts on fresh contexts earn 95 % of the reference player's return."""
    phase = build(job, tuple(jax.local_devices()[:1]))
    game = phase.game
    bots = (game.bot(game.reference), phase.compiled.opponent or game.bot(game.fallback))
    settings = seated(phase.settings, dict(enumerate(bots)))
    reference = float(play_bots(game, settings, bots, 2048, 1, lambda count: None).returns[:, 0].mean())
    learner = phase.begin()
    batch, step, spent, share = phase.config.batch, 0, 0.0, 0.0
    chunk = max(1, job.train.num_train_steps // 75 // batch)
    learner, _ = phase.advance(learner, phase.settings, 0)  # compiles
    phase.judge(learner.weights)
    while step < job.train.num_train_steps and spent < max_seconds:
        began = time.perf_counter()
        learner, _ = phase.advance(learner, phase.settings, chunk)
        jax.block_until_ready(learner.weights)
        spent += time.perf_counter() - began
        step += chunk * batch
        returns, _ = phase.judge(learner.weights)
        share = float(np.asarray(returns)[:, :, 0].mean()) / reference
        if share >= GOAL:
            break
    reached = share >= GOAL
    return {
        "seconds": round(spent, 2) if reached else None,
        "steps": step,
        "share_of_reference": round(share, 4),
    }
