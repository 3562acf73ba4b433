"""Request bodies and errors for every route. Bodies are strict, except that 7.0 is a valid integer, as in JSON."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

MAX_EXACT = 2**53  # from here on a float stands for several integers
MAX_DEPTH = 100  # of nested lists and objects


def loads(text: str | bytes) -> Any:
    return json.loads(text, parse_float=lambda digits: _whole(float(digits)))


def _whole(number: float) -> int | float:
    return int(number) if number.is_integer() and abs(number) < MAX_EXACT else number


def _whole_numbers(value: Any, depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        raise ValueError("The body is nested too deeply.")
    if isinstance(value, dict):
        return {key: _whole_numbers(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(item, depth + 1) for item in value]
    return _whole(value) if isinstance(value, float) else value


class Strict(BaseModel):
    """Rejects unknown fields and coerces nothing, so that `false` is no number."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _one_kind_of_number(cls, values: Any) -> Any:
        return _whole_numbers(values)


class Problem(BaseModel):
    """Every error: one sentence."""

    error: str
