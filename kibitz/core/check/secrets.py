"""Checks that a seat's secrets stay private: changing them must not change what anyone else sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

from kibitz.core.chance import episode_luck, seed_key
from kibitz.core.game import SEATS, Game
from kibitz.core.play.episode import table_for

POSITIONS = 4  # each a turn further into its episode
DEALS = 8  # sources of other values for a secret


def check_secrets(game: Game, settings: Any, seed: int) -> None:
    """Changes every part of the state on which one seat's private values depend, and only that seat's."""
    table = table_for(game)
    deals = [jax.device_get(table.new(settings, episode_luck(seed_key(seed), i))) for i in range(DEALS)]
    for state in _positions(game, settings, seed):
        for seat in SEATS:
            hidden, public = set[str](), set[str]()
            for other in _changed_secrets(game, settings, state, deals, seat):
                seen = _is_public(game, settings, state, other, 1 - seat)
                (public if seen else hidden).update(_changed_keys(game, settings, state, other, seat))
            given_away = sorted(public - hidden)
            assert not given_away, f"`drawing.frame` and `rules.view` show seat {seat}'s private {given_away[0]!r}."


def _positions(game: Game, settings: Any, seed: int) -> Iterator[Any]:
    table, rng = table_for(game), np.random.default_rng(seed)
    for number in range(POSITIONS):
        luck = episode_luck(seed_key(seed), number)
        state = table.new(settings, luck)
        for turn in range(number):
            after = table.step(settings, state, _random_acts(game, settings, state, rng), luck, turn)[0]
            state = after if np.asarray(table.to_act(after)).any() else state
        yield jax.device_get(state)


def _random_acts(game: Game, settings: Any, state: Any, rng: Any) -> Any:
    table, acts = table_for(game), list[Any]((None, None))
    for seat in np.flatnonzero(np.asarray(table.to_act(state))).tolist():
        acts[seat] = tuple(int(rng.choice(np.flatnonzero(m))) for m in table.observe(settings, state, seat)[1])
    return tuple(act or acts[1 - seat] for seat, act in enumerate(acts))


def _changed_secrets(game: Game, settings: Any, state: Any, deals: list[Any], seat: int) -> Iterator[Any]:
    """States in which one leaf, or this seat's row of it, is another deal's, and only this seat's secrets change."""
    leaves, tree = jax.tree.flatten(state)
    dealt = [jax.tree.leaves(deal) for deal in deals]
    for place, leaf in enumerate(leaves):
        for part in _parts(leaf, seat):
            values = [_replaced(leaf, other[place], part) for other in dealt]
            changed = next((value for value in values if not np.array_equal(value, leaf)), None)
            if changed is None:
                continue
            other = jax.tree.unflatten(tree, [*leaves[:place], changed, *leaves[place + 1 :]])
            shown = [_same(*(game.drawing.private(settings, one, who) for one in (state, other))) for who in SEATS]
            if not shown[seat] and shown[1 - seat]:
                yield other


def _parts(leaf: Any, seat: int) -> list[Any]:
    """The whole leaf, and where an axis of it may stand for the seats, the part of this one."""
    shape = np.shape(leaf)
    rows = [(*[slice(None)] * axis, seat) for axis, size in enumerate(shape) if size == len(SEATS)]
    return [..., *rows]


def _replaced(leaf: Any, other: Any, part: Any) -> Any:
    changed = np.array(leaf)
    changed[part] = np.asarray(other)[part]
    return changed


def _is_public(game: Game, settings: Any, state: Any, other: Any, seat: int) -> bool:
    """Whether frame and view both show the difference, as with a public budget.

    If only one of them shows it, it leaks.
    """

    def differs(show: Callable[[Any], Any]) -> bool:
        return not _same(show(state), show(other))

    secret = f"the private values of seat {1 - seat}"
    in_view = differs(lambda one: _view(game, settings, one, seat)[0])
    in_frame = differs(partial(game.drawing.frame, settings))
    meant = f"if that is meant, `drawing.private` of seat {seat} should list them, too"
    assert in_frame or not in_view, f"`rules.view` shows {secret} to seat {seat}; {meant}."
    assert in_view or not in_frame, f"`drawing.frame` shows {secret}."
    if in_view:
        return True
    assert not differs(lambda one: _view(game, settings, one, seat)[1]), f"`rules.legal` shows {secret} to seat {seat}."
    assert not differs(partial(game.drawing.cast, settings)), f"`drawing.cast` shows {secret}."
    return False


def _changed_keys(game: Game, settings: Any, state: Any, other: Any, seat: int) -> set[str]:
    before, after = (game.drawing.private(settings, one, seat) for one in (state, other))
    return {key for key in before if key not in after or not _same(before[key], after[key])}


def _view(game: Game, settings: Any, state: Any, seat: int) -> Any:
    return table_for(game).observe(settings, state, seat)


def _same(one: Any, other: Any) -> bool:
    first, second = jax.tree_util.tree_leaves_with_path(one), jax.tree_util.tree_leaves_with_path(other)
    return len(first) == len(second) and all(
        path == other_path and np.array_equal(a, b) for (path, a), (other_path, b) in zip(first, second, strict=True)
    )
