"""Players that are pure functions."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array
from kibitz.core.act import Act, Masks
from kibitz.core.bots import Bot

from sealed_bids.options import Settings
from sealed_bids.rules import View


def half(settings: Settings, memory: Any, view: View, masks: Masks, u: Array) -> tuple[Any, Act]:
    """Bids half of the value, and no more than twice an even share of the budget."""
    share = 2 * view.budget // jnp.maximum(view.left, 1)
    return memory, (jnp.minimum(jnp.minimum((view.value + 1) // 2, share), view.budget),)


def one_below(settings: Settings, memory: Any, view: View, masks: Masks, u: Array) -> tuple[Any, Act]:
    """Bids one less than the value."""
    return memory, (jnp.minimum(view.value - 1, view.budget),)


def one_point(settings: Settings, memory: Any, view: View, masks: Masks, u: Array) -> tuple[Any, Act]:
    """Bids a single point."""
    return memory, (jnp.minimum(1, view.budget),)


BOTS = {bot.name: bot for bot in (Bot("heuristic", half), Bot("eager", one_below), Bot("miser", one_point))}
