"""Hints: an adviser's act as features for a learner, from bots or a language model. `train` learns with them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kibitz.advice.features import Hint, HintAdapter

if TYPE_CHECKING:
    from kibitz.advice.gym_wrapper import HintInjectorEnv

__all__ = ["Hint", "HintAdapter", "HintInjectorEnv"]


def __getattr__(name: str) -> Any:
    """Imported when first used: the wrapper needs the language models, the adapter nothing."""
    if name != "HintInjectorEnv":
        raise AttributeError(f"module 'kibitz.advice' has no attribute {name!r}")
    return import_module("kibitz.advice.gym_wrapper").HintInjectorEnv
