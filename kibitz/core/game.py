"""The record a game provides: identity, rules, learning, bots, measures, words, drawing and styles.

Rules are pure functions of one game. Settings and chance are arguments; callers add the batch axis.
Only `Rules` is mandatory. To write a game, fill in `Game` and run `kibitz.check_game` on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Generic, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import TypeVar

from kibitz.core.act import Act, Head, Masks, Matters
from kibitz.core.bots import Bot, random_bot
from kibitz.core.errors import BadInput
from kibitz.core.styles import PlayStyles
from kibitz.core.words import GENERIC, Words, generic_words

SEATS = (0, 1)

Settings = TypeVar("Settings", default=Any)  # a tree of arrays, made by `options(...).settings()`
State = TypeVar("State", default=Any)  # a NamedTuple of scalars
View = TypeVar("View", default=Any)  # a NamedTuple: what one seat may know


@dataclass(frozen=True)
class Rules(Generic[Settings, State, View]):
    """The game itself. Settings are an argument everywhere, so one batch may mix settings."""

    new: Callable[[Settings, Array], State]  # settings, f32[new_uniforms]
    to_act: Callable[[State], Array]  # bool[2]; the state alone says whose turn it is
    legal: Callable[[Settings, State, int], Masks]  # settings, state, seat -> a mask per head, never empty
    step: Callable[[Settings, State, tuple[Act, Act], Array], tuple[State, Array, Array]]
    """settings, state, both acts, f32[step_uniforms] -> state, rewards f32[2], terminated bool[].

    `step` ignores the act of a seat that is not to act, and leaves a finished state unchanged.
    """
    view: Callable[[Settings, State, int], View]  # settings, state, seat
    max_steps: Callable[[Settings], int]  # steps after which every episode is over
    simultaneous: bool = False  # both seats choose at once; otherwise they alternate
    takes_illegal_acts: bool = False
    """`step` lets any act with a closed value, or one outside its head, lose the turn. Otherwise `step` never receives
    one: environments put the head's first legal value in its place."""
    new_uniforms: int = 0
    step_uniforms: int = 0


def view_features(settings: Any, view: Any) -> Array:
    """Every number of the view, unscaled."""
    leaves = [jnp.ravel(jnp.asarray(leaf, jnp.float32)) for leaf in jax.tree.leaves(view)]
    return jnp.concatenate(leaves)


@dataclass(frozen=True)
class Learning(Generic[Settings, View]):
    """What a learner needs beyond the rules."""

    features: Callable[[Settings, View], Array] = view_features  # f32[n], scaled for a network
    matters: Matters | None = None  # bool[size of the first head, heads]; None: every head always matters
    bit_widths: Any = None  # bits of each leaf of the state (0: carried unpacked); None: nothing is packed
    scale: Callable[[Settings], float] = lambda settings: 1.0  # the size of a good return; learners divide by it


@dataclass(frozen=True)
class Measures(Generic[Settings, State]):
    """How well an episode went, beyond its returns."""

    score: Callable[[Settings, State], Mapping[str, Array]] = lambda settings, state: {}
    """settings, final state -> f32[2] per measure. `ceiling`, where there is one, is the best possible return."""


@dataclass(frozen=True)
class Page:
    """The files that draw a game in the cockpit, inside the game's own package."""

    folder: Path
    module: str  # an ECMAScript module in the folder; a style sheet of the same name belongs to it


class Summary(NamedTuple):
    """A frame in one line, for lists of episodes and share cards."""

    sides: tuple[str, str] | None = None  # names of the sides, where they have names beside their players'
    score: tuple[str, str] = ("", "")  # by seat, as people write it: "142/6 (20)"
    level: float | None = None  # seat 0's standing from 0 to 1, such as its win probability


@dataclass(frozen=True)
class Drawing(Generic[Settings, State]):
    """What people see. Everything here is public except `private`."""

    frame: Callable[[Settings, State], Mapping[str, Any]] = lambda settings, state: {}  # what the page draws
    commentary: Callable[[Mapping[str, Any], Mapping[str, Any]], str] = lambda event, frame: ""
    """An event (type, payload, players) and the frame after it -> a line of commentary, or ""."""
    private: Callable[[Settings, State, int], Mapping[str, Any]] = lambda settings, state, seat: {}
    """settings, state, seat -> what only that seat knows."""
    cast: Callable[[Settings, State], Mapping[str, Any]] = lambda settings, state: {}
    """settings, first state -> names and other facts that stay the same throughout the episode."""
    tool_calls: Callable[[Act, int, Mapping[str, Any]], list[dict[str, Any]]] = lambda act, seat, frame: []
    """act, seat, frame before it -> the same act as tool calls, where the game has tools."""
    review: Callable[[Settings, State, Sequence[Any]], Mapping[str, Any]] = lambda settings, state, past: {}
    """settings, final state, (state, acts) of every step -> what can be said after the end."""
    summary: Callable[[Mapping[str, Any]], Summary] = lambda frame: Summary()
    level: str = ""  # what `Summary.level` is, for people: "win probability"
    page: Page | None = None  # None: the cockpit's generic page draws the frame
    public_rewards: bool = False  # whether every watcher may see what a step paid


class QuickStart(NamedTuple):
    """A game that the home page starts in one click."""

    title: str  # what the button says
    players: tuple[str, str]  # `human` is the visitor
    options: Mapping[str, Any] = {}


def _only_uniform(name: str) -> Mapping[str, Any]:
    if name != "uniform":
        raise BadInput(f"This game draws its own contexts; omit --contexts instead of naming {name!r}.")
    return {}


@dataclass(frozen=True, eq=False)
class Game(Generic[Settings, State, View]):
    """Everything the rest of kibitz needs to know about a game."""

    name: str  # a Python identifier
    heads: tuple[Head, ...]
    options: type[Any]  # an `Options` model: what a user may set; `.settings()` makes the arrays
    rules: Rules[Settings, State, View]
    title: str = ""
    version: int = 1  # raise it when the same acts could lead elsewhere: old checkpoints are then refused
    learning: Learning[Settings, View] = field(default_factory=Learning)
    bots: Mapping[str, Bot] = field(default_factory=dict)  # `random` is always there
    aliases: Mapping[str, str] = field(default_factory=dict)  # other names of players; `expert` is the reference
    reference: str = ""  # the bot that others are measured against; default `heuristic`, else `random`
    greedy: str = ""  # the bot that gives hints with `hints.expert: greedy`; default `heuristic`, if there is one
    measures: Measures[Settings, State] = field(default_factory=Measures)
    words: Words = GENERIC  # default: generic_words(heads)
    drawing: Drawing[Settings, State] = field(default_factory=Drawing)
    styles: PlayStyles = field(default_factory=PlayStyles)  # traits of play that a learner can be paid for
    contexts: Callable[[str], Mapping[str, Any]] = _only_uniform
    """What `--contexts` names (`uniform` or a file) -> options that play on it."""
    packs: Callable[[], Any] | None = None  # a `PackShelf`, loaded when first used
    tool_env: Callable[[], type[Any]] | None = None  # the environment for agents that call tools; None: the generic one
    default_players: tuple[str, str] = ("", "")  # the players if the user names none
    starts: tuple[QuickStart, ...] = ()  # default: play, and watch, with the default players
    default_options: Any = None  # options this record fits (head sizes, features); default `options()`

    def __post_init__(self) -> None:
        def default(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        default("title", self.title or self.name.replace("_", " ").capitalize())
        default("bots", {**self.bots} if "random" in self.bots else {**self.bots, "random": random_bot(self.sizes)})
        default("reference", self.reference or self.fallback)
        expert = {} if "expert" in self.bots else {"expert": self.reference}
        default("aliases", {**self.aliases, **expert})
        default("greedy", self.greedy or ("heuristic" if "heuristic" in self.bots else ""))
        first, second = self.default_players
        default("default_players", (first or self.fallback, second or self.fallback))
        play = QuickStart(f"Play {self.title}", ("human", self.default_players[1]))
        default("starts", self.starts or (play, QuickStart(f"Watch {self.title}", self.default_players)))
        if self.words is GENERIC:
            default("words", generic_words(self.heads))
        if self.default_options is None:
            default("default_options", self.options())

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(head.size for head in self.heads)

    @property
    def fallback(self) -> str:
        """The bot that plays a turn for a player that failed."""
        return "heuristic" if "heuristic" in self.bots else "random"

    def bot(self, name: str) -> Bot:
        if name not in self.bots:
            raise BadInput(f"{self.name} has no player {name!r}; it has {', '.join(sorted(self.bots))}.")
        return self.bots[name]

    @cached_property
    def matters(self) -> Matters:
        """bool[size of the first head, heads]"""
        given = self.learning.matters
        return np.ones((self.heads[0].size, len(self.heads)), bool) if given is None else given

    @cached_property
    def example(self) -> Any:
        """A state of zeros, for its shapes and types."""
        return blank(
            lambda settings: self.rules.new(settings, jnp.zeros(self.rules.new_uniforms)), self.default_settings
        )

    @cached_property
    def bit_widths(self) -> Any:
        given = self.learning.bit_widths
        return jax.tree.map(lambda leaf: 0, self.example) if given is None else given

    @property
    def default_settings(self) -> Any:
        with jax.ensure_compile_time_eval():  # the first caller may be tracing; its tracers must not leak in here
            return self.default_options.settings()


def blank(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function would return, as zeros: shapes and types without compiling or computing anything."""
    return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), jax.eval_shape(function, *arguments))


def first_view(game: Game, settings: Any) -> tuple[Any, tuple[Any, ...]]:
    """Seat 0's view of a first position and its legal acts there, on the host."""
    view, masks = jax.device_get(_first_view(game)(settings))
    return view, masks


@lru_cache(maxsize=16)
def _first_view(game: Game) -> Callable[[Any], Any]:
    def observe(settings: Any) -> Any:
        state = game.rules.new(settings, jnp.zeros(game.rules.new_uniforms))
        return game.rules.view(settings, state, 0), game.rules.legal(settings, state, 0)

    return jax.jit(observe)


def game_over(game: Game, state: Any) -> Array:
    """Whether neither seat is to act."""
    return ~jnp.any(game.rules.to_act(state))
