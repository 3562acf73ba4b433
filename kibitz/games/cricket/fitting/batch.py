"""Two captains and a batch of matches as one compiled turn; simulations and benchmarks are loops around it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from kibitz.core.bots import Bot
from kibitz.core.chance import uniforms
from kibitz.core.xla.packing import Layout, fusion_barrier
from kibitz.games.cricket.laws.start import NEW_UNIFORMS, new
from kibitz.games.cricket.laws.state import WIDTHS, State, start
from kibitz.games.cricket.laws.step import STEP_UNIFORMS, Settings, legal, step
from kibitz.games.cricket.laws.view import view

Words = Any  # a packed batch: tuples of u32[matches]
_ACT_BITS = ((3, 3, 2, 4, 4),) * 2


class Match(NamedTuple):
    """What a batch carries from ball to ball."""

    state: State
    minds: tuple[Any, Any]


class Batch(NamedTuple):
    """`begin` makes packed matches from lucks u32[n, 2]; `turn` plays a ball of each."""

    width: int  # uniforms a turn needs
    layout: Layout
    begin: Callable[[Settings, Array], Words]
    turn: Callable[[Settings, Words, Array, Any], Words]  # settings, matches, f32[width, n], the number 1


@lru_cache(maxsize=16)
def batch(captains: tuple[Bot, Bot]) -> Batch:
    """The program of two captains; seat 0 is the first."""
    zero = jnp.int32(0)
    minds = tuple(bot.start(None, 0, jnp.zeros(bot.uniforms)) for bot in captains)
    example = Match(start((zero, zero), (zero, zero, zero), zero), (minds[0], minds[1]))
    layout = Layout(Match(WIDTHS, (captains[0].bit_widths, captains[1].bit_widths)), example)
    chosen = Layout(
        (_ACT_BITS, (captains[0].bit_widths, captains[1].bit_widths)),
        (((zero,) * 5, (zero,) * 5), (minds[0], minds[1])),
    )

    def fresh(settings: Settings, luck: Array) -> Any:
        u = uniforms(luck, 0, NEW_UNIFORMS + sum(bot.uniforms for bot in captains))
        cut = NEW_UNIFORMS + captains[0].uniforms
        first = captains[0].start(settings, 0, u[NEW_UNIFORMS:cut])
        return layout.pack(Match(new(settings, u[:NEW_UNIFORMS]), (first, captains[1].start(settings, 1, u[cut:]))))

    def choose(settings: Settings, packed: Any, u: Array) -> Any:
        match = layout.unpack(packed)
        minds, acts, used = [], [], STEP_UNIFORMS
        for seat, bot in enumerate(captains):
            seen, masks = view(settings, match.state, seat), legal(settings, match.state, seat)
            mind, act = bot.choose(settings, match.minds[seat], seen, masks, u[used : used + bot.uniforms])
            minds.append(mind)
            acts.append(act)
            used += bot.uniforms
        return chosen.pack(((acts[0], acts[1]), (minds[0], minds[1])))

    def bowl(settings: Settings, packed: Any, words: Any, u: Array) -> Any:
        acts, minds = chosen.unpack(words)
        after, _, _ = step(settings, layout.unpack(packed).state, acts, u[:STEP_UNIFORMS])
        return layout.pack(Match(after, minds))

    def turn(settings: Settings, packed: Words, u: Array, one: Any) -> Words:
        words = fusion_barrier(one, lambda: jax.vmap(choose, in_axes=(None, 0, 1))(settings, packed, u))
        return fusion_barrier(one, lambda: jax.vmap(bowl, in_axes=(None, 0, 0, 1))(settings, packed, words, u))

    width = STEP_UNIFORMS + sum(bot.uniforms for bot in captains)
    return Batch(width, layout, jax.vmap(fresh, in_axes=(None, 0)), turn)
