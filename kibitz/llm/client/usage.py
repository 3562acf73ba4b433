"""The one ledger of what models were asked, how it ended and what it cost.

The client writes into it; hints, training and players read it. A ledger with a `parent` passes every
entry on, so a run can keep one ledger per seed and the total is correct without adding anything up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from kibitz.llm.client.types import Failure, FailureKind, Reply, Usage

COUNTS = ("asked", "hits", "misses", "shared", "calls", "answered")
COSTS = ("prompt_tokens", "completion_tokens", "money", "seconds")


@dataclass
class UsageLedger:
    """Every question is `asked` once and ends as a hit, a shared reply, an answer or a failure."""

    asked: int = 0
    hits: int = 0  # answered from the cache
    misses: int = 0  # not in the cache; zero without a cache
    shared: int = 0  # ended with an identical question's call
    calls: int = 0  # requests sent, retries included
    answered: int = 0  # calls that returned a legal answer
    failures: Counter[str] = field(default_factory=Counter)  # by FailureKind
    prompt_tokens: int = 0
    completion_tokens: int = 0
    money: float = 0.0
    seconds: float = 0.0  # sum over all calls; they overlap
    parent: UsageLedger | None = None

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @property
    def failed(self) -> int:
        return sum(self.failures.values())

    @property
    def given(self) -> int:
        """Questions that ended with a legal answer, from whatever source."""
        return self.asked - self.failed

    def add(self, failure: Failure | None = None, **amounts: float) -> None:
        """Add amounts by field name, here and in every ledger above."""
        ledger: UsageLedger | None = self
        while ledger is not None:
            values = vars(ledger)
            for name, amount in amounts.items():
                values[name] += amount
            if failure is not None:
                ledger.failures[str(failure.kind)] += 1
            ledger = ledger.parent

    def add_reply(self, reply: Reply) -> None:
        """Record a question's outcome; `add_call` records the call that answered it."""
        self.add(reply.failure, asked=1, hits=reply.source == "cache", shared=reply.source == "shared")

    def add_hits(self, count: int) -> None:
        """Record questions that the caller answered from its own memory."""
        self.add(asked=count, hits=count)

    def add_usage(self, usage: Usage) -> None:
        """Record what one attempt cost, whether or not it led to an answer."""
        self.add(prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens, money=usage.money)

    def add_call(self, seconds: float, *, answered: bool, cached: bool) -> None:
        """Record the end of a call; `cached` says whether there is a cache, which missed."""
        self.add(misses=cached, answered=answered, seconds=seconds)

    def snapshot(self) -> Self:
        """A copy that no longer changes."""
        return replace(self, failures=Counter(self.failures), parent=None)

    def since(self, earlier: UsageLedger) -> Self:
        """What was added after the snapshot `earlier`."""
        changes = {name: getattr(self, name) - getattr(earlier, name) for name in (*COUNTS, *COSTS)}
        return type(self)(**changes, failures=self.failures - earlier.failures)

    @classmethod
    def total(cls, ledgers: Iterable[UsageLedger]) -> Self:
        result = cls()
        for ledger in ledgers:
            result.add(**{name: getattr(ledger, name) for name in (*COUNTS, *COSTS)})
            result.failures.update(ledger.failures)
        return result

    def as_dict(self) -> dict[str, Any]:
        """For a run's record; lists every failure kind, zeros included."""
        return {
            **{name: getattr(self, name) for name in COUNTS},
            "failed": self.failed,
            "failures": {str(kind): self.failures[str(kind)] for kind in FailureKind},
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "money": round(self.money, 6),
            "seconds": round(self.seconds, 3),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """The ledger of an earlier run; fields that the record lacks are zero."""
        known = {name: record[name] for name in (*COUNTS, *COSTS) if name in record}
        return cls(**known, failures=Counter(record.get("failures", {})))
