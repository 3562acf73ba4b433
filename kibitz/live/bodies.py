"""Request bodies and errors for every route. Bodies are strict, except that 7.0 is a valid integer, as in JSON."""

from __future__ import annotations

from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, model_validator

MAX_EXACT = 2**53  # from here on a float stands for several integers
MAX_INTEGER = 2**63  # beyond it neither the store nor the games can represent a number
MAX_DEPTH = 100  # of nested lists and objects


def loads(text: str | bytes) -> Any:
    """JSON that every part of the server can handle; ValueError otherwise."""
    return checked(orjson.loads(text))


def checked(value: Any, depth: int = 0) -> Any:
    """The same with whole floats as integers; ValueError for what could not be stored or sent on."""
    if depth > MAX_DEPTH:
        raise ValueError("The body is nested too deeply.")
    if isinstance(value, dict):
        return {checked(key): checked(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [checked(item, depth + 1) for item in value]
    if isinstance(value, str) and not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ValueError("The body contains half of a surrogate pair, which is not text.")
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise ValueError("The body contains an integer of more than 64 bits.")
    return _whole(value) if isinstance(value, float) else value


def _whole(number: float) -> int | float:
    return int(number) if number.is_integer() and abs(number) < MAX_EXACT else number


class Strict(BaseModel):
    """Rejects unknown fields and coerces nothing, so that `false` is no number."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _check_values(cls, values: Any) -> Any:
        return checked(values)


class Problem(BaseModel):
    """Every error: one sentence."""

    error: str
