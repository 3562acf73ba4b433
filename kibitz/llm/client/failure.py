"""What can go wrong with a question, by kind. A failure is data: it is counted and answered with neutral features."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Which counter a failure goes to."""

    TRANSPORT = "transport"  # no answer came: connection, time-out, rate limit, 5xx, a body that is no chat completion
    REFUSED = "refused"  # the server or the model said no: bad key, unknown model, content filter
    EMPTY = "empty"  # a reply without text
    NOT_JSON = "not_json"  # no whole JSON object in the text
    WRONG_SHAPE = "wrong_shape"  # an object with other keys or types than asked for
    ILLEGAL = "illegal"  # the right shape with a value that is not open now
    BREAKER = "breaker"  # not asked: the provider failed too often a moment ago
    BUDGET = "budget"  # not asked: the budget is used up


@dataclass(frozen=True)
class Failure:
    """`detail` is finer than the kind (deadline, rate_limit, http_500); `reason` is for people."""

    kind: Kind
    reason: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"


class Trouble(Exception):
    """Raised inside `kibitz.llm` only; the client turns it into a `Reply` with a `Failure`."""

    def __init__(
        self,
        kind: Kind,
        reason: str,
        detail: str = "",
        *,
        retry: bool = False,  # the same request may succeed a moment later
        after: float | None = None,  # seconds the server asked us to wait
        dead: bool = False,  # the provider, not the answer, is at fault: counts for the breaker
        hopeless: bool = False,  # no later request will succeed either: opens the breaker at once
    ) -> None:
        super().__init__(reason)
        self.failure = Failure(kind, reason, detail or str(kind))
        self.retry, self.after, self.dead, self.hopeless = retry, after, dead, hopeless


SHOWN_CHARS = 2_000


def clean(text: str, limit: int = SHOWN_CHARS) -> str:
    """Text from outside, made safe to store and print: no control characters, no lone surrogates, not endless."""
    cut = text[: limit + 1]
    if len(cut) <= limit and cut.isprintable():
        return cut
    safe = "".join(c if c.isprintable() else " " for c in cut).encode("utf-8", "replace").decode("utf-8")
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"
