"""Players by name: a game's rules (`heuristic`, `bayes`), `human`, and kinds with a prefix (`policy:RUN`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

from kibitz.core.errors import BadInput, NotHere
from kibitz.core.game import Game, Rule
from kibitz.core.player import Player, RulePlayer
from kibitz.players.human import HumanPlayer

# a kind of player is one line: its prefix, and who makes a rule of what follows it (loaded when named)
RULE_KINDS = {"policy:": "kibitz.train.advisers:rule_of_run"}


@lru_cache(maxsize=64)
def rule_named(game: Game, name: str) -> Rule | None:
    """The rule of this name, or None if it is a player that only lives on the host."""
    for prefix, maker in RULE_KINDS.items():
        if name.startswith(prefix):
            module, _, function = maker.partition(":")
            rule: Rule = _here(getattr(import_module(module), function), name.removeprefix(prefix), game)
            return rule
    return game.rules.get(name)


def player_named(game: Game, name: str) -> Player:
    """The player of this name, ready for the episode loop."""
    rule = rule_named(game, name)
    if rule is not None:
        return RulePlayer(game, rule)
    if name == "human":
        return HumanPlayer(game)
    if name.startswith("llm:"):
        llm: Player = _here(import_module("kibitz.players.llm").llm_player, game, name.removeprefix("llm:"))
        return llm
    known = ", ".join([*sorted(game.rules), "human", "policy:RUN", "llm:PRESET"])
    raise BadInput(f"There is no player {name!r} for {game.name}; there are {known}.")


def _here(make: Callable[..., Any], *values: Any) -> Any:
    """Runs and presets are this machine's: what is wrong with one is no fault of the name."""
    try:
        return make(*values)
    except BadInput as wrong:
        raise NotHere(str(wrong)) from None
