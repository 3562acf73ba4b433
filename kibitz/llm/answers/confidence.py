"""A model's confidence, from the log-probabilities of the tokens it generated.

A model that must choose among 0, 1 and 3 gives some probability to tokens that are not an answer at all.
Its confidence is the share of the chosen value among the legal ones. A taught model's share becomes the probability
that its act is right by `calibrated`, with two numbers that `kibitz teach calibrate` fits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence

from kibitz.llm.answers.answer import Answer, Field, to_json
from kibitz.llm.client.types import Completion, Token

AFTER_VALUE = re.compile(r"[,\]}\s]|$")
MAX_LOG_ODDS = 30.0  # beyond, a float cannot tell the probability from 0 or 1


def likelihood(answer: Answer, completion: Completion, skip: Collection[str] = ()) -> dict[str, float]:
    """Of each field's value; omits the fields in `skip` and those whose tokens carry no information."""
    starts = _starts(completion)
    found: dict[str, float] = {}
    for field in answer.fields:
        if not field.choices or field.name in skip:
            continue
        total = 1.0
        for values, begin, end in _spans(field, completion.text):
            if len(values) == 1:
                continue
            share = _share([to_json(value) for value in values], begin, end, completion, starts)
            if share is None:
                break
            total *= share
        else:
            found[field.name] = round(total, 4)
    return found


def _starts(completion: Completion) -> list[int]:
    """The position of each token in the text."""
    starts, at = list[int](), 0
    for token in completion.tokens:
        starts.append(at if token.start is None else token.start)
        at = starts[-1] + len(token.text)
    return starts


def calibrated(share: float, numbers: Sequence[float]) -> float:
    """The logistic map of a share of probability: a slope and an intercept on its log-odds."""
    slope, intercept = numbers
    return 1 / (1 + math.exp(-max(-MAX_LOG_ODDS, min(MAX_LOG_ODDS, slope * log_odds(share) + intercept))))


def log_odds(share: float) -> float:
    inside = min(max(share, 1e-4), 1 - 1e-4)  # shares are rounded to four digits
    return math.log(inside / (1 - inside))


def _spans(field: Field, text: str) -> Iterator[tuple[Sequence[object], int, int]]:
    """Legal values, start and end of each value of a field; the last field of that name counts."""
    at = text.rfind(f'"{field.name}"')
    if at < 0:
        return
    at = text.find(":", at) + 1
    for values in field.choices:
        while at < len(text) and text[at] in " [,\n\t":
            at += 1
        after = AFTER_VALUE.search(text, at)
        end = after.start() if after else len(text)
        yield values, at, end
        at = end


def _share(options: list[str], begin: int, end: int, completion: Completion, starts: list[int]) -> float | None:
    """The probability of text[begin:end] among the options, token by token."""
    total, found = 1.0, False
    for token, start in zip(completion.tokens, starts, strict=True):
        if start + len(token.text) <= begin or start >= end:
            continue
        lead = completion.text[start:begin] if start < begin else ""
        written = completion.text[begin:start] if start > begin else ""
        possible = [option[len(written) :] for option in options if option.startswith(written)]
        share = _token_share(token, lead, possible)
        if share is None:
            return None
        total, found = total * share, True
    return total if found else None


def _token_share(token: Token, lead: str, possible: list[str]) -> float | None:
    """The generated token's share among the tokens that continue a legal value."""
    legal = 0.0
    for text, logp in token.alternatives.items():
        if text.startswith(lead) and _continues(text[len(lead) :], possible):
            legal += math.exp(min(0.0, logp))
    own = token.alternatives.get(token.text)
    if own is None or legal <= 0:
        return None
    return min(1.0, math.exp(min(0.0, own)) / legal)


def _continues(rest: str, possible: list[str]) -> bool:
    """Whether `rest` starts a legal value, or is one followed by other text."""
    return bool(rest) and any(
        option.startswith(rest) or (rest.startswith(option) and AFTER_VALUE.match(rest[len(option) :]) is not None)
        for option in possible
    )
