"""Patience, breaker, budget and the book of what was asked and what it cost."""

from __future__ import annotations

import logging
import random
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from kibitz.core.options import Options
from kibitz.llm.client.failure import Failure, Kind, Trouble
from kibitz.llm.client.types import Usage

log = logging.getLogger("kibitz.llm")
Clock = Callable[[], float]


class Limits(Options):
    """How long and how often one question is tried. Seconds."""

    deadline: float = Field(30.0, gt=0)  # of a call with all its attempts and waits; nothing exceeds it
    timeout: float = Field(15.0, gt=0)  # of one attempt
    attempts: int = Field(4, ge=1)
    backoff: float = Field(0.5, ge=0)  # before the second attempt; doubled each time, with jitter
    longest_backoff: float = Field(8.0, ge=0)
    concurrency: int = Field(16, ge=1)  # calls under way at once
    breaker_failures: int = Field(5, ge=1)  # in a row, until the provider is left alone
    breaker_rest: float = Field(30.0, ge=0)  # how long it is left alone

    def wait(self, attempt: int, jitter: float) -> float:
        """Before attempt + 1; jitter is a uniform number."""
        return float(min(self.longest_backoff, self.backoff * 2.0 ** (attempt - 1)) * (0.5 + jitter / 2))


class Budget(Options):
    """What may be spent; none means no end. When it is used up nothing more is asked."""

    calls: int | None = Field(None, ge=0)
    tokens: int | None = Field(None, ge=0)
    money: float | None = Field(None, ge=0)
    seconds: float | None = Field(None, ge=0)  # wall time from the first question on


class Policy(Options):
    """`neutral` goes on whatever happens; `stop` raises when more than a share of the last `window` failed."""

    failure_policy: Literal["neutral", "stop"] = "neutral"
    share: float = Field(0.5, ge=0, le=1)
    window: int = Field(50, ge=1)


class TooManyFailures(RuntimeError):
    """The failure policy is `stop` and its share of failures was passed."""


@dataclass
class Book:
    """What happened so far. `asked` = `hits` + `shared` + answered or failed calls."""

    asked: int = 0
    hits: int = 0  # from the cache
    misses: int = 0
    shared: int = 0  # answered by an equal question's call
    calls: int = 0  # requests sent, retries included
    answered: int = 0  # by the model, with a legal answer
    failures: Counter[str] = field(default_factory=Counter)
    details: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    money: float = 0.0
    seconds: float = 0.0  # of all calls together

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def spend(self, usage: Usage) -> None:
        self.prompt_tokens += usage.prompt_tokens
        self.completion_tokens += usage.completion_tokens
        self.money += usage.money

    def fail(self, failure: Failure) -> None:
        self.failures[str(failure.kind)] += 1
        self.details[failure.detail] += 1

    def summary(self) -> dict[str, Any]:
        """For a run's record; every failure kind is there, also with zero."""
        return {
            "asked": self.asked,
            "hits": self.hits,
            "misses": self.misses,
            "shared": self.shared,
            "calls": self.calls,
            "answered": self.answered,
            "failed": sum(self.failures.values()),
            "failures": {str(kind): self.failures[str(kind)] for kind in Kind},
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "money": round(self.money, 6),
            "seconds": round(self.seconds, 3),
        }


class Purse:
    """Holds a budget. What a call may cost at most is set aside before it is made, so nothing is overspent."""

    def __init__(self, budget: Budget, book: Book, clock: Clock = time.monotonic) -> None:
        self.budget, self.book, self.clock = budget, book, clock
        self.started: float | None = None
        self.tokens_aside, self.money_aside = 0, 0.0

    def left(self) -> float:
        """Seconds; the clock starts with the first question."""
        if self.started is None:
            self.started = self.clock()
        if self.budget.seconds is None:
            return float("inf")
        return self.budget.seconds - (self.clock() - self.started)

    def take(self, most: Usage) -> None:
        """Set aside what a call may cost, or Trouble."""
        budget, book = self.budget, self.book
        over = [
            ("calls", budget.calls, book.calls + 1),
            ("tokens", budget.tokens, book.tokens + self.tokens_aside + most.tokens),
            ("money", budget.money, book.money + self.money_aside + most.money),
        ]
        for name, limit, wanted in over:
            if limit is not None and wanted > limit:
                raise _spent(name, limit)
        if self.left() <= 0:
            raise _spent("seconds", self.budget.seconds)
        self.tokens_aside += most.tokens
        self.money_aside += most.money

    def settle(self, most: Usage) -> None:
        """The call is over; what it did cost is in the book."""
        self.tokens_aside -= most.tokens
        self.money_aside -= most.money


def _spent(name: str, limit: float | None) -> Trouble:
    return Trouble(Kind.BUDGET, f"the budget of {limit:g} {name} is used up", name)


class Breaker:
    """Stops asking a dead provider for a while, then lets one question through to see."""

    def __init__(self, limits: Limits, clock: Clock = time.monotonic) -> None:
        self.limits, self.clock = limits, clock
        self.in_a_row = 0
        self.closed_at = 0.0  # asking is allowed from then on
        self.probing = False
        self.reason = ""

    def check(self) -> None:
        """Trouble while the provider is left alone."""
        if not self.is_open:
            return
        if self.probing or self.clock() < self.closed_at:
            raise Trouble(Kind.BREAKER, f"not asked, the provider is left alone for a while: {self.reason}")
        self.probing = True

    @property
    def is_open(self) -> bool:
        return self.in_a_row >= self.limits.breaker_failures

    def good(self) -> None:
        self.in_a_row, self.probing = 0, False

    def bad(self, trouble: Trouble) -> bool:
        """Whether this failure opened it."""
        was_open, self.probing = self.is_open, False
        self.in_a_row = self.limits.breaker_failures if trouble.hopeless else self.in_a_row + 1
        if not self.is_open:
            return False
        self.reason = trouble.failure.reason
        self.closed_at = self.clock() + self.limits.breaker_rest
        return not was_open

    def released(self) -> None:
        """A question that was let through ended without telling anything about the provider."""
        self.probing = False


class Watch:
    """The last replies, for the failure policy."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.failed: deque[Failure | None] = deque(maxlen=policy.window)

    def add(self, failure: Failure | None) -> None:
        self.failed.append(failure)

    def check(self) -> None:
        bad = [failure for failure in self.failed if failure]
        full = len(self.failed) == self.policy.window
        if self.policy.failure_policy == "stop" and full and len(bad) > self.policy.share * self.policy.window:
            raise TooManyFailures(
                f"{len(bad)} of the last {self.policy.window} questions to the model failed, the last one: {bad[-1]}. "
                f"Set failure_policy to neutral to go on without hints."
            )


def jitter() -> float:
    """Only spreads retries in time; no result depends on it."""
    return random.random()
