"""How well players do: many episodes, packs of scenarios, means with intervals. Training is in `train`.

The package itself can be called: `kibitz.evaluate(player, ...)` is `kibitz.evaluate.library.evaluate`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, *args: Any, **more: Any) -> dict[str, Any]:
        from kibitz.evaluate.library import evaluate

        return evaluate(*args, **more)


sys.modules[__name__].__class__ = _Callable
