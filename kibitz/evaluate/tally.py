"""What the players of an evaluation cost, and how often the fallback bot had to choose for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kibitz.core.play.events import Event

COUNTED = ("seat", "fallback", "failure", "usage", "source", "latency")  # of a decision's payload


@dataclass
class Tally:
    """The decisions of one seat. Tokens and money include those of failed answers."""

    turns: int = 0
    fallbacks: int = 0  # turns that the fallback bot played
    failures: Counter[str] = field(default_factory=Counter)  # the same turns, by kind of failure
    answered_by: Counter[str] = field(default_factory=Counter)  # turns by the model that answered, if one was asked
    prompt_tokens: int = 0
    completion_tokens: int = 0
    money: float = 0.0
    seconds: float = 0.0  # from the question to the decision

    def add(self, decision: Mapping[str, Any]) -> None:
        """The payload of a decision event."""
        self.turns += 1
        if decision["fallback"]:
            self.fallbacks += 1
            self.failures[decision["failure"]] += 1
        usage = decision["usage"]
        if usage and not decision["fallback"]:  # llm:auto, or a preset that gave way to another, is not whom it names
            self.answered_by[decision["source"]] += 1
        self.prompt_tokens += int(usage.get("prompt_tokens") or 0)
        self.completion_tokens += int(usage.get("completion_tokens") or 0)
        self.money += float(usage.get("money") or 0.0)
        self.seconds += float(decision["latency"])

    def as_dict(self) -> dict[str, Any]:
        return {
            "fallbacks": self.fallbacks,
            "fallback_share": self.fallbacks / self.turns if self.turns else 0.0,
            "failures": dict(sorted(self.failures.items())),
            "answered_by": dict(sorted(self.answered_by.items())),
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "money": self.money,
        }


class Tallies:
    """Both seats. As an observer of episodes it also counts an episode that Ctrl-C ends."""

    def __init__(self) -> None:
        self.seats = (Tally(), Tally())
        self.decisions: list[Mapping[str, Any]] = []

    def observe(self, event: Event) -> None:
        if event.type == "decision":
            self.count([event.payload])

    def count(self, decisions: Iterable[Mapping[str, Any]]) -> None:
        """The payloads of decision events."""
        for decision in decisions:
            self.seats[decision["seat"]].add(decision)
            self.decisions.append({name: decision[name] for name in COUNTED})
