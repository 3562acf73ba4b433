"""`kibitz teach sft`: supervised training on rows of chat messages.

TRL's SFTTrainer reads the same rows. It computes the logits of every token, though, and here most tokens belong to
the prompt: for a vocabulary of 49,152 and answers of twenty tokens that is more work than the small model itself.
So the loop is our own, and it computes logits for the ends of the rows only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kibitz.teach import job
from kibitz.teach.batches import Encoder, RowOptions, RowStream, TokenBatch
from kibitz.teach.job import ModelLearner


class Supervised(RowStream):
    """Gradients of the cross-entropy of the answers."""

    name, metric_steps = "sft", 20

    def __init__(self, options: RowOptions, learner: ModelLearner) -> None:
        super().__init__(options, Encoder.of(options.base, options.max_tokens))
        self.learner = learner

    def gradients(self, batch: TokenBatch) -> dict[str, Any]:
        """`agreement`: the share of rows whose every answer token is the most likely one."""
        torch, device = self.learner.torch, self.learner.device
        tokens, taught = (torch.from_numpy(x).to(device, non_blocking=True) for x in batch)
        start = int(batch.taught.argmax(1).min())  # the first column with an answer
        asked = taught[:, start:]
        shown = self.learner.logits(tokens, start)[asked].float()
        wanted = tokens[:, start:][asked]
        loss = torch.nn.functional.cross_entropy(shown, wanted)
        loss.backward()
        with torch.no_grad():
            wrong = torch.zeros(asked.shape, dtype=torch.bool, device=device)
            wrong[asked] = shown.argmax(-1) != wanted
            right = 1 - wrong.any(1).float().mean()
        return {"loss": loss.detach(), "agreement": right, "rows": len(tokens)}


def train(options: RowOptions, out: Path, *more: Any, **named: Any) -> dict[str, Any]:
    """As `job.train`."""
    options.files()
    return job.train(options, out, lambda learner: Supervised(options, learner), *more, **named)
