"""What goes into a model and what comes out of it, failures included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:  # `answers` raises ProviderError
    from kibitz.llm.answers.answer import Answer
    from kibitz.llm.client.usage import UsageLedger

Messages: TypeAlias = Sequence[Mapping[str, str]]  # role and content, the format of every chat API
MAX_SHOWN_CHARS = 2_000


class Question(NamedTuple):
    messages: Messages
    answer: Answer
    ledger: UsageLedger | None = None  # records this question; None: the client's own ledger


class FailureKind(StrEnum):
    """The counter that a failure increments."""

    TRANSPORT = "transport"  # no reply: connection, timeout, rate limit, 5xx, a body that is not a chat completion
    REFUSED = "refused"  # rejected by the server or the model: bad key, unknown model, content filter
    EMPTY = "empty"  # a reply without text
    NOT_JSON = "not_json"  # no complete JSON object in the text
    WRONG_SHAPE = "wrong_shape"  # an object with unexpected keys or types
    ILLEGAL = "illegal"  # the right shape, but a value that is not legal in this position
    BREAKER = "breaker"  # not sent: the provider failed too often just before
    BUDGET = "budget"  # not sent: the budget is exhausted


@dataclass(frozen=True)
class Failure:
    """Failures are data: callers count them and continue without the answer."""

    kind: FailureKind
    reason: str  # for people
    detail: str = ""  # finer than the kind: deadline, rate_limit, http_500

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"


class ProviderError(Exception):
    """One attempt failed. Raised only inside `kibitz.llm`; the client converts it into a `Reply` with a `Failure`."""

    def __init__(
        self,
        kind: FailureKind,
        reason: str,
        detail: str = "",
        *,
        retry: bool = False,  # the same request may succeed a moment later
        after: float | None = None,  # seconds that the server asked us to wait
        provider_fault: bool = False,  # the provider failed, not the answer: counts towards the breaker
        permanent: bool = False,  # later requests will fail too: opens the breaker at once
    ) -> None:
        super().__init__(reason)
        self.failure = Failure(kind, reason, detail or str(kind))
        self.retry, self.after, self.provider_fault, self.permanent = retry, after, provider_fault, permanent
        self.tokens = (0, 0)  # of prompt and completion, where the provider reports them with the error


def transport_error(reason: str, detail: str, *, retry: bool = False, after: float | None = None) -> ProviderError:
    """The provider sent no usable reply."""
    return ProviderError(FailureKind.TRANSPORT, reason, detail, retry=retry, after=after, provider_fault=True)


@dataclass(frozen=True)
class Usage:
    """Money is in the currency of the preset's price, by convention US dollars."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    money: float = 0.0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.money + other.money,
        )


class Token(NamedTuple):
    """A generated token and its alternatives."""

    text: str
    alternatives: Mapping[str, float]  # log-probabilities by text, the generated token included
    start: int | None = None  # its place in the completion's text; None: it follows the token before it


@dataclass(frozen=True)
class Completion:
    """A provider's raw output, not yet checked."""

    text: str
    prompt_tokens: int | None = None  # None: not reported
    completion_tokens: int | None = None
    truncated: bool = False  # the model reached its token limit
    tokens: Sequence[Token] = ()
    refusal: str = ""  # why the model declined to answer; empty if it did not


@dataclass(frozen=True)
class Reply:
    """The outcome of a question. `fields` is None exactly when there is a `failure`."""

    text: str  # cleaned: safe to store and to print
    fields: Mapping[str, Any] | None
    usage: Usage = Usage()  # of all attempts, failed ones included
    latency: float = 0.0  # seconds from the first request to the end, without the wait for a free slot
    attempts: int = 0  # requests sent
    source: str = "none"  # model, cache, shared (an identical question's call), none
    failure: Failure | None = None
    likelihood: Mapping[str, float] = field(default_factory=dict)  # of each field's value among the legal ones

    @property
    def ok(self) -> bool:
        return self.failure is None


class Provider(Protocol):
    """One way to reach a model. `ask` raises ProviderError; the client handles everything else."""

    name: str  # shown to users; contains no key
    max_concurrent: int | None  # the most concurrent requests; None: no limit of its own
    has_logprobs: bool  # replies carry log-probabilities, so the model need not state a confidence

    def request(self, messages: Messages, answer: Answer) -> Mapping[str, Any]:
        """Everything that determines the reply, as JSON; the cache key is made from it. Contains no key."""
        ...

    async def ask(self, request: Mapping[str, Any], answer: Answer, seconds: float) -> Completion:
        """Make one attempt with the output of `request`, within `seconds`."""
        ...

    async def close(self) -> None: ...


def clean(text: str, limit: int = MAX_SHOWN_CHARS) -> str:
    """Make foreign text safe to store and print: no control characters, no lone surrogates, at most `limit` long."""
    cut = text[: limit + 1]
    if len(cut) <= limit and cut.isprintable():
        return cut
    safe = "".join(c if c.isprintable() else " " for c in cut).encode("utf-8", "replace").decode("utf-8")
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"
