"""Options a user may set, validated as a whole, with errors in one sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Self, TypeAlias, get_args

import yaml
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from kibitz.core.errors import BadInput

# marks an option that names files of this machine or fetches some: only the operator of a server may set it
OPERATOR: dict[str, JsonValue] = {"operator": True}
PlayerSpec: TypeAlias = str | dict[str, float]  # a player by name, or several by weight


def operator_options(options: type[BaseModel]) -> list[str]:
    """The options that only the operator of a server may set."""
    marked = {name: field.json_schema_extra for name, field in options.model_fields.items()}
    return [name for name, extra in marked.items() if isinstance(extra, dict) and extra.get("operator")]


class Options(BaseModel):
    """Base of every option table: rejects unknown names and coerces nothing."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True, allow_inf_nan=False
    )

    @classmethod
    def read(cls, values: Mapping[str, Any], where: str = "option") -> Self:
        """Validated options, or BadInput about the first mistake."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise BadInput(sentence(cls, error, where)) from None

    @classmethod
    def read_recorded(cls, values: Mapping[str, Any], where: str = "option") -> Self:
        """Options of a record. One that it lacks did not exist yet: it has its plain default and follows no other."""
        plain = {name: field.default for name, field in cls.model_fields.items() if not field.is_required()}
        return cls.read(plain | dict(values), where)

    def changed(self, values: Mapping[str, Any]) -> Self:
        """A checked copy with these values; a default that depends on another option follows it."""
        return self.read({name: getattr(self, name) for name in self.model_fields_set} | dict(values))


def sentence(model: type[BaseModel], error: ValidationError, where: str) -> str:
    """Pydantic's first complaint as one sentence."""
    # report an unknown name before a missing one: it may be the same name, misspelt
    found = sorted(error.errors(), key=lambda e: e["type"] == "missing")
    # of a field with alternatives, report the complaint that got deepest into one of them
    first = max((e for e in found if e["loc"][:1] == found[0]["loc"][:1]), key=lambda e: len(e["loc"]))
    name = ".".join(str(part) for part in first["loc"] if not _INTERNAL.match(str(part)))
    if first["type"] == "extra_forbidden":
        known = sorted(_inside(model, first["loc"][:-1]).model_fields)
        close = get_close_matches(name.split(".")[-1], known, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(known)}."
        return f"There is no {where} {name!r}; {hint}"
    if first["type"] == "missing":
        return f"The {where} {name!r} is missing."
    message = first["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if first["type"] == "value_error":
        return message
    return f"The {where} {name!r} is {first['input']!r}; it should be {message}."


# how pydantic names the alternatives of a field
_INTERNAL = re.compile(r"function|literal|tuple|dict\[|constrained-|(str|int|float|bool)$")


def _inside(model: type[BaseModel], path: tuple[int | str, ...]) -> type[BaseModel]:
    """The nested table that a path leads to."""
    for part in path:
        field = model.model_fields.get(str(part))
        model = (field and _table_in(field.annotation)) or model
    return model


def _table_in(kind: Any) -> type[BaseModel] | None:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    return next((found for found in map(_table_in, get_args(kind)) if found), None)


class _Loader(yaml.SafeLoader):
    """YAML 1.1 reads 3e-4 as a string; users mean the number."""


_EXPONENT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+.0123456789"))


def load_yaml(text: str) -> Any:
    """Parsed YAML, or YAMLError for anything invalid, including dates, huge numbers and endless nesting."""
    try:
        return yaml.load(text, _Loader)
    except (ValueError, RecursionError) as error:
        raise yaml.YAMLError(str(error)) from None


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """`name=value` pairs from a command line; values are read as YAML, dots nest."""
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise BadInput(f"{pair!r} is not of the form name=value, as in max_turns=6.")
        *outer, last = name.split(".")
        place = values
        for part in outer:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise BadInput(f"{name!r} is set inside {part!r}, which already has a plain value.")
        try:
            place[last] = load_yaml(text)
        except yaml.YAMLError:
            raise BadInput(f"The value {text!r} of {name!r} is not valid YAML.") from None
    return values
