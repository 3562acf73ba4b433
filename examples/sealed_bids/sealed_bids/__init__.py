"""Sealed bids: a game for kibitz. `GAME` is the record that its entry point names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kibitz.core.game import Drawing, Game, Learning, Measures, Rules
from kibitz.core.words import generic_words

from sealed_bids import rules
from sealed_bids.bots import BOTS
from sealed_bids.options import GameOptions, Settings

RULES_IN_WORDS = """You bid for items against one other seat. Each item is worth 1 to 10 points to you;
what it is worth to the other seat is hidden. Both bid at the same time. The higher bid wins the item and is paid;
equal bids win nothing. You earn value minus bid when you win. Your budget must last for all rounds and is worth nothing
at the end."""


def frame(settings: Settings, state: rules.State) -> dict[str, Any]:
    """What everyone sees; profits stay hidden, because they reveal values."""
    return {
        "items_left": int(state.left),
        "budgets": [int(x) for x in state.budgets],
        "last_bids": [int(x) for x in state.bids],
        "items_won": [int(x) for x in state.won],
    }


def private(settings: Settings, state: rules.State, seat: int) -> dict[str, Any]:
    """What only this seat sees."""
    return {"value": int(state.values[seat]), "profit": int(rules.profit(settings, state, seat))}


def commentary(event: Mapping[str, Any], frame: Mapping[str, Any]) -> str:
    """A line for an event, or nothing."""
    if event["type"] == "episode.started":
        return f"{frame['items_left']} items, a budget of {frame['budgets'][0]} each."
    if event["type"] == "step":
        first, second = frame["last_bids"]
        if first == second:
            return f"Both bid {first}: the item goes to neither."
        return f"{first} against {second}: the item goes to {event['players'][int(second > first)]}."
    if event["type"] == "episode.ended":
        (one, other), (mine, theirs) = event["players"], event["payload"]["returns"]
        return f"{one} earned {mine:g} points, {other} earned {theirs:g}."
    return ""


GAME = Game(
    name="sealed_bids",
    title="Sealed bids",
    heads=rules.HEADS,
    options=GameOptions,
    rules=Rules(
        new=rules.new,
        to_act=rules.to_act,
        legal=rules.legal,
        step=rules.step,
        view=rules.view,
        max_steps=rules.max_steps,
        simultaneous=True,
        new_uniforms=1,
        step_uniforms=1,
    ),
    learning=Learning(features=rules.features, bit_widths=rules.BIT_WIDTHS, scale=rules.scale),
    bots=BOTS,
    measures=Measures(score=rules.score),
    words=generic_words(rules.HEADS, RULES_IN_WORDS),
    drawing=Drawing(frame=frame, private=private, commentary=commentary),
    default_players=("heuristic", "eager"),
)
