"""Asks a language model about whole episodes: did the player show a style, yes or no?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from kibitz.advice.ask import Asker, History
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.llm.answers.answer import Answer
from kibitz.llm.answers.prompt import Prompt
from kibitz.llm.client.client import Client, connect
from kibitz.llm.client.limits import Budget, FailurePolicy
from kibitz.llm.client.types import Question, Reply
from kibitz.llm.client.usage import UsageLedger
from kibitz.llm.presets import Preset, why_not

PROMPT = "configs/llm_judge_prompt.txt"
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


def judge_prompt(path: str | Path | None = None, max_prompt_chars: int | None = None) -> Prompt:
    prompt = Prompt.read(path or PROMPT, max_prompt_chars=max_prompt_chars)
    prompt.check({"title": "", "style": "", "question": "", "transcript": ""})
    return prompt


def judge_messages(game: Game, prompt: Prompt, style: str, episode: Finished) -> list[dict[str, str]]:
    """The question about one episode."""
    return prompt.messages(
        {
            "title": game.title,
            "style": style.replace("_", "-"),
            "question": game.styles.questions[style],
            "transcript": game.styles.transcript(*episode),
        }
    )


class EpisodeJudge(Asker):
    """Judges one style of one game."""

    def __init__(
        self, game: Game, style: str, preset: Preset | str, *, prompt: Prompt | None = None, **limits: Any
    ) -> None:
        """The limits are those of `Asker`."""
        self.game, (self.style,) = game, game.styles.names([style], game.name)
        super().__init__(preset, prompt or judge_prompt(), **limits)

    def ask(self, episodes: Iterable[Finished], ledgers: Sequence[UsageLedger] | None = None) -> list[Judgement]:
        """Asks concurrently; judgements come in order. Each episode may have a ledger of its own."""

        def questions() -> Iterable[Question]:
            for number, episode in enumerate(episodes):
                ledger = None if ledgers is None else ledgers[number]
                yield Question(judge_messages(self.game, self.prompt, self.style, episode), ANSWER, ledger)

        replies = self.client.ask_many(questions())
        return [Judgement(None if reply.fields is None else reply.fields["answer"] == YES, reply) for reply in replies]


class LLMJudge:
    """The judge of a training. Raises BadInput for what cannot be used; connects with the first question."""

    about = "judge"  # prefix of its columns and its key in a run's record

    def __init__(
        self,
        game: Game,
        style: str,
        preset: Preset,
        prompt: Prompt,
        seeds: int = 1,
        *,
        cache: str | Path | None = None,
        budget: Budget | None = None,
        policy: FailurePolicy | None = None,
        connect: Callable[..., Client] = connect,
    ) -> None:
        self.prompt = prompt
        self.ledger = UsageLedger()
        self.ledgers = [UsageLedger(parent=self.ledger) for _ in range(seeds)]
        self._judge: EpisodeJudge | None = None
        self._make = partial(
            EpisodeJudge,
            game,
            style,
            preset,
            prompt=prompt,
            cache=cache,
            budget=budget,
            policy=policy,
            ledger=self.ledger,
            connect=connect,
        )
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
