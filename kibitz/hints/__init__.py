"""Hints: what an adviser whispers, as numbers in the learner's input."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kibitz.hints.adapter import Hint, HintAdapter

if TYPE_CHECKING:
    from kibitz.hints.injector import HintInjectorEnv

__all__ = ["Hint", "HintAdapter", "HintInjectorEnv"]


def __getattr__(name: str) -> Any:
    """Late: the wrapper needs players and language models, the adapter nothing."""
    if name != "HintInjectorEnv":
        raise AttributeError(f"module 'kibitz.hints' has no attribute {name!r}")
    return import_module("kibitz.hints.injector").HintInjectorEnv
