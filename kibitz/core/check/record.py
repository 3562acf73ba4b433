"""Checks that need no play: every field is there, callable with its arguments, and plausible."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from kibitz.core.errors import BadInput
from kibitz.core.game import Game

# what each function of the record receives
ARGUMENTS = {
    "rules.new": "settings, u",
    "rules.to_act": "state",
    "rules.legal": "settings, state, seat",
    "rules.step": "settings, state, acts, u",
    "rules.view": "settings, state, seat",
    "rules.max_steps": "settings",
    "learning.features": "settings, view",
    "learning.scale": "settings",
    "measures.score": "settings, state",
    "words.prompt_variables": "settings, view, history",
    "words.answer_fields": "view, masks",
    "words.act_text": "act",
    "words.parse": "view, masks, text",
    "words.position_text": "view",
    "words.choices_text": "view, masks",
    "words.reason": "settings, view, history, act",
    "words.choice_notes": "settings, view, masks",
    "drawing.frame": "settings, state",
    "drawing.commentary": "event, frame",
    "drawing.private": "settings, state, seat",
    "drawing.cast": "settings, state",
    "drawing.tool_calls": "act, seat, frame",
    "drawing.review": "settings, state, past",
    "drawing.summary": "frame",
    "styles.start": "settings, seat",
    "styles.watch": "settings, notes, view, act",
    "styles.shown": "settings, notes, state, seat",
    "styles.measures": "settings, notes, state, seat",
    "styles.transcript": "settings, state, history, seat",
    "contexts": "name",
}


def check_record(game: Game, options: Any) -> None:
    assert game.name.isidentifier(), f"`name` should be a Python identifier, not {game.name!r}."
    assert game.version >= 1, f"`version` should count from 1, not {game.version}."
    for name, arguments in ARGUMENTS.items():
        function = _get(game, name)
        assert callable(function), f"`{name}` should be a function of ({arguments}), not {function!r}."
        try:
            inspect.signature(function).bind(*arguments.split(", "))
        except TypeError:
            raise AssertionError(f"`{name}` should take the arguments ({arguments}).") from None
        except ValueError:  # a function without a signature shows its mistakes when it is called
            pass
    shape = (game.heads[0].size, len(game.heads))
    assert game.matters.shape == shape, f"`learning.matters` should have shape {shape}, not {game.matters.shape}."
    assert game.matters[:, 0].all(), "`learning.matters` should be True for the first head, which always matters."
    for name in (game.reference, game.greedy or game.fallback, game.fallback, *game.default_players):
        known = name in game.bots or ":" in name
        assert known, f"`bots` should have {name!r}, which `reference`, `greedy` or `default_players` names."
    for alias, name in game.aliases.items():
        assert alias not in game.bots, f"`aliases` should not hide the bot {alias!r}."
        assert name in game.bots or ":" in name, f"`bots` should have {name!r}, which `aliases` names."
    scale = game.learning.scale(options.settings())
    assert math.isfinite(scale) and scale > 0, f"`learning.scale` should be positive and finite, not {scale}."
    assert game.contexts("uniform") is not None, "`contexts` should return options for 'uniform'."


def guarded(game: Game, *names: str) -> Game:
    """The same game; a function of these groups that raises is reported by its name."""
    groups = {
        group: replace(
            getattr(game, group),
            **{
                field.name: _guard(f"{group}.{field.name}", getattr(getattr(game, group), field.name))
                for field in fields(getattr(game, group))
                if f"{group}.{field.name}" in ARGUMENTS
            },
        )
        for group in names
    }
    return replace(game, **groups)


def _guard(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (BadInput, AssertionError):
            raise
        except Exception as error:
            first = str(error).partition("\n")[0]  # JAX adds advice and pages of context
            raise AssertionError(f"`{name}` raised {type(error).__name__}: {first}") from error

    return call


def _get(game: Game, name: str) -> Any:
    value: Any = game
    for part in name.split("."):
        value = getattr(value, part)
    return value
