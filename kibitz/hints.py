"""`kibitz.hints` is the documented import path of the names in `kibitz.advice`."""

from kibitz.advice import Hint, HintAdapter
from kibitz.advice.gym_wrapper import HintInjectorEnv

__all__ = ["Hint", "HintAdapter", "HintInjectorEnv"]
