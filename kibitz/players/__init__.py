"""Players by name: every rule (`core/named.py`), `human`, and language models (`llm:PRESET`)."""

from __future__ import annotations

from importlib import import_module

from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.play.player import Player, RulePlayer
from kibitz.core.play.resolve import here, rule_named
from kibitz.players.human import HumanPlayer


def player_named(game: Game, name: str) -> Player:
    """The player of this name, ready for the episode loop."""
    rule = rule_named(game, name)
    if rule is not None:
        return RulePlayer(game, rule)
    if name == "human":
        return HumanPlayer(game)
    if name.startswith("llm:"):
        llm: Player = here(import_module("kibitz.players.llm").llm_player, game, name.removeprefix("llm:"))
        return llm
    known = ", ".join([*sorted(game.rules), "human", "policy:RUN", "llm:PRESET"])
    raise BadInput(f"There is no player {name!r} for {game.name}; there are {known}.")
