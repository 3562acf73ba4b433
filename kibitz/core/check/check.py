"""The order of the checks: the record itself, compiled play, whole episodes on the host, secrets, styles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from kibitz.core.check.batch import check_batch
from kibitz.core.check.episodes import check_episodes
from kibitz.core.check.record import check_record, guarded
from kibitz.core.check.secrets import check_secrets
from kibitz.core.check.styles import check_styles
from kibitz.core.game import Game, blank
from kibitz.core.registry import game_names, load_game

MAX_EXTREMES = 24  # option values tried beside the given ones


def check_game(game: Game, options: Any = None, games: int = 256, seed: int = 0) -> None:
    """Raises AssertionError about the first promise of `Game` that does not hold, and names the field.

    `options` are played in full; every numeric option is also tried at its least and greatest value.
    """
    options = game.default_options if options is None else options
    check_record(game, options)
    _check_state(game, options)
    check_batch(game, options.settings(), games, seed)
    for record, extreme in _extremes(game, options):
        _check_state(record, extreme)
        check_batch(record, extreme.settings(), min(games, 32), seed)
    safe = guarded(game, "words", "drawing", "styles")
    check_secrets(safe, options.settings(), seed)
    check_episodes(safe, options.settings(), seed)
    if game.styles:
        check_styles(safe, options.settings(), seed)


def _check_state(game: Game, options: Any) -> None:
    """Options may change the form of a state (how many offers it remembers) only if the record fits them."""
    uniforms = np.zeros(game.rules.new_uniforms, np.float32)
    made = blank(guarded(game, "rules").rules.new, options.settings(), uniforms)
    forms = [
        (jax.tree.structure(state), [leaf.shape for leaf in jax.tree.leaves(state)]) for state in (game.example, made)
    ]
    default = dict(game.default_options)
    changed = ", ".join(f"{name}={value!r}" for name, value in options if value != default[name]) or "the defaults"
    assert forms[0] == forms[1], (
        f"`rules.new` makes a state of another form with {changed} than with `default_options`; "
        "make the entry point a function of the options that returns a record to fit them."
    )


def _extremes(game: Game, options: Any) -> Iterator[tuple[Game, Any]]:
    """Options with one number at the end of its range, and the record that fits them."""
    registered = game.name in game_names() and load_game(game.name, options) is game
    found = 0
    for name, field in type(options).model_fields.items():
        for value in _ends(field.metadata):
            try:
                extreme = type(options).model_validate({**dict(options), name: value})
            except ValueError:  # two options that exclude each other
                continue
            if found < MAX_EXTREMES and extreme != options:
                found += 1
                yield (load_game(game.name, extreme) if registered else game), extreme


def _ends(metadata: list[Any]) -> Iterator[Any]:
    for limit in metadata:
        for side in ("ge", "le"):
            if getattr(limit, side, None) is not None:
                yield getattr(limit, side)
