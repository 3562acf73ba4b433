"""Hints: what an adviser whispers, as numbers in the learner's input."""

from kibitz.hints.adapter import Hint, HintAdapter

__all__ = ["Hint", "HintAdapter"]
