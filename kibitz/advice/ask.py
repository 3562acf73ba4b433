"""A language model asked for acts: a position in words goes out, a legal act comes back or the reason why not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from kibitz.core.act import Masks
from kibitz.core.game import Game, first_view
from kibitz.core.words import act_of_fields, question_variables
from kibitz.llm.answers.answer import CONFIDENCE, Answer
from kibitz.llm.answers.prompt import Prompt
from kibitz.llm.client.blocking import BlockingClient
from kibitz.llm.client.client import Client, connect
from kibitz.llm.client.limits import Budget, FailurePolicy
from kibitz.llm.client.types import Question, Reply
from kibitz.llm.presets import Preset

History = list[Mapping[str, Any]]  # {"seat", "act"} of everything said so far, oldest first


class Position(NamedTuple):
    """What a seat is told when it is asked."""

    settings: Any
    view: Any
    masks: Masks  # NumPy arrays
    history: History


class Advice(NamedTuple):
    """The end of a question; no act exactly when the reply failed."""

    act: tuple[int, ...] | None
    confidence: float
    reply: Reply


class Asker:
    """One game, one preset, one prompt. BadInput at once if the preset or the prompt cannot be used."""

    def __init__(
        self,
        game: Game,
        preset: Preset | str,
        *,
        prompt: Prompt | None = None,
        cache: str | Path | None = None,
        budget: Budget | None = None,
        policy: FailurePolicy | None = None,
        connect: Callable[..., Client] = connect,  # a preset and keywords -> a client
    ) -> None:
        self.game, self.prompt = game, prompt or Prompt.read(game.words.prompt)
        settings = game.default_options.settings()
        self.prompt.check(question_variables(game.words, self.prompt.names, settings, *first_view(game, settings), []))
        version = self.prompt.version
        self.line = BlockingClient(
            lambda: connect(preset, cache=cache, budget=budget, policy=policy, prompt_version=version)
        )

    def question(self, position: Position) -> Question:
        return self._question(position, self.game.words.answer_fields(position.view, position.masks))

    def ask(self, positions: Iterable[Position], within: float | None = None) -> list[Advice]:
        """All at once, equal questions as one; advice in order. The first are on their way while others are written."""
        asked: list[tuple[Position, Mapping[str, Any]]] = []

        def questions() -> Iterator[Question]:
            for position in positions:
                declared = self.game.words.answer_fields(position.view, position.masks)
                asked.append((position, declared))
                yield self._question(position, declared)

        replies = self.line.ask_many(questions(), within)
        return [self._advice(*pair, reply) for pair, reply in zip(asked, replies, strict=True)]

    def _question(self, position: Position, declared: Mapping[str, Any]) -> Question:
        variables = question_variables(self.game.words, self.prompt.names, *position)
        return Question(self.prompt.messages(variables), Answer.of(declared))

    def _advice(self, position: Position, declared: Mapping[str, Any], reply: Reply) -> Advice:
        if reply.fields is None:
            return Advice(None, 0.0, reply)
        act = act_of_fields(self.game.heads, declared, position.masks, reply.fields)
        return Advice(act, float(reply.fields.get(CONFIDENCE, 1.0)), reply)

    def again(self, advice: Advice) -> Advice:
        """For a position that is known to be equal to one just asked: entered into the book, nothing is asked."""
        return advice._replace(reply=self.line.client.share(advice.reply))

    def remembered(self, count: int) -> None:
        """So many more questions were answered from what is known: entered into the book."""
        self.line.client.record_hits(count)

    @property
    def book(self) -> dict[str, Any]:
        """What was asked so far, by outcome, and what it cost."""
        return self.line.client.ledger.as_dict()

    def close(self) -> None:
        self.line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
