"""A language model that answers many positions at once and can give no illegal answer.

The model is asked only where an answer has several legal continuations, and only about these; a token without an
alternative is certain and costs nothing. So an act's probability is that of its answer among the legal ones, and its
gradient moves probability between legal acts alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from kibitz.advice.ask import Position
from kibitz.core.game import Game
from kibitz.core.words import act_of_fields, idle_fields
from kibitz.llm.answers.answer import CONFIDENCE, Answer
from kibitz.llm.providers.batched import BatchWriter, ChosenToken, Pick, drawn
from kibitz.teach.batches import Encoder
from kibitz.teach.examples.rows import RowWriter
from kibitz.teach.libraries import find_device, load_model, require

Act: TypeAlias = tuple[int, ...]


class Answered(NamedTuple):
    act: Act
    tokens: list[int]  # question and answer up to the last choice
    branches: list[ChosenToken]


class Sampler:
    """One game, one template, one model."""

    def __init__(self, game: Game, writer: RowWriter, encoder: Encoder, model: Any, torch: Any, batch: int) -> None:
        self.game, self.rows, self.encoder, self.torch, self.batch = game, writer, encoder, torch, batch
        self.writer = BatchWriter(model, encoder.tokenizer, torch)

    @classmethod
    def of(cls, game: Game, base: str, writer: RowWriter, batch: int = 64) -> Sampler:
        """A model as it is, on the best device."""
        (torch,) = require("torch")
        device = find_device("auto")
        dtype = torch.float32 if device == "cpu" else torch.bfloat16
        model = load_model(base, dtype).to(device).eval()
        return cls(game, writer, Encoder.of(base, 1 << 30), model, torch, batch)

    def answer(self, positions: Sequence[Position], chance: np.random.Generator | None) -> list[Answered]:
        """Draws answers; without chance, takes the most likely token at each branch."""

        def pick(logps: Any) -> int:
            return int(logps.argmax()) if chance is None else drawn(logps, chance.random())

        found: list[Answered] = []
        with self.torch.inference_mode():
            for first in range(0, len(positions), self.batch):
                found += self._answer(positions[first : first + self.batch], pick)
        return found

    def _answer(self, positions: Sequence[Position], pick: Pick) -> list[Answered]:
        prompts = self.encoder.prompts([self.rows.messages(position) for position in positions])
        declared = [self.game.words.answer_fields(position.view, position.masks) for position in positions]
        answers = [
            Answer.of(fields, idle_fields(self.game.heads, self.game.matters, fields, position.masks)).without(
                CONFIDENCE
            )
            for fields, position in zip(declared, positions, strict=True)
        ]
        written = self.writer.write(prompts, answers, pick)
        assert written is not None, "nothing stops it"
        return [
            Answered(
                act_of_fields(self.game.heads, fields, position.masks, json.loads(one.text)), one.tokens, one.chosen
            )
            for one, fields, position in zip(written, declared, positions, strict=True)
        ]
