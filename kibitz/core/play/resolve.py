"""Rules by name, and mixes of them: a game's own (`heuristic`, `bayes`), and kinds with a prefix (`policy:RUN`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

import jax.numpy as jnp
from jax import Array

from kibitz.core.act import Act, Masks
from kibitz.core.errors import BadInput, NotHere
from kibitz.core.game import Game, Rule, choose
from kibitz.core.options import Wanted
from kibitz.core.play.player import Player, RulePlayer

# a kind of player is one line: its prefix, and who makes a rule of what follows it (loaded when named)
RULE_KINDS = {"policy:": "kibitz.train.opponents:rule_of_run"}
MOST = 16  # rules in a mix: all of them think, one is heard


def rule_named(game: Game, name: str) -> Rule | None:
    """The rule of this name, or None if it is a player that only lives on the host."""
    for prefix, maker in RULE_KINDS.items():
        if name.startswith(prefix):
            module, _, function = maker.partition(":")
            rule: Rule = here(getattr(import_module(module), function), name.removeprefix(prefix), game)
            return rule
    return game.rules.get(name)


def player_and_rule(game: Game, name: str) -> tuple[Player, Rule | None]:
    """Who can sit at the other side of an environment of tools; None for the rule of a player of the host."""
    if name == "human":
        raise BadInput("A human cannot be asked inside an environment; name another player.")
    rule = rule_named(game, name)
    if rule is not None:
        return RulePlayer(game, rule), rule
    found: Player = import_module("kibitz.players").player_named(game, name)  # loaded when named, as kinds are
    return found, None


def rule_for(game: Game, wanted: Wanted, find: Callable[[Game, str], Rule | None] = rule_named) -> Rule:
    """The rule of a name, or of a mix of names: one of them is drawn for each episode."""
    if isinstance(wanted, str):
        rule = find(game, wanted)
        if rule is None:
            known = ", ".join([*sorted(game.rules), *(f"{prefix}RUN" for prefix in RULE_KINDS)])
            raise BadInput(f"{game.name} has no player {wanted!r} that can be compiled; it has {known}.")
        return rule
    weights = list(wanted.values())
    if not 1 <= len(weights) <= MOST or not min(weights) >= 0 or not 0 < sum(weights) < float("inf"):
        raise BadInput(f"A mix of players needs 1 to {MOST} names with weights of at least 0, not all of them 0.")
    total = sum(weights)
    return mixed(tuple((rule_for(game, name, find), weight / total) for name, weight in wanted.items() if weight))


@lru_cache(maxsize=64)
def mixed(parts: tuple[tuple[Rule, float], ...]) -> Rule:
    """One of these rules, drawn by weight for each episode. Nobody is told which: a mix tells nothing."""
    rules, shares = [rule for rule, _ in parts], [share for _, share in parts]
    if len(rules) == 1:
        return rules[0]

    def start(settings: Any, seat: int, u: Array) -> Any:
        which = jnp.searchsorted(jnp.cumsum(jnp.asarray(shares[:-1])), u[0], side="right").astype(jnp.int32)
        return which, tuple(rule.start(settings, seat, u[1 : 1 + rule.uniforms]) for rule in rules)

    def pick(settings: Any, memory: Any, view: Any, masks: Masks, u: Array) -> tuple[Any, Act]:
        which, minds = memory
        thought = [
            rule.choose(settings, mind, view, masks, u[: rule.uniforms])
            for rule, mind in zip(rules, minds, strict=True)
        ]
        act = thought[0][1]
        for index, (_, other) in enumerate(thought[1:], 1):
            act = choose(which == index, other, act)
        return (which, tuple(mind for mind, _ in thought)), act

    def study(settings: Any, seat: int) -> Any:
        for rule in rules:
            settings = rule.study(settings, seat)
        return settings

    return Rule(
        name=" or ".join(rule.name for rule in rules),
        choose=pick,
        start=start,
        study=study,
        uniforms=1 + max(rule.uniforms for rule in rules),
        widths=((len(rules) - 1).bit_length(), tuple(rule.widths for rule in rules)),
    )


def here(make: Callable[..., Any], *values: Any) -> Any:
    """Runs and presets are this machine's: what is wrong with one is no fault of the name."""
    try:
        return make(*values)
    except BadInput as wrong:
        raise NotHere(str(wrong)) from None
