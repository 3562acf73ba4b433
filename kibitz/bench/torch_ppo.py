"""PPO in PyTorch in the style of CleanRL, on our vector environment: a peer with our rules and another learner.

Observations, masks and rewards reach it as tensors on the device, without a copy.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import jax

from kibitz.core.envs.gym_vector import GameVectorEnv

GAMMA, LAMBDA, CLIP, ENTROPY, LEARNING_RATE, HIDDEN = 1.0, 0.95, 0.2, 0.01, 1e-3, 64


def steps_per_second(sizes: dict[str, int], seconds: float) -> float | None:
    """Rollout and update together; None where PyTorch is not installed."""
    try:
        import torch
    except ImportError:
        return None
    torch.manual_seed(0)
    device = "cuda" if jax.default_backend() == "gpu" and torch.cuda.is_available() else "cpu"
    envs = GameVectorEnv(sizes["num_envs"], "deal_or_no_deal", autoreset_mode="SameStep", arrays="torch")
    learner = _Learner(torch, envs, sizes, device)
    observations, _ = envs.reset(seed=0)
    observations = learner.update(observations)
    rates: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(rates) < 3:
        began = time.perf_counter()
        observations = learner.update(observations)
        rates.append(sizes["num_envs"] * sizes["rollout"] / (time.perf_counter() - began))
    return statistics.median(rates)


class _Learner:
    def __init__(self, torch: Any, envs: GameVectorEnv, sizes: dict[str, int], device: str) -> None:
        self.torch, self.envs, self.sizes, self.heads = torch, envs, sizes, list(envs.game.sizes)
        nn, features = torch.nn, envs.single_observation_space.shape[0]  # type: ignore[index]
        body = [nn.Linear(features, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh()]
        self.network = nn.Sequential(*body, nn.Linear(HIDDEN, sum(self.heads) + 1)).to(device)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=LEARNING_RATE, eps=1e-5)

    def evaluate(self, observations: Any, masks: Any, actions: Any = None) -> tuple[Any, Any, Any, Any]:
        """Actions, their log-probabilities, the entropy and the values; one categorical for each head."""
        torch = self.torch
        out = self.network(observations)
        logits = out[:, :-1].masked_fill(~masks, -1e8)
        heads = [torch.distributions.Categorical(logits=part) for part in logits.split(self.heads, dim=1)]
        if actions is None:
            actions = torch.stack([head.sample() for head in heads], dim=1)
        log_prob = sum(head.log_prob(action) for head, action in zip(heads, actions.T, strict=True))
        return actions, log_prob, sum(head.entropy() for head in heads), out[:, -1]

    def update(self, observations: Any) -> Any:
        """A rollout and its gradient steps; returns the last observations."""
        torch = self.torch
        steps: list[Any] = []
        for _ in range(self.sizes["rollout"]):
            masks = self.envs.action_masks()
            with torch.no_grad():
                actions, log_prob, _, values = self.evaluate(observations, masks)
            following, rewards, over, _, _ = self.envs.step(actions)
            steps.append((observations, masks, actions, log_prob, values, rewards, over))
            observations = following
        with torch.no_grad():
            following = self.evaluate(observations, self.envs.action_masks())[3]
        advantages: list[Any] = []
        advantage = torch.zeros_like(following)
        for *_, values, rewards, over in reversed(steps):
            error = rewards + GAMMA * following * ~over - values
            advantage = error + GAMMA * LAMBDA * advantage * ~over
            advantages.insert(0, advantage)
            following = values
        batch = [torch.cat(parts) for parts in zip(*(step[:5] for step in steps), strict=True)]
        self._learn(batch, torch.cat(advantages))
        return observations

    def _learn(self, batch: list[Any], advantages: Any) -> None:
        torch = self.torch
        observations, masks, actions, old_log_prob, old_values = batch
        returns = advantages + old_values
        for _ in range(self.sizes["epochs"]):
            order = torch.randperm(len(advantages), device=advantages.device)
            for rows in order.split(self.sizes["minibatch"]):
                _, log_prob, entropy, values = self.evaluate(observations[rows], masks[rows], actions[rows])
                ratio, own = (log_prob - old_log_prob[rows]).exp(), advantages[rows]
                own = (own - own.mean()) / (own.std() + 1e-8)
                gain = torch.min(own * ratio, own * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
                loss = 0.5 * (values - returns[rows]).square().mean() - gain - ENTROPY * entropy.mean()
                self.optimiser.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.network.parameters(), 0.5)
                self.optimiser.step()
