"""The words of a player that is still thinking, for watchers who may see them."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

HEAR: ContextVar[Callable[[str], None] | None] = ContextVar("HEAR", default=None)
"""Set by the caller of `choose`. A player that receives its answer in pieces calls it with all of the text so far."""
