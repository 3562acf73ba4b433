"""The record a game provides.

Rules are pure functions of one game. Settings and chance are arguments; `vmap` is somebody else's
line. To write a game, fill in `Game` and run `kibitz.core.check.check_game` on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kibitz.core.act import Act, Head, Masks, Matters
from kibitz.core.errors import BadInput

SEATS = (0, 1)


@dataclass(frozen=True)
class Rule:
    """A player that is a pure function, so that it can live inside a compiled program.

    `choose(settings, memory, view, masks, u)` gives the new memory and the act. `memory` is
    whatever the player wants to remember within an episode; `start(settings, seat, u)` gives the
    first one. Two hooks run once on the host, before anything is compiled: `tell(settings, seat)`
    writes what others may know about this player into the settings (a partner's temper; the player
    itself plays the same without it), and `study(settings, seat)` lets it work out tables from
    settings in which everybody has told.
    """

    name: str
    choose: Callable[[Any, Any, Any, Masks, Array], tuple[Any, Act]]
    start: Callable[[Any, int, Array], Any] = lambda settings, seat, u: ()
    tell: Callable[[Any, int], Any] = lambda settings, seat: settings
    study: Callable[[Any, int], Any] = lambda settings, seat: settings
    uniforms: int = 0  # how many each call of `choose` and of `start` is given
    widths: Any = ()  # bits of each leaf of the memory (0: carried as it is)


@dataclass(frozen=True, eq=False)
class Game:
    """Everything the rest of kibitz may ask of a game.

    `settings` is a tree of arrays made by `options(...).settings()`: turn limits, a partner's
    temper, tables of contexts. It is an argument everywhere, so one batch may mix settings.
    """

    name: str
    version: int  # raised whenever the same acts could lead elsewhere: old checkpoints are refused
    heads: tuple[Head, ...]
    matters: Matters  # bool[size of the first head, heads]
    simultaneous: bool  # both seats choose at once; otherwise they alternate
    options: type[Any]  # pydantic model of what a user may set, with `.settings()`
    new: Callable[[Any, Array], Any]  # settings, f32[new_uniforms] -> state
    new_uniforms: int
    to_act: Callable[[Any], Array]  # state -> bool[2]
    legal: Callable[[Any, Any, int], Masks]  # settings, state, seat -> a mask for each head, never empty
    step: Callable[[Any, Any, tuple[Act, Act], Array], tuple[Any, Array, Array]]
    """settings, state, both acts, f32[step_uniforms] -> state, rewards f32[2], terminated bool[].

    The act of a seat that is not to act is ignored; a state that is over stays as it is.
    """
    step_uniforms: int
    longest: Callable[[Any], int]  # settings -> steps after which every episode is over
    view: Callable[[Any, Any, int], Any]  # settings, state, seat -> what the seat may know
    features: Callable[[Any, Any], Array]  # settings, view -> f32[n], scaled for a network
    widths: Any  # bits of each leaf of the state
    rules: Mapping[str, Rule]  # players by name; `random` and `heuristic` are always there
    scale: Callable[[Any], float]  # settings -> what a good return is about; learners divide by it
    reference: str  # the rule others are measured against
    score: Callable[[Any, Any], Mapping[str, Array]]
    """settings, final state -> f32[2] for each measure; `ceiling` is one of them."""
    fields: Callable[[Any, Masks], Mapping[str, Any]]  # view, masks -> the answer's fields, open values
    describe: Callable[[Any, Any, list[Mapping[str, Any]]], Mapping[str, str]]
    """settings, view, history -> prompt variables."""
    frame: Callable[[Any, Any, int | None], Mapping[str, Any]]
    """settings, state, seat or nobody -> what the page draws for it."""
    tell: Callable[[Mapping[str, Any], Mapping[str, Any]], str]
    """An event's type and payload, the whole frame after it -> a line of commentary, or ""."""
    say: Callable[[Act], str]  # an act in words
    parse: Callable[[str, Any, Masks], tuple[int, ...]]
    """What a person typed, the view, the masks -> an act; BadInput says what would be right."""
    brief: Callable[[Any], str]  # view -> the position in a sentence or two, for the person in the seat
    legal_text: Callable[[Any, Masks], str]  # view, masks -> what a person may type now
    contexts: Callable[[str], Mapping[str, Any]]
    """What `--contexts` names (`uniform` or a file) -> options that play on it."""
    private: Callable[[Any, int], Mapping[str, Any]]  # state, seat -> what only that seat knows
    cast: Callable[[Any, Any], Mapping[str, Any]] = lambda settings, state: {}
    """settings, first state -> names and other facts that stay, for whoever draws the episode."""
    calls: Callable[[Act, int, Mapping[str, Any]], list[dict[str, Any]]] = lambda act, seat, frame: []
    """act, seat, frame before it -> the same as tool calls, where the game has tools."""
    review: Callable[[Any, list[tuple[Any, Any]], Any], Mapping[str, Any]] = lambda settings, past, state: {}
    """settings, (state, acts) of every step, final state -> what can be said once it is over."""
    built_for: Any = None  # options this record fits (head sizes, features); None: the defaults

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(head.size for head in self.heads)

    def rule(self, name: str) -> Rule:
        if name not in self.rules:
            known = ", ".join(sorted(self.rules))
            raise BadInput(f"{self.name} has no player {name!r}; it has {known}.")
        return self.rules[name]

    @property
    def plain_options(self) -> Any:
        """The least special options that fit this record."""
        return self.options() if self.built_for is None else self.built_for

    @cached_property
    def example(self) -> Any:
        """A state of zeros, for its shapes and types."""
        return blank(lambda settings: self.new(settings, jnp.zeros(self.new_uniforms)), self.plain_settings)

    @property
    def plain_settings(self) -> Any:
        with jax.ensure_compile_time_eval():  # first asked for while something is traced, they would be tracers
            return self.plain_options.settings()


def blank(function: Callable[..., Any], *arguments: Any) -> Any:
    """What it would give, as zeros: for shapes and types, without compiling or computing anything."""
    return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), jax.eval_shape(function, *arguments))


def first_sight(game: Game, settings: Any) -> tuple[Any, tuple[Any, ...]]:
    """What seat 0 sees of some first position, and what it may do there: on the host."""
    view, masks = jax.device_get(_look(game)(settings))
    return view, masks


@lru_cache(maxsize=16)
def _look(game: Game) -> Callable[[Any], Any]:
    def look(settings: Any) -> Any:
        state = game.new(settings, jnp.zeros(game.new_uniforms))
        return game.view(settings, state, 0), game.legal(settings, state, 0)

    return jax.jit(look)


def seated(settings: Any, players: Mapping[int, Rule], advisers: Mapping[int, Rule] | None = None) -> Any:
    """Settings in which the players of these seats have told about themselves and then studied.

    An adviser studies too, but what it is says nothing about the player who hears it.
    """
    for seat, rule in players.items():
        settings = rule.tell(settings, seat)
    for seat, rule in [*players.items(), *(advisers or {}).items()]:
        settings = rule.study(settings, seat)
    return settings


def game_over(game: Game, state: Any) -> Array:
    """Nobody is to act."""
    return ~jnp.any(game.to_act(state))


def choose(condition: Array, yes: Any, no: Any) -> Any:
    """`where` for trees."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def matters_always(heads: tuple[Head, ...]) -> Matters:
    """For games in which every head counts whatever the first one says."""
    return np.ones((heads[0].size, len(heads)), bool)
