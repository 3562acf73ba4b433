"""From a player's name to a player: the game's own bots, kinds with a prefix (`policy:RUN`, `llm:PRESET`), and a
user's own objects (`module:NAME`).

Kinds come from the entry-point group `kibitz.players`, so any package may add one. A `Resolver` also
decides which files a name may reach: every one for a user's own command, only the runs folder for a
server's clients.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from kibitz.core.bots import Bot, mixed
from kibitz.core.errors import BadInput, NotFound
from kibitz.core.game import Game
from kibitz.core.options import PlayerSpec
from kibitz.core.play.custom import OBJECT_NAME, imported_player
from kibitz.core.play.player import BotPlayer, Player
from kibitz.core.registry import PLAYERS, load, registered
from kibitz.core.system.logs import log_once
from kibitz.core.system.paths import is_folder

log = logging.getLogger("kibitz")
MAX_BOTS_IN_MIX = 16  # all of them choose, one is used
HintChoice: TypeAlias = Literal["none", "own"]
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(#\d{1,4})?")


class InvalidName(BadInput):
    """The name is malformed, whatever this machine has."""


class PlayerInfo(NamedTuple):
    """One line of a list of players."""

    name: str
    kind: str  # bot, policy, llm, ...
    why_not: str = ""  # why it cannot play here; empty if it can
    about: str = ""


@dataclass(frozen=True)
class PlayerKind:
    """The object that an entry point of `kibitz.players` provides. The entry point's name is the prefix."""

    make: Callable[[Game, str, Resolver], Bot | Player]  # game, what follows the prefix, resolver
    placeholder: str  # what follows the prefix, for messages: `RUN`, `PRESET`; empty: the prefix is the whole name
    list: Callable[[Game, Resolver], list[PlayerInfo]] = lambda game, resolver: []
    compiled: bool = False  # `make` returns a Bot, which can run inside a compiled program
    interactive: bool = False  # a person answers, so it cannot sit inside an environment
    pin: Callable[[str], str] = lambda name: name
    """What follows the prefix -> the same player on another machine and at a later time."""


@dataclass(frozen=True)
class Resolver:
    """`runs` is the only folder whose policies may be named; None allows any path, relative to here."""

    runs: Path | None = None
    hint: HintChoice | None = None
    """Whether a policy that was trained with hints hears them; None: yes, unless a language model gives them."""

    def find(self, game: Game, name: str) -> Bot | Player:
        """The bot or player of this name; BadInput lists the names there are."""
        name = game.aliases.get(name, name)
        if name in game.bots:
            return game.bots[name]
        prefix, colon, rest = name.partition(":")
        kind = _kind_of(name)
        if kind is None and self.runs is None and OBJECT_NAME.fullmatch(name):  # a server imports nothing for a client
            return imported_player(game, name)
        if kind is None:
            raise BadInput(f"There is no player {name!r} for {game.name}; choose one of {', '.join(self.forms(game))}.")
        if bool(colon) != bool(kind.placeholder):
            raise BadInput(f"{name!r} is not the name of a player; write {_form(prefix, kind)}.")
        try:
            return kind.make(game, rest, self)
        except BadInput as error:  # runs and presets belong to this machine: the name itself is well formed
            raise error if isinstance(error, NotFound | InvalidName) else NotFound(str(error)) from None

    def bot(self, game: Game, name: str) -> Bot | None:
        """The bot of this name; None if it names a player that only exists on the host."""
        name = game.aliases.get(name, name)
        if name in game.bots:
            return game.bots[name]
        kind = _kind_of(name)
        compiled = OBJECT_NAME.fullmatch(name) if kind is None else kind.compiled
        found = self.find(game, name) if compiled else None
        return found if isinstance(found, Bot) else None

    def player(self, game: Game, name: str) -> Player:
        """The player of this name, ready for the episode loop."""
        found = self.find(game, name)
        return BotPlayer(game, found, "" if name in game.bots else name) if isinstance(found, Bot) else found

    def knows(self, game: Game, name: str) -> bool:
        """Whether the name is well formed; a run or preset may still be missing on this machine."""
        name = game.aliases.get(name, name)
        return name in game.bots or _kind_of(name) is not None

    def run_path(self, name: str) -> str:
        """Where `policy:NAME` is read from under this resolver's path policy."""
        if self.runs is None:
            return name
        if not RUN_NAME.fullmatch(name):
            raise InvalidName(f"{name!r} is not the name of a run; /runs.json lists those there are.")
        if not is_folder(self.runs / name.partition("#")[0]):
            raise NotFound(f"There is no run {name!r} here; /runs.json lists those there are.")
        return str(self.runs / name)

    def forms(self, game: Game) -> list[str]:
        """Every name a user may write, with a placeholder for what differs from machine to machine."""
        own = [] if self.runs is not None else ["module:NAME"]
        return [*sorted(game.bots), *(_form(prefix, kind) for prefix, kind in sorted(usable_kinds().items())), *own]

    def players(self, game: Game) -> list[PlayerInfo]:
        """Everything that can play this game here."""
        listed = [PlayerInfo(name, "bot") for name in game.bots]
        for prefix, kind in usable_kinds().items():
            try:
                listed += kind.list(game, self)
            except Exception as error:  # a foreign kind hides its own players, nothing else
                listed.append(PlayerInfo(f"{prefix}:", prefix, f"{type(error).__name__}: {error}"))
        return listed


def _kind_of(name: str) -> PlayerKind | None:
    entry = registered(PLAYERS).get(name.partition(":")[0])
    return None if entry is None else load(entry)


def usable_kinds() -> dict[str, PlayerKind]:
    """Every kind that can be loaded, by prefix. Logs the others: a broken package must not take the rest down."""
    kinds: dict[str, PlayerKind] = {}
    for prefix, entry in registered(PLAYERS).items():
        try:
            kinds[prefix] = load(entry)
        except BadInput as error:
            log_once(log, str(error))
    return kinds


def _form(prefix: str, kind: PlayerKind) -> str:
    return f"{prefix}:{kind.placeholder}" if kind.placeholder else prefix


ANY_PATH = Resolver()


def bot_named(game: Game, name: str) -> Bot | None:
    """The bot of this name, or None if it is a player that only lives on the host."""
    return ANY_PATH.bot(game, name)


def player_named(game: Game, name: str) -> Player:
    """The player of this name, ready for the episode loop."""
    return ANY_PATH.player(game, name)


def pinned(game: Game, name: str) -> str:
    """A name under which another process finds the same player, whatever happens to its run meanwhile."""
    kind = None if game.aliases.get(name, name) in game.bots else _kind_of(name)
    prefix, colon, rest = name.partition(":")
    return name if kind is None else prefix + colon + kind.pin(rest)


def player_and_bot(game: Game, name: str, resolver: Resolver = ANY_PATH) -> tuple[Player, Bot | None]:
    """Who takes the other seat of a tool-calling environment; the bot is None for a player of the host."""
    kind = None if name in game.bots else _kind_of(name)
    if kind is not None and kind.interactive:
        raise BadInput(f"{name!r} cannot be asked inside an environment; name another player.")
    found = resolver.find(game, name)
    return (BotPlayer(game, found), found) if isinstance(found, Bot) else (found, None)


def bot_for(game: Game, spec: PlayerSpec, find: Callable[[Game, str], Bot | None] = bot_named) -> Bot:
    """The bot of a name, or of a mix of names: one of them is drawn for each episode."""
    if isinstance(spec, str):
        bot = find(game, spec)
        if bot is None:
            kinds = usable_kinds().items()
            known = [*sorted(game.bots), *(_form(prefix, kind) for prefix, kind in kinds if kind.compiled)]
            raise BadInput(f"{game.name} has no player {spec!r} that can be compiled; it has {', '.join(known)}.")
        return bot
    weights = list(spec.values())
    if not 1 <= len(weights) <= MAX_BOTS_IN_MIX or not min(weights) >= 0 or not 0 < sum(weights) < float("inf"):
        raise BadInput(
            f"A mix of players needs 1 to {MAX_BOTS_IN_MIX} names with weights of at least 0, not all of them 0."
        )
    total = sum(weights)
    return mixed(tuple((bot_for(game, name, find), weight / total) for name, weight in spec.items() if weight))
