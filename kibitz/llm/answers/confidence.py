"""How sure a model was, from the log-probabilities of what it wrote.

A model that must choose among 0, 1 and 3 gives some of its belief to tokens that are no answer at
all. Its confidence is the share the written value had among the open ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from kibitz.llm.answers.answer import Answer, Field, _json
from kibitz.llm.client.types import Completion, Token

AFTER_VALUE = re.compile(r"[,\]}\s]|$")


def likelihood(answer: Answer, completion: Completion) -> dict[str, float]:
    """Of each field's value; a field whose tokens tell nothing is left out."""
    starts = _starts(completion)
    found: dict[str, float] = {}
    for field in answer.fields:
        if not field.places:
            continue
        total = 1.0
        for place, begin, end in _spans(field, completion.text):
            share = _share([_json(value) for value in place], begin, end, completion, starts)
            if share is None:
                break
            total *= share
        else:
            found[field.name] = round(total, 4)
    return found


def _starts(completion: Completion) -> list[int]:
    """Where in the text each token begins."""
    starts, at = [], completion.start
    for token in completion.tokens:
        starts.append(at)
        at += len(token.text)
    return starts


def _spans(field: Field, text: str) -> Iterator[tuple[Sequence[object], int, int]]:
    """Open values, begin and end of each place of a field in the text, the last one of that name."""
    at = text.rfind(f'"{field.name}"')
    if at < 0:
        return
    at = text.find(":", at) + 1
    for place in field.places:
        while at < len(text) and text[at] in " [,\n\t":
            at += 1
        after = AFTER_VALUE.search(text, at)
        end = after.start() if after else len(text)
        yield place, at, end
        at = end


def _share(options: list[str], begin: int, end: int, completion: Completion, starts: list[int]) -> float | None:
    """Probability of text[begin:end] among the options, token by token."""
    total, touched = 1.0, False
    for token, start in zip(completion.tokens, starts, strict=True):
        if start + len(token.text) <= begin or start >= end:
            continue
        lead = completion.text[start:begin] if start < begin else ""
        written = completion.text[begin:start] if start > begin else ""
        alive = [option[len(written) :] for option in options if option.startswith(written)]
        share = _among(token, lead, alive)
        if share is None:
            return None
        total, touched = total * share, True
    return total if touched else None


def _among(token: Token, lead: str, alive: list[str]) -> float | None:
    """The written token's share among those that go on with an open value."""
    legal = 0.0
    for text, logp in token.others.items():
        if text.startswith(lead) and _goes_on(text[len(lead) :], alive):
            legal += math.exp(min(0.0, logp))
    own = token.others.get(token.text)
    if own is None or legal <= 0:
        return None
    return min(1.0, math.exp(min(0.0, own)) / legal)


def _goes_on(rest: str, alive: list[str]) -> bool:
    """`rest` begins an open value, or is one with something after it."""
    return bool(rest) and any(
        option.startswith(rest) or (rest.startswith(option) and AFTER_VALUE.match(rest[len(option) :]) is not None)
        for option in alive
    )
