"""Self-play on PettingZoo: one policy takes both seats of Deal or No Deal and learns with REINFORCE.

pip install 'kibitz[pettingzoo,torch]'; then: python pettingzoo_selfplay.py [EPISODES]
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

from kibitz.core.envs.pettingzoo_env import aec_env

LEARNING_RATE, ENTROPY, EPISODES_PER_UPDATE = 1e-3, 0.01, 16


def main(episodes: int = 2_000, game: str = "deal_or_no_deal") -> list[float]:
    """The mean return of both seats in each update."""
    torch.manual_seed(0)
    env = aec_env(game)
    env.reset(seed=0)
    space = env.observation_space(env.possible_agents[0])
    features, actions = space["observation"].shape[0], int(space["action_mask"].shape[0])
    policy = nn.Sequential(nn.Linear(features, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, actions))
    optimiser = torch.optim.Adam(policy.parameters(), lr=LEARNING_RATE)
    means = []
    for update in range(max(1, episodes // EPISODES_PER_UPDATE)):
        played = [play(env, policy, update * EPISODES_PER_UPDATE + i) for i in range(EPISODES_PER_UPDATE)]
        paid = torch.tensor([returns[seat] for steps, returns in played for seat, _, _ in steps])
        log_probs = torch.stack([log_prob for steps, _ in played for _, log_prob, _ in steps])
        entropies = torch.stack([entropy for steps, _ in played for _, _, entropy in steps])
        advantages = (paid - paid.mean()) / (paid.std() + 1e-8)
        loss = -(log_probs * advantages).mean() - ENTROPY * entropies.mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        means.append(float(np.mean([list(returns.values()) for _, returns in played])))
    env.close()
    return means


def play(env, policy, seed):
    """One episode: (seat, log-probability, entropy) of every act, and what each seat earned."""
    env.reset(seed=seed)
    steps, returns = [], dict.fromkeys(env.possible_agents, 0.0)
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, _ = env.last()
        returns[agent] += float(reward)
        if terminated or truncated:
            env.step(None)
            continue
        logits = policy(torch.as_tensor(observation["observation"]))
        legal = torch.as_tensor(observation["action_mask"], dtype=torch.bool)
        choice = Categorical(logits=logits.masked_fill(~legal, -1e8))
        action = choice.sample()
        steps.append((agent, choice.log_prob(action), choice.entropy()))
        env.step(int(action))
    return steps, returns


if __name__ == "__main__":
    for number, mean in enumerate(main(*map(int, sys.argv[1:]))):
        print(f"update {number}: mean return {mean:.2f}")
