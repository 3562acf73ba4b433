"""What bounds the client: time and retries, a budget, a circuit breaker and the failure policy."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Literal

from pydantic import Field

from kibitz.core.options import Options
from kibitz.llm.client.types import Failure, FailureKind, ProviderError, Usage
from kibitz.llm.client.usage import UsageLedger

Clock = Callable[[], float]


class Limits(Options):
    """How long and how often the client tries one question. Times are in seconds."""

    deadline: float = Field(30.0, gt=0)  # for a call with all its attempts and waits
    timeout: float = Field(15.0, gt=0)  # for one attempt
    attempts: int = Field(4, ge=1)
    backoff: float = Field(0.5, ge=0)  # before the second attempt; doubles each time, with jitter
    longest_backoff: float = Field(8.0, ge=0)
    concurrency: int = Field(16, ge=1)  # concurrent calls
    breaker_failures: int = Field(5, ge=1)  # consecutive failures that open the breaker
    breaker_rest: float = Field(30.0, ge=0)  # how long it stays open

    def wait(self, attempt: int, jitter: float) -> float:
        """Seconds between `attempt` and the next one; jitter is uniform in [0, 1)."""
        return float(min(self.longest_backoff, self.backoff * 2.0 ** (attempt - 1)) * (0.5 + jitter / 2))


class Budget(Options):
    """What may be spent; None means no limit. The client sends nothing once it is exhausted."""

    calls: int | None = Field(None, ge=0, description="most requests; null: no limit")
    tokens: int | None = Field(None, ge=0, description="most tokens, of questions and answers; null: no limit")
    money: float | None = Field(None, ge=0, description="most dollars, at the preset's prices; null: no limit")
    seconds: float | None = Field(None, ge=0, description="most seconds from the first question on; null: no limit")


class FailurePolicy(Options):
    """`neutral` always continues; `stop` raises when more than `share` of the last `window` questions failed."""

    failure_policy: Literal["neutral", "stop"] = "neutral"
    share: float = Field(0.5, ge=0, le=1)
    window: int = Field(50, ge=1)


class TooManyFailures(RuntimeError):
    """The failure policy is `stop` and more questions failed than it allows."""


class BudgetTracker:
    """Enforces a budget. It reserves the most that a call may cost before the call, so nothing is overspent.

    Several clients, each in its own thread, may share one.
    """

    def __init__(self, budget: Budget, clock: Clock = time.monotonic) -> None:
        self.budget, self.clock = budget, clock
        self.ledgers: list[UsageLedger] = []  # of the clients that spend from it
        self._lock = threading.Lock()
        self.started: float | None = None
        self.reserved_tokens, self.reserved_money = 0, 0.0

    def seconds_left(self) -> float:
        """The clock starts with the first question."""
        if self.started is None:
            self.started = self.clock()
        if self.budget.seconds is None:
            return float("inf")
        return self.budget.seconds - (self.clock() - self.started)

    def reserve(self, max_usage: Usage) -> None:
        """Reserve what a call may cost, or raise ProviderError."""
        budget = self.budget
        with self._lock:
            calls, tokens, money = (
                sum(getattr(ledger, name) for ledger in self.ledgers) for name in ("calls", "tokens", "money")
            )
            wanted = [
                ("calls", budget.calls, calls + 1),
                ("tokens", budget.tokens, tokens + self.reserved_tokens + max_usage.tokens),
                ("money", budget.money, money + self.reserved_money + max_usage.money),
            ]
            for name, limit, amount in wanted:
                if limit is not None and amount > limit:
                    raise _exhausted(name, limit)
            if self.seconds_left() <= 0:
                raise _exhausted("seconds", budget.seconds)
            self.reserved_tokens += max_usage.tokens
            self.reserved_money += max_usage.money

    def release(self, max_usage: Usage) -> None:
        """The call is over and its actual cost is in the ledger."""
        with self._lock:
            self.reserved_tokens -= max_usage.tokens
            self.reserved_money -= max_usage.money


def _exhausted(name: str, limit: float | None) -> ProviderError:
    return ProviderError(FailureKind.BUDGET, f"the budget of {limit:g} {name} is exhausted", name)


class Breaker:
    """A circuit breaker: sends nothing to a failing provider for a while, then lets one question probe it."""

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self.limits, self.clock = limits, clock
        self.consecutive_failures = 0
        self.retry_at = 0.0  # clock time of the next probe
        self.probing = False
        self.reason = ""

    @property
    def is_open(self) -> bool:
        return self.consecutive_failures >= self.limits.breaker_failures

    def check(self) -> None:
        """Raise ProviderError while the breaker is open."""
        if not self.is_open:
            return
        if self.probing or self.clock() < self.retry_at:
            raise ProviderError(FailureKind.BREAKER, f"not sent because the provider is failing: {self.reason}")
        self.probing = True

    def succeeded(self) -> None:
        self.consecutive_failures, self.probing = 0, False

    def failed(self, error: ProviderError) -> bool:
        """Whether this failure opened the breaker."""
        was_open, self.probing = self.is_open, False
        self.consecutive_failures = self.limits.breaker_failures if error.permanent else self.consecutive_failures + 1
        if not self.is_open:
            return False
        self.reason = error.failure.reason
        self.retry_at = self.clock() + self.limits.breaker_rest
        return not was_open

    def inconclusive(self) -> None:
        """A question ended without saying anything about the provider; the next one may probe."""
        self.probing = False


class FailureWindow:
    """The outcomes of the last questions, for the failure policy."""

    def __init__(self, policy: FailurePolicy) -> None:
        self.policy = policy
        self.outcomes: deque[Failure | None] = deque(maxlen=policy.window)

    def add(self, failure: Failure | None) -> None:
        self.outcomes.append(failure)

    def add_successes(self, count: int) -> None:
        self.outcomes.extend([None] * min(count, self.policy.window))

    def check(self) -> None:
        failures = [failure for failure in self.outcomes if failure]
        full = len(self.outcomes) == self.policy.window
        if self.policy.failure_policy == "stop" and full and len(failures) > self.policy.share * self.policy.window:
            raise TooManyFailures(
                f"{len(failures)} of the last {self.policy.window} questions to the model failed, most recently: "
                f"{failures[-1]}. Set failure_policy to neutral to continue without answers."
            )


def jitter() -> float:
    """Spreads retries over time; no result depends on it."""
    return random.random()
