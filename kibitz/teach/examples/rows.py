"""Examples as rows of text: the chat format of TRL, Axolotl and others, one JSON object per line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kibitz.advice.ask import Position
from kibitz.core.act import Masks
from kibitz.core.game import Game
from kibitz.core.words import CONFIDENCE, fields_of_act, is_choice, question_variables
from kibitz.llm.answers.answer import Answer
from kibitz.llm.answers.prompt import NO_SYSTEM_TEXT, Prompt


class RowWriter:
    """One game and one template."""

    def __init__(self, game: Game, prompt: Prompt | None = None) -> None:
        self.game, self.prompt = game, prompt or Prompt.read(game.words.taught_prompt)

    def messages(self, position: Position) -> list[dict[str, str]]:
        asked = self.prompt.messages(question_variables(self.game.words, self.prompt.names, *position[:4]))
        return [NO_SYSTEM_TEXT, *asked]

    def answer(self, position: Position, act: tuple[int, ...], confidence: float = 1.0) -> dict[str, str]:
        """The answer that a model should give, in the game's own contract.

        Heads that do not matter have their first legal value, so that an act has one answer.
        """
        declared = self.game.words.answer_fields(position.view, position.masks)
        fields = fields_of_act(self.game.heads, declared, position.masks, self._plain(position.masks, act))
        rest = {
            name: confidence if name == CONFIDENCE else "" for name, v in declared.items() if not is_choice(name, v)
        }
        return {"role": "assistant", "content": Answer.of(declared).write({**fields, **rest})}

    def taught(self, position: Position, act: tuple[int, ...]) -> Mapping[str, Any]:
        """For supervised training."""
        return {"messages": [*self.messages(position), self.answer(position, act)]}

    def preferred(self, position: Position, act: tuple[int, ...], worse: tuple[int, ...]) -> Mapping[str, Any]:
        """For preference training."""
        prompt = self.messages(position)
        return {"prompt": prompt, "chosen": [self.answer(position, act)], "rejected": [self.answer(position, worse)]}

    def _plain(self, masks: Masks, act: tuple[int, ...]) -> tuple[int, ...]:
        counts = self.game.matters[act[0]]
        return tuple(
            value if matters else int(np.argmax(mask)) for value, mask, matters in zip(act, masks, counts, strict=True)
        )
