"""Players as the episode loop sees them: it asks each for one act at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kibitz.core.bots import Bot
from kibitz.core.chance import uniforms
from kibitz.core.game import Game


class Exchange(NamedTuple):
    """What a model was asked and what it answered, for the operator's own records. Events never contain it."""

    messages: Sequence[Mapping[str, str]]  # role and content
    answer: str


@dataclass(frozen=True)
class Choice:
    """One act, and where it came from."""

    act: tuple[int, ...]  # a value for each head
    source: str  # the player or model that chose
    reason: str = ""  # for the seat's own eyes
    latency: float = 0.0  # seconds
    usage: Mapping[str, float] = field(default_factory=dict)  # tokens, money; failed answers included
    fallback: str = ""  # why the fallback bot chose instead; empty if it did not
    confidence: float | None = None  # 0..1, where the source says how sure it is
    failure: str = ""  # with `fallback`: the kind of failure, for counting
    exchange: Exchange | None = field(default=None, compare=False, repr=False)  # with a model, for one's own records

    def public(self) -> dict[str, Any]:
        """How the choice came about, without its reason: that may mention private values."""
        return {
            "source": self.source,
            "latency": self.latency,
            "usage": dict(self.usage),
            "fallback": self.fallback,
            "failure": self.failure,
        }


class PlayerFailed(RuntimeError):
    """Raised by `choose` when a player has no act; the fallback bot then plays the turn.

    The message is public. `aside` is for the player's own seat, because it may quote what only that seat may know.
    """

    def __init__(
        self,
        message: str,
        kind: str,
        aside: str = "",
        usage: Mapping[str, float] | None = None,
        exchange: Exchange | None = None,
    ) -> None:
        super().__init__(message)
        self.kind, self.aside, self.usage, self.exchange = kind, aside, dict(usage or {}), exchange


class Turn(NamedTuple):
    """Everything a player receives with the request for an act."""

    settings: Any  # the game's options as arrays
    seat: int  # 0 or 1
    number: int  # steps of the game so far
    view: Any  # what the seat may know
    masks: tuple[np.ndarray[Any, Any], ...]  # bool[size] each: the legal values of each head
    history: list[Mapping[str, Any]]  # {"seat", "act"} of every act so far, oldest first
    luck: Array  # u32[2], this seat's chance in this episode
    hint: Choice | None = None  # from the seat's adviser


class TurnRequest(NamedTuple):
    """What a player outside this process needs in order to answer; only its own seat may see `details`."""

    seconds: float | None  # time limit; None: unlimited
    details: Mapping[str, Any]


class Player(Protocol):
    name: str

    def begin(self, settings: Any, seat: int, luck: Array) -> None:
        """Starts a new episode; the player must forget the last one."""

    def choose(self, turn: Turn) -> Choice: ...

    # a player with a memory may have `follow(turn)`: called in place of `choose` where a record already
    # says what was chosen

    # a player that answers from outside the process may have `request(turn)`, which returns a TurnRequest:
    # called just before `choose`, and published as a `turn.requested` event


class BotPlayer:
    """A bot as a player of single episodes; it acts as it does inside compiled programs."""

    def __init__(self, game: Game, bot: Bot, name: str = "") -> None:
        self.name, self.bot = name or bot.name, bot
        self._memory: Any = None
        self._start, self._choose = _compiled(bot)

    def begin(self, settings: Any, seat: int, luck: Array) -> None:
        self._memory = self._start(settings, seat, luck)

    def choose(self, turn: Turn) -> Choice:
        self._memory, act = self._choose(
            turn.settings, self._memory, turn.view, turn.masks, turn.luck, turn.number, turn.seat
        )
        return Choice(tuple(np.asarray(act).tolist()), self.name)

    def follow(self, turn: Turn) -> None:
        """Updates the memory without choosing."""
        self.choose(turn)


def reported(player: Player, choice: Choice) -> dict[str, Any]:
    """How an environment's opponent answered. A bot takes no time, so that a seed repeats its observations exactly."""
    return choice.public() | ({"latency": 0.0} if isinstance(player, BotPlayer) else {})


@lru_cache(maxsize=64)
def _compiled(bot: Bot) -> tuple[Any, Any]:
    """The bot's `start` and `choose` for one game, compiled once for all of its players."""
    start = jax.jit(
        lambda settings, seat, luck: bot.start(settings, seat, uniforms(luck, 0, bot.uniforms)), static_argnums=1
    )

    def choose(
        settings: Any, memory: Any, view: Any, masks: Any, luck: Array, number: int, seat: int
    ) -> tuple[Any, Array]:
        masks, chance = jax.tree.map(jnp.asarray, masks), uniforms(luck, number + 1, bot.uniforms)
        memory, act = bot.choose(settings, memory, known_seat(view, seat), masks, chance)
        return memory, jnp.stack(act)  # fetched in one piece

    return start, jax.jit(choose, static_argnums=6)


def known_seat(view: Any, seat: int) -> Any:
    """The view with its seat as a Python number: bots index tables by it while they are traced."""
    return view._replace(seat=seat) if "seat" in getattr(view, "_fields", ()) else view
