"""Checks of a game's styles: questions, notes of fixed shapes, one truth value each, and a transcript."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kibitz.core.check.episodes import RandomEpisode
from kibitz.core.game import SEATS, Game
from kibitz.core.play.player import known_seat
from kibitz.core.styles import PLAYER, style_scores


def check_styles(game: Game, settings: Any, seed: int) -> None:
    """Watches an episode of random acts."""
    styles = game.styles
    for name, question in styles.questions.items():
        assert name.isidentifier(), f"`styles.questions` should name styles by identifiers, not {name!r}."
        asks = question.endswith("?") and PLAYER in question
        assert asks, f"`styles.questions[{name!r}]` should ask about {PLAYER} and end in a question mark."
    unknown = sorted(set(styles.published) - set(styles.questions))
    assert not unknown, f"`styles.published` has {unknown}, which `styles.questions` lacks."
    notes, state, history = _watched(game, settings, seed)
    for seat in SEATS:
        first = _shapes(styles.start(settings, seat))
        assert first == _shapes(notes[seat]), "`styles.watch` should keep the shapes and types of its notes."
        shown = styles.shown(settings, notes[seat], state, seat)
        assert set(shown) == set(styles.questions), "`styles.shown` should have a value for every question."
        for name, value in shown.items():
            is_truth = jnp.shape(value) == () and jnp.result_type(value) == np.bool_
            assert is_truth, f"`styles.shown` should give {name!r} as bool[]."
        text = styles.transcript(settings, state, history, seat)
        assert isinstance(text, str) and PLAYER in text, f"`styles.transcript` should be text about {PLAYER}."
    for name, value in style_scores(game, settings, notes, state).items():
        assert value.shape == (2,), f"`styles.measures` should give one number for {name!r}."


def _watched(game: Game, settings: Any, seed: int) -> tuple[list[Any], Any, list[Mapping[str, Any]]]:
    """Each seat's notes, the last state and the acts that led to it."""
    notes = [game.styles.start(settings, seat) for seat in SEATS]
    episode = RandomEpisode(game, settings, seed)
    for seat, view, _, chosen in episode.turns():
        act = tuple(map(jnp.int32, chosen))
        notes[seat] = game.styles.watch(settings, notes[seat], known_seat(view, seat), act)
    return notes, jax.device_get(episode.state), episode.history


def _shapes(tree: Any) -> Any:
    return jax.tree.structure(tree), [(jnp.shape(x), jnp.result_type(x)) for x in jax.tree.leaves(tree)]
