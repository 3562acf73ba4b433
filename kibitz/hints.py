"""`kibitz.hints` is the documented import path of the names in `kibitz.advice`."""

from kibitz.advice.adapter import HintAdapter, HintObservationEnv, HintObservationVectorEnv
from kibitz.advice.features import Hint, HintEncoder
from kibitz.advice.gym_wrapper import HintInjectorEnv
from kibitz.advice.vector_wrapper import HintInjectorVectorEnv

__all__ = [
    "Hint",
    "HintAdapter",
    "HintEncoder",
    "HintInjectorEnv",
    "HintInjectorVectorEnv",
    "HintObservationEnv",
    "HintObservationVectorEnv",
]
