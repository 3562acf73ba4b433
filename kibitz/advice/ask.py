"""Asks a language model for acts: positions go out in words, legal acts come back, or the reason why not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from kibitz.core.act import Masks
from kibitz.core.game import Game, first_view
from kibitz.core.words import act_of_fields, idle_fields, question_variables
from kibitz.llm.answers.answer import CONFIDENCE, Answer
from kibitz.llm.answers.prompt import NO_SYSTEM_TEXT, Prompt
from kibitz.llm.client.blocking import BlockingClient
from kibitz.llm.client.client import Client, connect
from kibitz.llm.client.types import Messages, Question, Reply
from kibitz.llm.client.usage import UsageLedger
from kibitz.llm.presets import Preset, get_preset

History = list[Mapping[str, Any]]  # {"seat", "act"} of every act so far, oldest first


class Position(NamedTuple):
    """What a seat knows at its turn."""

    settings: Any
    view: Any
    masks: Masks  # NumPy arrays
    history: History
    ledger: UsageLedger | None = None  # records the question; None: the asker's own


class Advice(NamedTuple):
    """How a question ended; there is no act exactly when the reply failed."""

    act: tuple[int, ...] | None
    confidence: float
    reply: Reply


def prompt_path(game: Game, preset: Preset) -> str | Path:
    """The game's template for this model."""
    return game.words.taught_prompt if preset.taught else game.words.prompt


class Asker:
    """One preset, one prompt, one client. Raises BadInput if the preset cannot be used."""

    def __init__(
        self,
        preset: Preset | str,
        prompt: Prompt,
        *,
        calibration: Sequence[float] | None = None,  # of a taught model's confidence
        ledger: UsageLedger | None = None,
        connect: Callable[..., Client] = connect,  # a preset and keywords -> a client
        **limits: Any,
    ) -> None:
        """The limits are the cache, the budget and the failure policy of `connect`."""
        self.prompt, self.calibration = prompt, calibration
        self.ledger = UsageLedger() if ledger is None else ledger
        self.client = BlockingClient(
            lambda: connect(
                preset, prompt_version=prompt.version, calibration=calibration, ledger=self.ledger, **limits
            )
        )

    def close(self) -> None:
        self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PositionAsker(Asker):
    """Asks about positions of one game. Raises BadInput if the preset or the prompt cannot be used."""

    def __init__(
        self,
        game: Game,
        preset: Preset | str,
        *,
        settings: Any = None,  # the questions' settings, which decide whether a taught model can answer
        prompt: Prompt | None = None,
        **limits: Any,
    ) -> None:
        """The limits are those of `Asker`."""
        if isinstance(preset, str):
            preset = get_preset(preset, game=game.name, settings=settings)
        self.game, self.preset = game, preset
        prompt = prompt or Prompt.read(prompt_path(game, preset))
        example = game.default_options.settings()
        prompt.check(question_variables(game.words, prompt.names, example, *first_view(game, example), []))
        known = preset.games.get(game.name)
        super().__init__(preset, prompt, calibration=None if known is None else known.calibration, **limits)

    def question(self, position: Position) -> Question:
        return self._question(position, self.game.words.answer_fields(position.view, position.masks))

    def ask(
        self,
        positions: Iterable[Position],
        within: float | None = None,
        arrived: dict[int, Advice] | None = None,  # by the position's place; after Ctrl-C it has what was answered
        waiting: Callable[[int], None] | None = None,  # called several times a second with the number of answers so far
    ) -> list[Advice]:
        """Asks concurrently; advice comes in order. The client sends the first questions while others are written."""
        asked: list[tuple[Position, Mapping[str, Any]]] = []
        answered: dict[int, Reply] = {}

        def questions() -> Iterator[Question]:
            for position in positions:
                declared = self.game.words.answer_fields(position.view, position.masks)
                asked.append((position, declared))
                yield self._question(position, declared)

        try:
            replies = self.client.ask_many(questions(), within, answered, waiting)
        except KeyboardInterrupt:
            if arrived is not None:
                arrived |= {i: self._advice(*asked[i], reply) for i, reply in dict(answered).items()}
            raise
        return [self._advice(*pair, reply) for pair, reply in zip(asked, replies, strict=True)]

    def share(self, advice: Advice, ledger: UsageLedger | None = None) -> None:
        """Records another question that the caller knows to be identical to one just answered."""
        self.client.client.share(advice.reply, ledger)

    def record_hits(self, count: int, ledger: UsageLedger | None = None) -> None:
        """Records questions that the caller answered from its own memory."""
        self.client.client.record_hits(count, ledger)

    def key(self, position: Position) -> str:
        """The cache key of a question: model, sampling, template, words."""
        return self.client.client.key(self.question(position))

    def messages(self, position: Position) -> Messages:
        """What the model reads about a position."""
        return self.client.client.messages(self.question(position))

    def _question(self, position: Position, declared: Mapping[str, Any]) -> Question:
        variables = question_variables(self.game.words, self.prompt.names, *position[:4])
        idle = idle_fields(self.game.heads, self.game.matters, declared, position.masks)
        asked = self.prompt.messages(variables)
        messages = [NO_SYSTEM_TEXT, *asked] if self.preset.taught else asked
        return Question(messages, Answer.of(declared, idle), position.ledger)

    def _advice(self, position: Position, declared: Mapping[str, Any], reply: Reply) -> Advice:
        if reply.fields is None:
            return Advice(None, 0.0, reply)
        act = act_of_fields(self.game.heads, declared, position.masks, reply.fields)
        return Advice(act, float(reply.fields.get(CONFIDENCE, 1.0)), reply)
