"""Writes an answer choice by choice, for a model in this process.

The text between two choices is fixed, so the model reads it in one batch and generates only where it can choose: in
the negotiation four tokens instead of thirteen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from kibitz.llm.answers.answer import Answer, literal, to_json

Generate: TypeAlias = Callable[[str, str], str]
"""The answer so far and a grammar for what may follow -> one generated token. The grammar's language is finite."""


def write(answer: Answer, generate: Generate) -> str:
    """A whole answer without free texts. A field that does not matter gets its first legal values, unasked."""
    text, idle = "{", tuple[str, ...]()
    for place, field in enumerate(answer.fields):
        close = "}" if place == len(answer.fields) - 1 else ","
        text += f"{to_json(field.name)}:{'[' if field.array else ''}"
        ends = [*[","] * (len(field.choices) - 1), "]"] if field.array else [close]
        for values, end in zip(field.choices, ends, strict=True):
            options = [to_json(value) + end for value in values]  # with its end, no option begins another
            choice = 0 if field.name in idle else _choose(text, options, generate)
            text += options[choice]
            if place == 0 and not field.array:
                idle = answer.idle_names({field.name: values[choice]})
        text += close if field.array else ""
    return text


def _choose(text: str, options: Sequence[str], generate: Generate) -> int:
    written = '"' if options[0].startswith('"') else ""  # all values of a field have one type
    while len(left := [i for i, option in enumerate(options) if option.startswith(written)]) > 1:
        rest = " | ".join(literal(options[i][len(written) :]) for i in left)
        written += generate(text + written, f"root ::= {rest}")
    return left[0]
