"""Asks a language model about whole episodes: did the player show a style, yes or no?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from kibitz.advice.ask import Asker, History
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.llm.answers.answer import Answer
from kibitz.llm.answers.prompt import NO_SYSTEM_TEXT, Prompt
from kibitz.llm.client.types import Question, Reply
from kibitz.llm.client.usage import UsageLedger
from kibitz.llm.presets import Preset, get_preset, why_not

PROMPT = "configs/llm_judge_prompt.txt"
TAUGHT_PROMPT = "configs/llm_judge_prompt_taught.txt"  # half the tokens, and so half the time
YES, NO = "yes", "no"
ANSWER = Answer.of({"answer": [YES, NO]})


class Finished(NamedTuple):
    """An episode that has ended."""

    settings: Any
    state: Any  # the final one
    history: History
    seat: int = 0  # whose play is judged


class Judgement(NamedTuple):
    yes: bool | None  # None exactly when the reply failed
    reply: Reply


def judge_prompt(path: str | Path = PROMPT, taught: bool = False) -> Prompt:
    """The template; a taught judge reads the short one in place of the default."""
    prompt = Prompt.read(TAUGHT_PROMPT if taught and str(path) == PROMPT else path)
    prompt.check({"title": "", "style": "", "question": "", "transcript": ""})
    return prompt


def judge_messages(game: Game, prompt: Prompt, style: str, episode: Finished, taught: bool) -> list[dict[str, str]]:
    """The question about one episode."""
    asked = prompt.messages(
        {
            "title": game.title,
            "style": style.replace("_", "-"),
            "question": game.styles.questions[style],
            "transcript": game.styles.transcript(*episode),
        }
    )
    return [NO_SYSTEM_TEXT, *asked] if taught else asked


class EpisodeJudge(Asker):
    """Judges one style of one game."""

    def __init__(
        self, game: Game, style: str, preset: Preset | str, *, prompt: Prompt | None = None, **limits: Any
    ) -> None:
        """The limits are those of `Asker`."""
        preset = get_preset(preset) if isinstance(preset, str) else preset
        self.game, (self.style,), self.taught = game, game.styles.names([style], game.name), preset.taught
        super().__init__(preset, prompt or judge_prompt(taught=preset.taught), **limits)

    def ask(
        self,
        episodes: Iterable[Finished],
        ledgers: Sequence[UsageLedger] | None = None,
        arrived: dict[int, Judgement] | None = None,  # by the episode's place; after Ctrl-C it has what was answered
    ) -> list[Judgement]:
        """Asks concurrently; judgements come in order. Each episode may have a ledger of its own."""
        answered: dict[int, Reply] = {}

        def questions() -> Iterable[Question]:
            for number, episode in enumerate(episodes):
                ledger = None if ledgers is None else ledgers[number]
                messages = judge_messages(self.game, self.prompt, self.style, episode, self.taught)
                yield Question(messages, ANSWER, ledger)

        try:
            return [_judgement(reply) for reply in self.client.ask_many(questions(), arrived=answered)]
        except KeyboardInterrupt:
            if arrived is not None:
                arrived |= {place: _judgement(reply) for place, reply in dict(answered).items()}
            raise


def _judgement(reply: Reply) -> Judgement:
    return Judgement(None if reply.fields is None else reply.fields["answer"] == YES, reply)


class LLMJudge:
    """The judge of a training. Raises BadInput for what cannot be used; connects with the first question."""

    about = "judge"  # prefix of its columns and its key in a run's record

    def __init__(self, game: Game, style: str, preset: Preset, prompt: Prompt, seeds: int = 1, **limits: Any) -> None:
        """The limits are those of `Asker`."""
        self.prompt = prompt
        self.ledger = UsageLedger()
        self.ledgers = [UsageLedger(parent=self.ledger) for _ in range(seeds)]
        self._judge: EpisodeJudge | None = None
        self._make = partial(EpisodeJudge, game, style, preset, prompt=prompt, ledger=self.ledger, **limits)
        if reason := why_not(preset):
            raise BadInput(f"{preset.provider} cannot judge: {reason}")

    def judge(self, episodes: Sequence[Finished], seeds: Sequence[int]) -> list[bool | None]:
        """Whether each episode of a seed shows the style; None where no answer came."""
        if self._judge is None:
            self._judge = self._make()
        return [one.yes for one in self._judge.ask(episodes, [self.ledgers[seed] for seed in seeds])]

    def close(self) -> None:
        if self._judge is not None:
            self._judge.close()
        self._judge = None
