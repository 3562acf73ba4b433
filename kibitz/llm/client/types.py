"""What goes in and out of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from kibitz.llm.answers.answer import Answer
from kibitz.llm.client.failure import Failure

Messages: TypeAlias = Sequence[Mapping[str, str]]  # role and content, as every chat interface has them


class Question(NamedTuple):
    messages: Messages
    answer: Answer


class Token(NamedTuple):
    """One written token and what else the model might have written there."""

    text: str
    others: Mapping[str, float]  # log-probabilities by text, the written one among them


@dataclass(frozen=True)
class Usage:
    """Money is in the currency of the preset's price, dollars by custom."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    money: float = 0.0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class Completion:
    """What a provider hands to the client, before anybody has judged it."""

    text: str
    prompt_tokens: int | None = None  # None: the provider did not say
    completion_tokens: int | None = None
    cut: bool = False  # the model ran into its token limit
    tokens: Sequence[Token] = ()
    start: int = 0  # characters of the text that were given to the model and not written by it


@dataclass(frozen=True)
class Reply:
    """The end of a question. `fields` is None exactly when there is a `failure`."""

    text: str  # cleaned: safe to store and to print
    fields: Mapping[str, Any] | None
    usage: Usage = Usage()
    latency: float = 0.0  # seconds from the first request to the end, waiting for a free line not counted
    attempts: int = 0  # requests sent
    source: str = "none"  # model, cache, shared (an equal question's call), none
    failure: Failure | None = None
    likelihood: Mapping[str, float] = field(default_factory=dict)  # of each field's value among the open ones

    @property
    def ok(self) -> bool:
        return self.failure is None


class Provider(Protocol):
    """One way to reach a model. `ask` raises Trouble; everything else is the client's business."""

    name: str  # what is told to people; never a key
    at_once: int | None  # the most requests under way together; None: as many as the client likes
    measures: bool  # answers come with log-probabilities, so a confidence need not be asked for

    def request(self, messages: Messages, answer: Answer) -> Mapping[str, Any]:
        """All that decides the reply, as JSON: the cache's key is made from it. Holds no key."""
        ...

    async def ask(self, request: Mapping[str, Any], answer: Answer, seconds: float) -> Completion:
        """One attempt with what `request` gave; it ends within so many seconds."""
        ...

    async def close(self) -> None: ...
