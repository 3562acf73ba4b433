"""`kibitz teach dpo`: preference training on pairs of answers (direct preference optimisation, Rafailov et al. 2023).

TRL's DPOTrainer reads the same rows and computes the same loss, which a test compares. It also computes the logits of
every token of both prompts; here most tokens belong to prompts, so we use our own loop, as for `kibitz teach sft`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from kibitz.teach import job
from kibitz.teach.batches import Encoder, RowOptions, RowStream, TokenBatch, read_pair
from kibitz.teach.job import ModelLearner


class DpoOptions(RowOptions):
    lr: float = Field(1e-4, gt=0)
    beta: float = Field(0.1, gt=0)  # the smaller, the further the model may move away from its base


class PairEncoder(Encoder):
    """For rows with a chosen and a rejected answer."""

    def answers(self, line: bytes) -> tuple[list[Mapping[str, str]], tuple[str, ...]]:
        return read_pair(line)


class Preference(RowStream):
    """Gradients of the preference loss against the model as it was before the training."""

    name, metric_steps = "dpo", 20

    def __init__(self, options: DpoOptions, learner: ModelLearner) -> None:
        super().__init__(options, PairEncoder.of(options.base, options.max_tokens))
        self.beta, self.learner = options.beta, learner
        self.before = learner.copy()

    def gradients(self, batch: TokenBatch) -> dict[str, Any]:
        """`accuracy`: the share of pairs in which training raised the chosen answer above the rejected one."""
        torch, learner = self.learner.torch, self.learner
        tokens, taught = (torch.from_numpy(x).to(learner.device, non_blocking=True) for x in batch)
        start = int(batch.taught.argmax(1).min())
        with learner.wearing(self.before):
            reference = self._likelihoods(tokens, taught, start)
        gained = self._likelihoods(tokens, taught, start) - reference
        chosen, rejected = gained.chunk(2)
        margins = self.beta * (chosen - rejected)
        loss = -torch.nn.functional.logsigmoid(margins).mean()
        loss.backward()
        margins = margins.detach()
        accuracy = (margins > 0).float().mean()
        return {"loss": loss.detach(), "accuracy": accuracy, "reward_margin": margins.mean(), "rows": len(tokens) // 2}

    def _likelihoods(self, tokens: Any, taught: Any, start: int) -> Any:
        """f32[answers]: the log-probability of each whole answer."""
        torch = self.learner.torch
        asked = taught[:, start:]
        shown, wanted = self.learner.logits(tokens, start)[asked].float(), tokens[:, start:][asked]
        each = torch.zeros(asked.shape, device=tokens.device)
        each[asked] = -torch.nn.functional.cross_entropy(shown, wanted, reduction="none")
        return each.sum(1)


def train(options: DpoOptions, out: Path, *more: Any, **named: Any) -> dict[str, Any]:
    """As `job.train`."""
    options.files()
    return job.train(options, out, lambda learner: Preference(options, learner), *more, **named)
