"""TorchRL's collector and PPO loss on an environment with an adviser's hints in its observations.

pip install 'kibitz[torchrl]'; then: python hints_torchrl.py [expert|random|llm:taught|policy:RUN] [STEPS]
"""

import sys

import gymnasium
import torch
from tensordict.nn import TensorDictModule
from torch import nn
from torch.distributions import Categorical, Distribution
from torchrl.collectors import Collector
from torchrl.data import Binary
from torchrl.envs import GymWrapper, default_info_dict_reader
from torchrl.modules import ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from kibitz.hints import HintInjectorEnv, HintObservationEnv

EPOCHS, MINIBATCHES, LEARNING_RATE, REWARD_UNIT = 4, 4, 1e-3, 20.0


def make(hints: str) -> tuple[GymWrapper, list[int]]:
    """The environment, and the number of values of each head of an act."""
    env = gymnasium.make("kibitz:Kibitz/DealOrNoDeal-v0")  # features as observations, MultiDiscrete actions, masks
    wrapped = GymWrapper(HintObservationEnv(HintInjectorEnv(env, hints)), categorical_action_encoding=True)
    sizes = env.action_space.nvec.tolist()
    mask = Binary(sum(sizes), dtype=torch.int8)
    return wrapped.set_info_dict_reader(default_info_dict_reader(["action_mask"], spec=[mask])), sizes


def heads(sizes: list[int]) -> type[Distribution]:
    """The distribution of an act: one masked categorical per head."""

    class Heads(Distribution):
        def __init__(self, logits: torch.Tensor, mask: torch.Tensor) -> None:
            parts = logits.masked_fill(~mask.bool(), -1e8).split(sizes, dim=-1)
            self.heads = [Categorical(logits=part) for part in parts]
            super().__init__(logits.shape[:-1], (len(sizes),), validate_args=False)

        def sample(self, sample_shape: torch.Size = torch.Size()) -> torch.Tensor:  # noqa: B008
            return torch.stack([head.sample(sample_shape) for head in self.heads], dim=-1)

        @property
        def deterministic_sample(self) -> torch.Tensor:
            return torch.stack([head.mode for head in self.heads], dim=-1)

        def log_prob(self, action: torch.Tensor) -> torch.Tensor:
            return sum(head.log_prob(part) for head, part in zip(self.heads, action.unbind(-1), strict=True))

        def entropy(self) -> torch.Tensor:
            return sum(head.entropy() for head in self.heads)

    return Heads


def main(hints: str = "expert", steps: int = 20_000, rollout: int = 1024) -> list[float]:
    """The mean return of the episodes that ended in each rollout."""
    torch.manual_seed(0)
    env, sizes = make(hints)
    env.set_seed(0)
    features = env.observation_spec["observation"].shape[-1]
    body = nn.Sequential(nn.Linear(features, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, sum(sizes)))
    actor = ProbabilisticActor(
        TensorDictModule(body, ["observation"], ["logits"]),
        in_keys={"logits": "logits", "mask": "action_mask"},
        distribution_class=heads(sizes),
        return_log_prob=True,
    )
    critic = ValueOperator(nn.Sequential(nn.Linear(features, 64), nn.Tanh(), nn.Linear(64, 1)))
    loss = ClipPPOLoss(actor, critic, entropy_coeff=0.01)
    advantage = GAE(gamma=0.99, lmbda=0.95, value_network=critic)
    optimiser = torch.optim.Adam(loss.parameters(), lr=LEARNING_RATE)
    means = []
    frames = {"frames_per_batch": rollout, "total_frames": max(rollout, steps)}
    collector = Collector(env, actor, auto_register_policy_transforms=False, **frames)
    for batch in collector:
        episodes = batch["next", "done"].sum().item()
        means.append(batch["next", "reward"].sum().item() / max(episodes, 1))
        batch["next", "reward"] /= REWARD_UNIT
        for _ in range(EPOCHS):
            with torch.no_grad():
                advantage(batch)
            for rows in torch.randperm(len(batch)).chunk(MINIBATCHES):
                losses = loss(batch[rows])
                total = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
                optimiser.zero_grad()
                total.backward()
                nn.utils.clip_grad_norm_(loss.parameters(), 0.5)
                optimiser.step()
        print(f"mean return of {episodes} episodes: {means[-1]:.2f}")
    collector.shutdown()
    return means


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
