"""Writes an answer choice by choice, for a model in this process.

The text between two choices is fixed, so the model reads it in one batch and generates only where it can choose: in
the negotiation four tokens instead of thirteen.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple, TypeAlias

from kibitz.llm.answers.answer import Answer, literal, to_json

Generate: TypeAlias = Callable[[str, str], str]
"""The answer so far and a grammar for what may follow -> one generated token. The grammar's language is finite."""


class Choice(NamedTuple):
    """Where a model has to choose."""

    text: str  # the answer so far
    options: tuple[str, ...]  # how it may go on; none of them begins another. Empty: with a free text
    limit: int = 0  # characters of the free text, which a quotation mark ends


def choices(answer: Answer) -> Generator[Choice, str, str]:
    """Yields the choices one after the other, receives what was written there, and returns the whole answer.

    What was written is the beginning of at least one option. A field that does not matter gets its first legal values,
    unasked.
    """
    text, idle = "{", tuple[str, ...]()
    for place, field in enumerate(answer.fields):
        close = "}" if place == len(answer.fields) - 1 else ","
        text += f"{to_json(field.name)}:{'[' if field.array else ''}"
        if not field.choices:
            text = (yield from _free_text(text + '"', field.text_limit)) + close
            continue
        ends = [*[","] * (len(field.choices) - 1), "]"] if field.array else [close]
        for values, end in zip(field.choices, ends, strict=True):
            options = [to_json(value) + end for value in values]  # with its end, no option begins another
            choice = 0 if field.name in idle else (yield from _choose(text, options))
            text += options[choice]
            if place == 0 and not field.array:
                idle = answer.idle_names({field.name: values[choice]})
        text += close if field.array else ""
    return text


def write(answer: Answer, generate: Generate) -> str:
    """A whole answer without free texts."""
    steps = choices(answer)
    try:
        choice = next(steps)
        while True:
            rest = " | ".join(map(literal, choice.options))
            choice = steps.send(generate(choice.text, f"root ::= {rest}"))
    except StopIteration as end:
        return str(end.value)


def _choose(text: str, options: Sequence[str]) -> Generator[Choice, str, int]:
    written = '"' if options[0].startswith('"') else ""  # all values of a field have one type
    while len(left := [i for i, option in enumerate(options) if option.startswith(written)]) > 1:
        written += yield Choice(text + written, tuple(options[i][len(written) :] for i in left))
    return left[0]


def _free_text(text: str, limit: int) -> Generator[Choice, str, str]:
    left = limit
    while left > 0 and not (piece := (yield Choice(text, (), left))).endswith('"'):
        text, left = text + piece, left - len(piece)
    return text + '"'
