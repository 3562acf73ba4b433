"""One declaration of an answer's fields, and all that follows from it: grammar, JSON schema, strict parser.

A game's `fields(view, masks)` gives for each field the values open now: a list of values is one
choice, a list of lists an array of choices, `Text(n)` a short free text. A list with a float in it
is a number between its least and its greatest; the listed values are those a grammar can write.
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
CONFIDENCE = "confidence"  # a field of this name may be measured from log-probabilities instead of asked for

LONGEST = 32_768  # characters at a text's end that are looked through for an object
MOST_KNOWN = 4_096  # answers kept ready; a game has far fewer
PLAIN = "[a-zA-Z0-9 .,;:!?'()%/+-]"  # what a grammar lets a model write in a free text


@dataclass(frozen=True)
class Text:
    """A free text of at most so many characters."""

    limit: int


@dataclass(frozen=True)
class Field:
    """`places` holds the open values: one place for a scalar, several for an array, none for a text."""

    name: str
    places: tuple[tuple[Value, ...], ...]
    array: bool = False
    text_limit: int = 0

    @property
    def flat_names(self) -> list[str]:
        """Names of the field in a schema, which has scalars only."""
        return [f"{self.name}_{i}" for i in range(len(self.places))] if self.array else [self.name]

    def grammar(self) -> str:
        if not self.places:
            return f'"\\"" {PLAIN}{{0,{self.text_limit}}} "\\""'
        options = [" | ".join(_quoted(_json(value)) for value in place) for place in self.places]
        body = ' "," '.join(f"({option})" for option in options)
        return f'"[" {body} "]"' if self.array else body

    def check(self, given: Any) -> Any:
        """The value as a caller may use it, or ProviderError."""
        if not self.places:
            if not isinstance(given, str):
                raise _shape(f"{self.name} should be a text")
            return clean(given, self.text_limit)
        if not self.array:
            return _open(self.name, self.places[0], given)
        if not isinstance(given, list) or len(given) != len(self.places):
            raise _shape(f"{self.name} should be an array of {len(self.places)}")
        pairs = zip(self.places, given, strict=True)
        return [_open(f"{self.name}[{i}]", place, x) for i, (place, x) in enumerate(pairs)]


@dataclass(frozen=True)
class Answer:
    """What a reply may look like for one state."""

    fields: tuple[Field, ...]

    @staticmethod
    def of(declared: Mapping[str, Any]) -> Answer:
        """From a game's `fields(view, masks)`."""
        key = repr(declared)  # a dictionary of values would take 1 for 1.0
        if key not in _KNOWN:
            if len(_KNOWN) >= MOST_KNOWN:
                _KNOWN.clear()
            _KNOWN[key] = Answer(tuple(_field(name, values) for name, values in declared.items()))
        return _KNOWN[key]

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]

    def without(self, name: str) -> Answer:
        """The same with one field less; itself when it is the only one or not there."""
        if name not in self._shorter:
            rest = tuple(field for field in self.fields if field.name != name)
            self._shorter[name] = Answer(rest) if rest and len(rest) < len(self.fields) else self
        return self._shorter[name]

    @cached_property
    def _shorter(self) -> dict[str, Answer]:
        return {}

    @cached_property
    def head(self) -> str:
        """How every answer begins: a model need not write it."""
        return f"{{{_json(self.fields[0].name)}:"

    def grammar(self, after_head: bool = False) -> str:
        """GBNF for llama.cpp and vLLM; xgrammar's EBNF reads the same text. One line, no spaces."""
        return self._rest if after_head else self._whole

    @cached_property
    def _whole(self) -> str:
        return f"root ::= {_quoted(self.head)} {self._rest.removeprefix('root ::= ')}"

    @cached_property
    def _rest(self) -> str:
        first, *others = self.fields
        parts = [first.grammar()]
        for field in others:
            parts += [_quoted(f",{_json(field.name)}:"), field.grammar()]
        return "root ::= " + " ".join([*parts, '"}"'])

    @cached_property
    def schema(self) -> dict[str, Any]:
        """Portable JSON schema: scalars with enums only, all required; arrays as `name_0`, `name_1`..."""
        properties: dict[str, Any] = {}
        for field in self.fields:
            if not field.places:
                properties[field.name] = {"type": "string"}
            for name, place in zip(field.flat_names, field.places, strict=False):
                properties[name] = {"type": _json_type(place), "enum": list(place)}
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    @cached_property
    def longest(self) -> int:
        """Characters of the longest answer the grammar can write."""
        size = 2
        for field in self.fields:
            values = [max(len(_json(value)) for value in place) + 1 for place in field.places]
            size += len(_json(field.name)) + 4 + sum(values) + field.text_limit
        return size

    def write(self, values: Mapping[str, Any]) -> str:
        """As the grammar would: one line, no spaces."""
        return "{" + ",".join(f"{_json(name)}:{_json(values[name])}" for name in self.names) + "}"

    def parse(self, text: str, flat: bool = False) -> dict[str, Any]:
        """The fields of the last whole object in the text, every value open now, or ProviderError.

        `flat` also takes the schema's form of arrays.
        """
        if not text.strip():
            raise ProviderError(FailureKind.EMPTY, "the reply has no text")
        found = last_object(text)
        if found is None:
            raise ProviderError(FailureKind.NOT_JSON, f"no whole JSON object in {clean(text, 80)!r}")
        return self.check(dict(found), flat)

    def check(self, given: Mapping[str, Any], flat: bool = False) -> dict[str, Any]:
        """An object with exactly our keys and open values, in our order, or ProviderError."""
        if flat and set(given) == {name for field in self.fields for name in field.flat_names}:
            given = {f.name: [given[name] for name in f.flat_names] if f.array else given[f.name] for f in self.fields}
        if set(given) != set(self.names):
            keys = clean(", ".join(map(str, given)), 80)
            raise _shape(f"the keys should be {', '.join(self.names)}, not {keys or 'none'}")
        return {field.name: field.check(given[field.name]) for field in self.fields}


_KNOWN: dict[str, Answer] = {}


class _Odd:
    """Stands for what JSON does not have (NaN, Infinity) or nobody should build (a number of 5,000 digits)."""


_ODD = _Odd()


def last_object(text: str) -> Mapping[str, Any] | None:
    """The last whole top-level JSON object; ProviderError when it repeats a key or holds a NaN.

    Chatty models think aloud and write an answer in the end, so the last one counts. Only the end
    of an endless text is read.
    """
    decoder = json.JSONDecoder(
        object_pairs_hook=_pairs,
        parse_constant=lambda _: _ODD,
        parse_int=lambda digits: int(digits) if len(digits) < 20 else _ODD,
        parse_float=_number,
    )
    tail, found, start = text[-LONGEST:], None, 0
    read_in_vain = 0  # characters, and 20 for each try: text that is all beginnings would take for ever
    while (start := tail.find("{", start)) >= 0 and read_in_vain < 4 * LONGEST:
        try:
            found, start = decoder.raw_decode(tail, start)
        except (json.JSONDecodeError, RecursionError) as error:
            read_in_vain += 20 + (error.pos - start if isinstance(error, json.JSONDecodeError) else LONGEST)
            start += 1
    if isinstance(found, _Repeated):
        raise _shape("a key appears twice")
    if found is not None and _holds_odd(found):
        raise ProviderError(FailureKind.NOT_JSON, "the object holds a number that JSON does not have")
    return found


class _Repeated(dict[str, Any]):
    """An object in which some key appears twice."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    inner = any(isinstance(value, _Repeated) for _, value in pairs)
    return values if len(values) == len(pairs) and not inner else _Repeated(values)


def _number(digits: str) -> Any:
    value = float(digits)
    return value if math.isfinite(value) else _ODD


def _holds_odd(value: Any) -> bool:
    """Without recursion: what the decoder can build may be deeper than our own calls can go."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, _Odd):
            return True
        if isinstance(value, (dict, list)):
            waiting += value.values() if isinstance(value, dict) else value
    return False


def _open(name: str, place: Sequence[Value], given: Any) -> Any:
    """One value of one place: its type, then whether it is open."""
    kind = _json_type(place)
    if kind == "string":
        if not isinstance(given, str):
            raise _shape(f"{name} should be a text")
    elif type(given) not in ((int,) if kind == "integer" else (int, float)):  # a boolean is no number here
        raise _shape(f"{name} should be {'an integer' if kind == 'integer' else 'a number'}")
    if kind == "number":
        numbers = [float(value) for value in place]
        if min(numbers) <= given <= max(numbers):
            return float(given)
        allowed = f"{min(numbers)} to {max(numbers)}"
    elif given in place:
        return given
    else:
        allowed = ", ".join(map(str, place))
    raise ProviderError(FailureKind.ILLEGAL, f"{name} is {clean(str(given), 40)}; open now: {clean(allowed, 120)}")


def _shape(reason: str) -> ProviderError:
    return ProviderError(FailureKind.WRONG_SHAPE, reason)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _quoted(text: str) -> str:
    """A literal of a grammar."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _json_type(place: Sequence[Value]) -> str:
    if isinstance(place[0], str):
        return "string"
    return "number" if any(isinstance(value, float) for value in place) else "integer"


def _field(name: str, values: Any) -> Field:
    if isinstance(values, Text):
        return Field(name, (), text_limit=values.limit)
    array = any(isinstance(x, (list, tuple)) for x in values)
    places = tuple(tuple(place) for place in (values if array else [values]))
    for place in places:
        kinds = {str if isinstance(x, str) else float for x in place if type(x) in (int, float, str)}
        if not place or len(kinds) != 1 or any(type(x) not in (int, float, str) for x in place):
            raise TypeError(f"The open values of {name!r} must be numbers or texts, and at least one: {place!r}.")
    return Field(name, places, array)
