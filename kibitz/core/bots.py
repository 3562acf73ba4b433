"""Bots: players that are pure functions, so that they can run inside a compiled program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from kibitz.core.act import Act, Masks, sample

NO_HINTS = "none"
BATCH = "batch"  # the axis over which a program maps its games


@dataclass(frozen=True)
class Bot:
    """`choose(settings, memory, view, masks, u)` returns the new memory and the act.

    `memory` is whatever the bot wants to remember within an episode; `start(settings, seat, u)` makes
    the first one. Two hooks run once on the host, before anything is compiled: `disclose(settings, seat)`
    writes into the settings what others may know about this bot (a partner's style; the bot itself plays
    the same without it), and `precompute(settings, seat)` adds tables that the bot reads later, from
    settings in which every player has disclosed what it discloses.
    """

    name: str
    choose: Callable[[Any, Any, Any, Masks, Array], tuple[Any, Act]]
    start: Callable[[Any, int, Array], Any] = lambda settings, seat, u: ()
    disclose: Callable[[Any, int], Any] = lambda settings, seat: settings
    precompute: Callable[[Any, int], Any] = lambda settings, seat: settings
    uniforms: int = 0  # f32 uniforms that each call of `choose` and of `start` receives
    bit_widths: Any = ()  # bits of each leaf of the memory (0: carried unpacked)
    hints_from: str = NO_HINTS  # whose hints it hears, in words
    pinned: str = field(default="", compare=False)
    """The name under which another process finds this very bot; empty: `name`, or none does."""


@lru_cache(maxsize=64)
def random_bot(sizes: tuple[int, ...]) -> Bot:
    """Draws each head uniformly from its legal values."""

    def choose(settings: Any, memory: Any, view: Any, masks: Masks, u: Array) -> tuple[Any, Act]:
        return memory, sample(tuple(jnp.zeros(size) for size in sizes), masks, u)

    return Bot("random", choose, uniforms=len(sizes))


@lru_cache(maxsize=64)
def mixed(parts: tuple[tuple[Bot, float], ...]) -> Bot:
    """One of these bots, drawn by weight for each episode.

    All of them choose and one is used, because a batch cannot branch. A mix discloses nothing: neither
    seat knows which bot was drawn.
    """
    bots, shares = [bot for bot, _ in parts], [share for _, share in parts]
    if len(bots) == 1:
        return bots[0]

    def start(settings: Any, seat: int, u: Array) -> Any:
        drawn = jnp.searchsorted(jnp.cumsum(jnp.asarray(shares[:-1])), u[0], side="right").astype(jnp.int32)
        return drawn, tuple(bot.start(settings, seat, u[1 : 1 + bot.uniforms]) for bot in bots)

    def choose(settings: Any, memory: Any, view: Any, masks: Masks, u: Array) -> tuple[Any, Act]:
        drawn, memories = memory
        choices = [
            bot.choose(settings, own, view, masks, u[: bot.uniforms]) for bot, own in zip(bots, memories, strict=True)
        ]
        act = choices[0][1]
        for index, (_, other) in enumerate(choices[1:], 1):
            act = where(drawn == index, other, act)
        return (drawn, tuple(own for own, _ in choices)), act

    def precompute(settings: Any, seat: int) -> Any:
        for bot in bots:
            settings = bot.precompute(settings, seat)
        return settings

    return Bot(
        name=" or ".join(bot.name for bot in bots),
        choose=choose,
        start=start,
        precompute=precompute,
        uniforms=1 + max(bot.uniforms for bot in bots),
        bit_widths=((len(bots) - 1).bit_length(), tuple(bot.bit_widths for bot in bots)),
        hints_from=" or ".join(dict.fromkeys(bot.hints_from for bot in bots)),
    )


@lru_cache(maxsize=64)
def shuffled(bot: Bot) -> Bot:
    """An adviser whose act goes to the next game of the batch: as good in sum, but for another position.

    It needs a program that maps its games over the axis BATCH. The act may be illegal where it arrives.
    """

    def choose(settings: Any, memory: Any, view: Any, masks: Masks, u: Array) -> tuple[Any, Act]:
        memory, act = bot.choose(settings, memory, view, masks, u)
        games = jax.lax.axis_size(BATCH)
        order = [(game, (game + 1) % games) for game in range(games)]
        return memory, tuple(jax.lax.ppermute(jnp.asarray(part), BATCH, order) for part in act)

    return replace(bot, name=f"shuffled {bot.name}", choose=choose)


def seated(settings: Any, players: Mapping[int, Bot], advisers: Mapping[int, Bot] | None = None) -> Any:
    """Settings after the bots of these seats have disclosed what they disclose, then precomputed.

    An adviser precomputes too, but discloses nothing: what it is says nothing about the player it advises.
    """
    for seat, bot in players.items():
        settings = bot.disclose(settings, seat)
    for seat, bot in [*players.items(), *(advisers or {}).items()]:
        settings = bot.precompute(settings, seat)
    return settings


def where(condition: Array, yes: Any, no: Any) -> Any:
    """`jnp.where` for trees."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
