"""The format of an answer: a declaration of its fields gives a grammar, a JSON schema and a strict parser.

A game's `answer_fields(view, masks)` declares the legal values of each field: a list of values is one
choice, a list of lists an array of choices, `Text(n)` a short free text. A list that contains a float
allows any number between its minimum and its maximum; a grammar can write only the listed values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from kibitz.llm.client.types import FailureKind, ProviderError, clean

Value: TypeAlias = int | float | str
CONFIDENCE = "confidence"  # the field that log-probabilities can replace

MAX_PARSED_CHARS = 32_768  # the parser searches only this much of a reply's end
MAX_CACHED_ANSWERS = 4_096  # a game has far fewer
TEXT_CHARS = "[a-zA-Z0-9 .,;:!?'()%/+-]"  # what a grammar allows in a free text


@dataclass(frozen=True)
class Text:
    """A free text of at most `limit` characters."""

    limit: int


@dataclass(frozen=True)
class Field:
    """`choices` holds the legal values: one tuple for a scalar, several for an array, none for a text."""

    name: str
    choices: tuple[tuple[Value, ...], ...]
    array: bool = False
    text_limit: int = 0

    @property
    def flat_names(self) -> list[str]:
        """The field's names in a schema, which contains only scalars."""
        return [f"{self.name}_{i}" for i in range(len(self.choices))] if self.array else [self.name]

    def grammar(self) -> str:
        if not self.choices:
            return f'"\\"" {TEXT_CHARS}{{0,{self.text_limit}}} "\\""'
        options = [" | ".join(literal(to_json(value)) for value in values) for values in self.choices]
        body = ' "," '.join(f"({option})" for option in options)
        return f'"[" {body} "]"' if self.array else body

    def check(self, given: Any) -> Any:
        """The value if it is legal, otherwise ProviderError."""
        if not self.choices:
            if not isinstance(given, str):
                raise _wrong_shape(f"{self.name} must be a string")
            return clean(given, self.text_limit)
        if not self.array:
            return _legal(self.name, self.choices[0], given)
        if not isinstance(given, list) or len(given) != len(self.choices):
            raise _wrong_shape(f"{self.name} must be an array of {len(self.choices)}")
        pairs = zip(self.choices, given, strict=True)
        return [_legal(f"{self.name}[{i}]", values, x) for i, (values, x) in enumerate(pairs)]

    def idle(self, given: Any) -> Any:
        """For a field that does not matter: its first legal values, if `given` has the right type."""
        try:
            self.check(given)
        except ProviderError as error:
            if error.failure.kind is not FailureKind.ILLEGAL:
                raise
        first = [values[0] for values in self.choices]
        return first if self.array else first[0]


@dataclass(frozen=True)
class Answer:
    """The format of a reply in one position."""

    fields: tuple[Field, ...]
    idle: tuple[tuple[Value, tuple[str, ...]], ...] = ()  # values of the first field, each with fields it makes idle

    @staticmethod
    def of(declared: Mapping[str, Any], idle: Mapping[Any, Sequence[str]] | None = None) -> Answer:
        """From a game's `answer_fields(view, masks)`.

        `idle` names, by value of the first field, the fields that then do not matter: these may hold any number.
        """
        key = repr((declared, idle))  # by value, 1 and 1.0 would be the same key
        if key not in _cached:
            if len(_cached) >= MAX_CACHED_ANSWERS:
                _cached.clear()
            fields = tuple(_field(name, values) for name, values in declared.items())
            _cached[key] = Answer(fields, tuple((value, tuple(names)) for value, names in (idle or {}).items()))
        return _cached[key]

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]

    def idle_names(self, given: Mapping[str, Any]) -> tuple[str, ...]:
        """The fields that do not matter, given a legal value of the first."""
        return dict(self.idle).get(given[self.names[0]], ()) if self.idle else ()

    def without(self, name: str) -> Answer:
        """The answer without one field; itself when it lacks that field or has no other."""
        if name not in self._without:
            rest = tuple(field for field in self.fields if field.name != name)
            self._without[name] = Answer(rest, self.idle) if rest and len(rest) < len(self.fields) else self
        return self._without[name]

    @cached_property
    def _without(self) -> dict[str, Answer]:
        return {}

    @cached_property
    def prefix(self) -> str:
        """The start that all answers share: a model need not generate it."""
        return f"{{{to_json(self.fields[0].name)}:"

    def grammar(self, after_prefix: bool = False) -> str:
        """GBNF for llama.cpp and vLLM, which is also valid EBNF for xgrammar. One line, no spaces."""
        return self._rest if after_prefix else self._whole

    @cached_property
    def _whole(self) -> str:
        return f"root ::= {literal(self.prefix)} {self._rest.removeprefix('root ::= ')}"

    @cached_property
    def _rest(self) -> str:
        first, *others = self.fields
        parts = [first.grammar()]
        for field in others:
            parts += [literal(f",{to_json(field.name)}:"), field.grammar()]
        return "root ::= " + " ".join([*parts, '"}"'])

    @cached_property
    def schema(self) -> dict[str, Any]:
        """A portable JSON schema: only scalars with enums, all required; arrays as `name_0`, `name_1`..."""
        properties: dict[str, Any] = {}
        for field in self.fields:
            if not field.choices:
                properties[field.name] = {"type": "string"}
            for name, values in zip(field.flat_names, field.choices, strict=False):
                properties[name] = {"type": _json_type(values), "enum": list(values)}
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    @cached_property
    def max_chars(self) -> int:
        """The length of the longest answer that the grammar can write."""
        size = 2
        for field in self.fields:
            longest = [max(len(to_json(value)) for value in values) + 1 for values in field.choices]
            size += len(to_json(field.name)) + 4 + sum(longest) + field.text_limit
        return size

    def write(self, values: Mapping[str, Any]) -> str:
        """As the grammar writes it: one line, no spaces."""
        return "{" + ",".join(f"{to_json(name)}:{to_json(values[name])}" for name in self.names) + "}"

    def parse(self, text: str, flat: bool = False, lenient: bool = False) -> dict[str, Any]:
        """The fields of an answer if all are legal, otherwise ProviderError.

        The text must be one JSON object on one line; `lenient` takes the last complete object of any text. `flat` also
        accepts the schema's form of arrays.
        """
        if not text.strip():
            raise ProviderError(FailureKind.EMPTY, "the reply contains no text")
        found = _last_object(text) if lenient else _only_object(text)
        if found is None:
            wanted = "contains no complete JSON object" if lenient else "is not one JSON object on one line"
            raise ProviderError(FailureKind.NOT_JSON, f"the reply {wanted}: {clean(text, 80)!r}")
        return self.check(dict(found), flat)

    def check(self, given: Mapping[str, Any], flat: bool = False) -> dict[str, Any]:
        """The fields in declared order; ProviderError unless keys and values are as declared."""
        if flat and set(given) == {name for field in self.fields for name in field.flat_names}:
            given = {f.name: [given[name] for name in f.flat_names] if f.array else given[f.name] for f in self.fields}
        if set(given) != set(self.names):
            keys = clean(", ".join(map(str, given)), 80)
            raise _wrong_shape(f"the keys must be {', '.join(self.names)}, not {keys or 'none'}")
        idle = self.idle_names({self.names[0]: self.fields[0].check(given[self.names[0]])})
        return {
            field.name: (field.idle if field.name in idle else field.check)(given[field.name]) for field in self.fields
        }


_cached: dict[str, Answer] = {}


class _Invalid:
    """Stands for numbers that JSON lacks (NaN, Infinity) or that are too long to build (5,000 digits)."""


_INVALID = _Invalid()


def _only_object(text: str) -> Mapping[str, Any] | None:
    """The JSON object that is the whole text, on one line; ProviderError as for `_last_object`."""
    line = text.strip()
    if len(line) > MAX_PARSED_CHARS or "\n" in line or "\r" in line or not line.startswith("{"):
        return None
    try:
        found, end = _decoder().raw_decode(line)
    except (json.JSONDecodeError, RecursionError):
        return None
    return _valid(found) if end == len(line) else None


def _decoder() -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=_pairs,
        parse_constant=lambda _: _INVALID,
        parse_int=lambda digits: int(digits) if len(digits) < 20 else _INVALID,
        parse_float=_number,
    )


def _last_object(text: str) -> Mapping[str, Any] | None:
    """The last complete top-level JSON object; ProviderError when it repeats a key or contains a NaN.

    Models often reason before they answer, so the last object counts.
    """
    decoder = _decoder()
    tail, found, start = text[-MAX_PARSED_CHARS:], None, 0
    wasted = 0  # characters, plus 20 per attempt: bounds the time for text full of unfinished objects
    while (start := tail.find("{", start)) >= 0 and wasted < 4 * MAX_PARSED_CHARS:
        try:
            found, start = decoder.raw_decode(tail, start)
        except (json.JSONDecodeError, RecursionError) as error:
            wasted += 20 + (error.pos - start if isinstance(error, json.JSONDecodeError) else MAX_PARSED_CHARS)
            start += 1
    return None if found is None else _valid(found)


def _valid(found: Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(found, _RepeatedKey):
        raise _wrong_shape("a key appears twice")
    if _contains_invalid(found):
        raise ProviderError(FailureKind.NOT_JSON, "the object contains a number that is not valid JSON")
    return found


class _RepeatedKey(dict[str, Any]):
    """An object in which a key appears twice, at any depth."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    inner = any(isinstance(value, _RepeatedKey) for _, value in pairs)
    return values if len(values) == len(pairs) and not inner else _RepeatedKey(values)


def _number(digits: str) -> Any:
    value = float(digits)
    return value if math.isfinite(value) else _INVALID


def _contains_invalid(value: Any) -> bool:
    """Iterative: the decoder can build objects that are too deep for a recursive function."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, _Invalid):
            return True
        if isinstance(value, (dict, list)):
            waiting += value.values() if isinstance(value, dict) else value
    return False


def _legal(name: str, values: Sequence[Value], given: Any) -> Any:
    """Check one value: first its type, then whether it is legal."""
    kind = _json_type(values)
    if kind == "string":
        if not isinstance(given, str):
            raise _wrong_shape(f"{name} must be a string")
    elif type(given) not in ((int,) if kind == "integer" else (int, float)):  # a boolean is not a number here
        raise _wrong_shape(f"{name} must be {'an integer' if kind == 'integer' else 'a number'}")
    if kind == "number":
        numbers = [float(value) for value in values]
        if min(numbers) <= given <= max(numbers):
            return float(given)
        allowed = f"{min(numbers)} to {max(numbers)}"
    elif given in values:
        return given
    else:
        allowed = ", ".join(map(str, values))
    raise ProviderError(FailureKind.ILLEGAL, f"{name} is {clean(str(given), 40)}; legal values: {clean(allowed, 120)}")


def _wrong_shape(reason: str) -> ProviderError:
    return ProviderError(FailureKind.WRONG_SHAPE, reason)


def to_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def literal(text: str) -> str:
    """A literal in a grammar."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _json_type(values: Sequence[Value]) -> str:
    if isinstance(values[0], str):
        return "string"
    return "number" if any(isinstance(value, float) for value in values) else "integer"


def _field(name: str, values: Any) -> Field:
    if isinstance(values, Text):
        return Field(name, (), text_limit=values.limit)
    array = any(isinstance(x, (list, tuple)) for x in values)
    choices = tuple(tuple(choice) for choice in (values if array else [values]))
    for choice in choices:
        kinds = {str if isinstance(x, str) else float for x in choice if type(x) in (int, float, str)}
        if not choice or len(kinds) != 1 or any(type(x) not in (int, float, str) for x in choice):
            raise TypeError(f"The legal values of {name!r} must be all numbers or all strings, not {choice!r}.")
    return Field(name, choices, array)
