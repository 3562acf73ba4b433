"""Hints: what an adviser whispers, as numbers in the learner's input."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kibitz.advice.features import Hint, HintAdapter

if TYPE_CHECKING:
    from kibitz.advice.gym_wrapper import HintInjectorEnv

__all__ = ["Hint", "HintAdapter", "HintInjectorEnv"]


def __getattr__(name: str) -> Any:
    """Late: the wrapper needs players and language models, the adapter nothing."""
    if name != "HintInjectorEnv":
        raise AttributeError(f"module 'kibitz.advice' has no attribute {name!r}")
    return import_module("kibitz.advice.gym_wrapper").HintInjectorEnv
