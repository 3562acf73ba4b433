"""Players by name: `heuristic`, `bayes`, `human`, a game's own rules."""

from __future__ import annotations

from kibitz.core.errors import BadInput
from kibitz.core.game import Game, Rule
from kibitz.core.player import Player, RulePlayer
from kibitz.players.human import HumanPlayer


def rule_named(game: Game, name: str) -> Rule | None:
    """The rule of this name, or None if it is a player that only lives on the host."""
    return game.rules.get(name)


def player_named(game: Game, name: str) -> Player:
    """The player of this name, ready for the episode loop."""
    rule = rule_named(game, name)
    if rule is not None:
        return RulePlayer(game, rule)
    if name == "human":
        return HumanPlayer(game)
    known = ", ".join([*sorted(game.rules), "human"])
    raise BadInput(f"There is no player {name!r} for {game.name}; there are {known}.")
