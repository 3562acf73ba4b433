"""`kibitz teach grpo`: reinforcement learning with the episode's return as the reward.

Group relative policy optimisation (Shao et al. 2024): each deal is played by a whole group of episodes with the same
luck, and an episode's advantage is its return against its group's, in standard deviations. One gradient step follows
each batch of episodes, so the policy that learns is the one that played: no ratio, no clipping, no value network.

TRL's GRPOTrainer also plays environments (`examples/trl_grpo.py`), but generates one conversation per episode, token
by token and free to be illegal. Here a turn is a short question of its own, all games take their turns together, and
the model chooses among legal acts only, which needs a rollout of our own (`play`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from kibitz.advice.ask import Position
from kibitz.core.bots import Bot
from kibitz.core.game import Game
from kibitz.core.options import PlayerSpec
from kibitz.core.play.resolve import bot_for
from kibitz.llm.answers.prompt import Prompt
from kibitz.llm.providers.batched import among
from kibitz.teach import job
from kibitz.teach.batches import Encoder
from kibitz.teach.examples.rows import RowWriter
from kibitz.teach.job import JobOptions, ModelLearner
from kibitz.teach.play.lockstep import Lockstep, PlayedBatch
from kibitz.teach.play.sampler import Answered, Sampler

SELF = "self"  # as an opponent: a frozen copy of the model


class GrpoOptions(JobOptions):
    game: str
    options: dict[str, Any] = Field(default_factory=dict)  # of the game, for job.json
    opponent: PlayerSpec = ""  # a bot, policy:RUN, several by weight, or `self`; default: the game's default player
    lr: float = Field(1e-4, gt=0)
    steps: int = Field(200, ge=1)
    groups: int = Field(16, ge=1)  # deals per step
    group_size: int = Field(8, ge=2)  # episodes per deal
    batch: int = Field(64, ge=1)  # positions per forward pass
    checkpoint_steps: int = Field(20, ge=1)
    prompt: str = ""  # the template's text, if it is not the game's own


class Reinforcement:
    """Plays episodes, then moves the model towards the acts that earned more than their group."""

    name, metric_steps = "grpo", 1

    def __init__(
        self, options: GrpoOptions, game: Game, rules: Any, opponent: Bot | None, learner: ModelLearner
    ) -> None:
        learner.model.eval()  # no dropout: the model that learns is the model that plays
        self.options, self.game, self.learner, self.steps = options, game, learner, options.steps
        writer = RowWriter(game, Prompt(options.prompt) if options.prompt else None)
        encoder = Encoder.of(options.base, 1 << 30)
        self.sampler = Sampler(game, writer, encoder, learner.model, learner.torch, options.batch)
        self.table = Lockstep(game, rules, opponent)
        self.frozen = None if opponent else learner.copy()

    def batches(self, first: int) -> Iterator[int]:
        return iter(range(first, self.steps))

    def rate(self, step: int) -> float:
        return self.options.lr

    def state(self) -> dict[str, Any]:
        return {} if self.frozen is None else {"frozen": self.frozen}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.frozen = state.get("frozen", self.frozen)

    def gradients(self, step: int) -> dict[str, Any]:
        """`return` and the game's measures are seat 0's, of sampled acts; `decided`: the probability of its acts."""
        if self.frozen is not None and step % self.options.checkpoint_steps == 0:
            self.frozen = self.learner.copy()
        played, answered = self.play(step)
        groups = played.returns[:, 0].reshape(self.options.groups, -1)
        spread = groups.std(1, keepdims=True)
        worth = ((groups - groups.mean(1, keepdims=True)) / (spread + 1e-4)).ravel()
        taken = [
            (answer, float(worth[decision.episode]))
            for decision, answer in zip(played.decisions, answered, strict=True)
            if answer.branches
        ]
        loss, likely = self._learn([one for one in taken if one[1]], max(len(taken), 1))
        numbers = {"return": played.returns[:, 0].mean(), "loss": loss, "decided": likely} | _measured(played)
        return numbers | {"same_return": float((spread == 0).mean()), "rows": len(played.decisions)}

    def play(self, step: int) -> tuple[PlayedBatch, list[Answered]]:
        """The episodes of one step, and the answers behind seat 0's decisions."""
        options, answered = self.options, list[Answered]()
        chance = np.random.default_rng([options.seed, step])
        numbers = np.repeat(np.arange(options.groups) + step * options.groups, options.group_size)

        def choose(positions: Sequence[Position]) -> list[tuple[int, ...]]:
            found = self.sampler.answer(positions, chance)
            answered.extend(found)
            return [one.act for one in found]

        def frozen(positions: Sequence[Position]) -> list[tuple[int, ...]]:
            assert self.frozen is not None
            with self.learner.wearing(self.frozen):
                return [one.act for one in self.sampler.answer(positions, chance)]

        return self.table.play(options.seed, numbers.tolist(), choose, frozen), answered

    def _learn(self, taken: list[tuple[Answered, float]], count: int) -> tuple[float, float]:
        """Adds the gradients of all decisions, a batch of similar length at a time; the loss and mean probability."""
        torch, device, size = self.learner.torch, self.learner.device, self.options.batch
        taken = sorted(taken, key=lambda one: len(one[0].tokens))
        total, likely = 0.0, 0.0
        for first in range(0, len(taken), size):
            part = taken[first : first + size]
            width = max(len(answer.tokens) for answer, _ in part)
            tokens = torch.tensor([[*a.tokens, *[self.sampler.encoder.end] * (width - len(a.tokens))] for a, _ in part])
            start = min(answer.branches[0].at for answer, _ in part)
            logits = self.learner.logits(tokens.to(device), start)
            places = [(row, branch) for row, (answer, _) in enumerate(part) for branch in answer.branches]
            rows = torch.tensor([row for row, _ in places], device=device)
            at = torch.tensor([branch.at - start for _, branch in places], device=device)
            logs = among(torch, logits[rows, at].float(), [branch.legal for _, branch in places])
            own = logs.gather(1, torch.tensor([[branch.chosen] for _, branch in places], device=device))[:, 0]
            each = torch.zeros(len(part), device=device).index_add(0, rows, own)
            loss = -(each * torch.tensor([worth for _, worth in part], device=device)).sum() / count
            loss.backward()
            total, likely = total + float(loss.detach()), likely + float(each.detach().exp().sum())
        return total, likely / max(len(taken), 1)


def _measured(played: PlayedBatch) -> dict[str, float]:
    """The game's measures, as `kibitz evaluate` names them; NaN where no episode has one."""
    mean = {
        name: float(x[np.isfinite(x)].mean()) if np.isfinite(x).any() else np.nan for name, x in played.measures.items()
    }
    ceiling, _ = mean.pop("ceiling", None), mean.pop("payoff", None)
    if ceiling is None:
        return mean
    return {"share_of_ceiling": float(played.returns[:, 0].mean()) / ceiling if ceiling else np.nan} | mean


def train(options: GrpoOptions, game: Game, rules: Any, out: Path, *more: Any, **named: Any) -> dict[str, Any]:
    """As `job.train`; `rules` are the game's options."""
    spec = options.opponent or game.default_players[1]
    opponent = None if spec == SELF else bot_for(game, spec)

    def method(learner: ModelLearner) -> Reinforcement:
        return Reinforcement(options, game, rules, opponent, learner)

    return job.train(options, out, method, *more, **named)
