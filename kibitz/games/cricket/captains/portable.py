"""A captain's turn as plain data, so that `pick_action` can ask a captain in another process than the match."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

import jax
import numpy as np

from kibitz.core.chance import episode_luck, seat_luck, seed_key
from kibitz.core.game import Game, blank
from kibitz.core.options import Options
from kibitz.core.play.player import Turn
from kibitz.core.registry import load_game

HISTORY_ACTS = 24  # both captains' last twelve balls, as prompts show them


def turn_as_data(turn: Turn, options: Options) -> dict[str, Any] | None:
    """Everything but the luck, which belongs to the match. None: the sides are in a file of this machine."""
    chosen = options.model_dump(mode="json")
    if chosen["elevens"] is not None:
        return None
    return {
        "options": chosen,
        "view": [int(x) for x in jax.tree.leaves(turn.view)],
        "legal": [np.flatnonzero(mask).tolist() for mask in turn.masks],
        "history": [[entry["seat"], *entry["act"]] for entry in turn.history[-HISTORY_ACTS:]],
    }


def turn_of_data(data: Mapping[str, Any], episode_id: str, number: int) -> Turn:
    """The same turn for a captain here, with luck of its own; KeyError, TypeError or ValueError for other data."""
    game: Game = load_game("cricket")
    options = game.options.read({name: value for name, value in data["options"].items() if name != "elevens"})
    leaves, structure = _view(game)
    numbers = [np.asarray(x, leaf.dtype) for x, leaf in zip(data["view"], leaves, strict=True)]
    view = jax.tree.unflatten(structure, numbers)._replace(seat=0)
    masks = tuple(np.isin(np.arange(size), legal) for size, legal in zip(game.sizes, data["legal"], strict=True))
    history: list[Mapping[str, Any]] = [{"seat": seat, "act": tuple(act)} for seat, *act in data["history"]]
    drawn = int.from_bytes(hashlib.blake2b(episode_id.encode(), digest_size=7).digest())
    luck = seat_luck(episode_luck(seed_key(drawn), 0), 0)
    return Turn(_settings(options), 0, number, view, masks, history, luck)


@cache
def _view(game: Game) -> tuple[list[Any], Any]:
    """The leaves of a captain's view, all single numbers, and their structure."""
    view = blank(lambda settings, state: game.rules.view(settings, state, 0), game.default_settings, game.example)
    return jax.tree.flatten(view)


@lru_cache(maxsize=16)
def _settings(options: Any) -> Any:
    return options.settings()
