"""Training: networks, PPO, REINFORCE, supervised experts, runs and checkpoints. Measuring players is in `evaluate`.

The package itself can be called: `kibitz.train(steps=..., out=...)` is `kibitz.train.start.train`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, *args: Any, **more: Any) -> dict[str, Any]:
        from kibitz.train.start import train

        return train(*args, **more)


sys.modules[__name__].__class__ = _Callable
