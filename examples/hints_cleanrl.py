"""PPO in one file, in the style of CleanRL, on a vector environment with an adviser's hints in its observations.

pip install 'kibitz[torch]'; then: python hints_cleanrl.py [expert|random|llm:taught|policy:RUN] [STEPS]
"""

import sys

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

from kibitz.hints import HintInjectorVectorEnv, HintObservationVectorEnv

GAMMA, LAMBDA, CLIP, ENTROPY, EPOCHS, MINIBATCHES, LEARNING_RATE = 0.99, 0.95, 0.2, 0.01, 4, 4, 1e-3


class Agent(nn.Module):
    def __init__(self, features: int, sizes: list[int]) -> None:
        super().__init__()
        self.sizes = sizes
        self.body = nn.Sequential(nn.Linear(features, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.actor, self.critic = nn.Linear(64, sum(sizes)), nn.Linear(64, 1)

    def forward(self, observations, masks, actions=None):
        """Actions, their log-probabilities, the entropy and the values; one categorical per head."""
        hidden = self.body(observations)
        logits = self.actor(hidden).masked_fill(~masks, -1e8)
        heads = [Categorical(logits=part) for part in logits.split(self.sizes, dim=1)]
        if actions is None:
            actions = torch.stack([head.sample() for head in heads], dim=1)
        log_prob = sum(head.log_prob(action) for head, action in zip(heads, actions.T, strict=True))
        return actions, log_prob, sum(head.entropy() for head in heads), self.critic(hidden)[:, 0]


def main(hints: str = "expert", steps: int = 200_000, games: int = 64, rollout: int = 32) -> list[float]:
    """The mean return of the episodes that ended in each rollout."""
    torch.manual_seed(0)
    envs = gymnasium.make_vec("kibitz:Kibitz/DealOrNoDeal-v0", num_envs=games, autoreset_mode="SameStep")
    envs = HintObservationVectorEnv(HintInjectorVectorEnv(envs, hints))
    agent = Agent(envs.single_observation_space.shape[0], envs.single_action_space.nvec.tolist())
    optimiser = torch.optim.Adam(agent.parameters(), lr=LEARNING_RATE, eps=1e-5)
    observations, _ = envs.reset(seed=0)
    running, means = np.zeros(games), []
    for _ in range(max(1, steps // (games * rollout))):
        seen, ended = [], []
        for _ in range(rollout):
            now = torch.as_tensor(observations), torch.as_tensor(envs.action_masks())
            with torch.no_grad():
                actions, log_prob, _, values = agent(*now)
            observations, rewards, over, _, _ = envs.step(actions.numpy())
            seen.append((*now, actions, log_prob, values, torch.as_tensor(rewards / 20).float(), torch.as_tensor(over)))
            running += rewards
            ended += running[over].tolist()
            running[over] = 0
        means.append(float(np.mean(ended)) if ended else float("nan"))
        with torch.no_grad():
            following = agent(torch.as_tensor(observations), torch.as_tensor(envs.action_masks()))[3]
        advantages, advantage = [], torch.zeros(games)
        for *_, values, rewards, over in reversed(seen):  # no bootstrap beyond an episode's end
            error = rewards + GAMMA * following * ~over - values
            advantage = error + GAMMA * LAMBDA * advantage * ~over
            advantages.insert(0, advantage)
            following = values
        batch = [torch.cat(parts) for parts in zip(*(step[:5] for step in seen), strict=True)]
        learn(agent, optimiser, batch, torch.cat(advantages))
        print(f"mean return of {len(ended)} episodes: {means[-1]:.2f}")
    envs.close()
    return means


def learn(agent: Agent, optimiser: torch.optim.Optimizer, batch: list[torch.Tensor], advantages: torch.Tensor) -> None:
    observations, masks, actions, old_log_prob, old_values = batch
    returns = advantages + old_values
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(advantages)).chunk(MINIBATCHES):
            _, log_prob, entropy, values = agent(observations[rows], masks[rows], actions[rows])
            ratio = (log_prob - old_log_prob[rows]).exp()
            chosen = advantages[rows]
            chosen = (chosen - chosen.mean()) / (chosen.std() + 1e-8)
            policy_loss = -torch.min(chosen * ratio, chosen * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
            loss = policy_loss + 0.5 * (values - returns[rows]).pow(2).mean() - ENTROPY * entropy.mean()
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimiser.step()


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
