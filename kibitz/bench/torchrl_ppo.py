"""TorchRL's collector, advantages and PPO loss on our vector environment: a peer with our rules and another library."""

from __future__ import annotations

import itertools
import statistics
import time
from importlib import import_module
from typing import Any

from kibitz.bench.torch_ppo import CLIP, ENTROPY, GAMMA, HIDDEN, LAMBDA, LEARNING_RATE
from kibitz.core.envs.gym_vector import GameVectorEnv


def steps_per_second(sizes: dict[str, int], seconds: float) -> float | None:
    """Rollout and update together on a CPU; None where TorchRL is not installed."""
    try:
        torch, tensordict, torchrl = _library("torch"), _library("tensordict.nn"), _library("torchrl.modules")
        collectors, objectives = _library("torchrl.collectors"), _library("torchrl.objectives")
    except ImportError:
        return None
    torch.manual_seed(0)
    nn, env = torch.nn, _environment(sizes["num_envs"])
    heads = list(env.games.game.sizes)
    features = env.observation_spec["observation"].shape[-1]
    body = nn.Sequential(nn.Linear(features, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh())
    chooser = torchrl.ProbabilisticActor(
        tensordict.TensorDictModule(nn.Linear(HIDDEN, sum(heads)), ["hidden"], ["logits"]),
        in_keys={"logits": "logits", "mask": "action_mask"},
        distribution_class=_distribution(heads),
        default_interaction_type=tensordict.InteractionType.RANDOM,
        return_log_prob=True,
    )
    network = torchrl.ActorValueOperator(
        tensordict.TensorDictModule(body, ["observation"], ["hidden"]),
        chooser,
        torchrl.ValueOperator(nn.Linear(HIDDEN, 1), in_keys=["hidden"]),
    )
    policy, critic = network.get_policy_operator(), network.get_value_operator()
    loss = objectives.ClipPPOLoss(policy, critic, clip_epsilon=CLIP, entropy_coeff=ENTROPY, normalize_advantage=True)
    advantages = objectives.value.GAE(gamma=GAMMA, lmbda=LAMBDA, value_network=critic)
    optimiser = torch.optim.Adam(loss.parameters(), lr=LEARNING_RATE, eps=1e-5)
    batch_size = sizes["num_envs"] * sizes["rollout"]
    collector = collectors.Collector(
        env, policy, frames_per_batch=batch_size, total_frames=-1, auto_register_policy_transforms=False
    )
    batches, rates = iter(collector), []
    until = float("inf")
    for count in itertools.count():
        began = time.perf_counter()
        batch = next(batches)
        with torch.no_grad():
            advantages(batch)
        samples = batch.reshape(-1)
        for _ in range(sizes["epochs"]):
            for rows in torch.randperm(batch_size).split(sizes["minibatch"]):
                losses = loss(samples[rows])
                optimiser.zero_grad()
                (losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]).backward()
                nn.utils.clip_grad_norm_(loss.parameters(), 0.5)
                optimiser.step()
        if count:  # the first one also warms up
            rates.append(batch_size / (time.perf_counter() - began))
        else:
            until = time.perf_counter() + seconds
        if len(rates) >= 3 and time.perf_counter() >= until:
            break
    collector.shutdown()
    return statistics.median(rates)


def _library(name: str) -> Any:
    """Without its types, which not every machine has."""
    return import_module(name)


def _environment(count: int) -> Any:
    torch, data = _library("torch"), _library("torchrl.data")
    new = _library("tensordict").TensorDict

    class Games(_library("torchrl.envs").EnvBase):  # type: ignore[misc]
        """A game that ends deals again in the same step, so a reset of some games only repeats what they show."""

        def __init__(self) -> None:
            super().__init__(batch_size=[count])
            self.games = games = GameVectorEnv(count, "deal_or_no_deal", autoreset_mode="SameStep", arrays="torch")
            features, heads = games.single_observation_space.shape[0], games.game.sizes  # type: ignore[index]
            mask = data.Binary(sum(heads), shape=(count, sum(heads)), dtype=torch.bool)
            shown = {"observation": data.Unbounded((count, features)), "action_mask": mask}
            self.observation_spec = data.Composite(shown, shape=(count,))
            self.action_spec = data.MultiCategorical(list(heads), shape=(count, len(heads)))
            self.reward_spec = data.Unbounded((count, 1))
            self.shown: Any = None

        def _show(self, observations: Any) -> dict[str, Any]:
            self.shown = {"observation": observations, "action_mask": self.games.action_masks()}
            return self.shown  # type: ignore[no-any-return]

        def _reset(self, tensordict: Any, **more: Any) -> Any:
            shown = self.shown or self._show(self.games.reset(seed=0)[0])
            return new(shown, [count])

        def _step(self, tensordict: Any) -> Any:
            observations, rewards, over, _, _ = self.games.step(tensordict["action"])
            ended = over.unsqueeze(-1)
            more = {"reward": rewards.unsqueeze(-1), "done": ended, "terminated": ended}
            return new(self._show(observations) | more, [count])

        def _set_seed(self, seed: int | None) -> None:
            pass  # `_reset` fixes it

    return Games()


def _distribution(sizes: list[int]) -> Any:
    """An act's: one masked categorical per head."""
    torch = _library("torch")

    class Heads(_library("torch.distributions").Distribution):  # type: ignore[misc]
        def __init__(self, logits: Any, mask: Any) -> None:
            parts = logits.masked_fill(~mask, -1e8).split(sizes, dim=-1)
            self.heads = [torch.distributions.Categorical(logits=part) for part in parts]
            super().__init__(logits.shape[:-1], (len(sizes),), validate_args=False)

        def sample(self, sample_shape: Any = ()) -> Any:
            return torch.stack([head.sample(sample_shape) for head in self.heads], dim=-1)

        @property
        def deterministic_sample(self) -> Any:
            return torch.stack([head.mode for head in self.heads], dim=-1)

        def log_prob(self, action: Any) -> Any:
            return sum(head.log_prob(part) for head, part in zip(self.heads, action.unbind(-1), strict=True))

        def entropy(self) -> Any:
            return sum(head.entropy() for head in self.heads)

    return Heads
