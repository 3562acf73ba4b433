"""Checks the result of a record that was played elsewhere: its acts, replayed with its seed, must lead to it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import isclose
from typing import TYPE_CHECKING, Any

from kibitz.core.errors import BadInput
from kibitz.core.registry import import_jax
from kibitz.live.episodes.branch import NotReplayable, read_whole
from kibitz.live.store.base import StoreUnavailable
from kibitz.live.store.sql import Store

if TYPE_CHECKING:
    from kibitz.live.episodes.prepare import PreparedEpisode

log = logging.getLogger("kibitz.live")
TOLERANCE = 1e-6  # between returns that two machines computed


def verify(store: Store, episode_id: str) -> bool:
    """Marks a finished record whose result a replay confirms, and returns whether it is marked.

    The names of the players remain the record's own claim: only acts and result are replayed.
    """
    import_jax()
    from kibitz.live.episodes.prepare import Limits, prepare
    from kibitz.live.episodes.timeouts import StopSignal

    try:
        row = store.episode(episode_id)
        if row is None or row.returns is None or row.verified:
            return row is not None and row.verified
        request, whole = read_whole(store, row)
        found = replay(prepare(request, Limits(operator=False), StopSignal(), whole))
        if all(isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE) for a, b in zip(found, row.returns, strict=True)):
            store.mark_verified(episode_id)
            return True
        problem = f"it claims the returns {row.returns}, but its acts earn {found}"
    except (BadInput, NotReplayable, StoreUnavailable) as error:
        problem = str(error)
    except (ValueError, TypeError, OverflowError) as error:  # the record may contain any number
        problem = repr(error)
    log.info("episode %s is not verified: %s", episode_id, problem)
    return False


def replay(
    whole: PreparedEpisode, seen: Callable[[int, Any, list[tuple[int, ...] | None]], None] = lambda *step: None
) -> tuple[float, float]:
    """What the recorded acts earn. BadInput if one is illegal, or if the game does not end with the last of them.

    Unlike `play_episode`, asks no player and draws nothing. Each step calls `seen` with its number, the state before
    it and both seats' acts.
    """
    import numpy as np

    from kibitz.core.chance import episode_luck, seed_key
    from kibitz.core.play.episode import table_for

    assert whole.branch is not None
    table, settings = table_for(whole.game), whole.settings
    luck = episode_luck(seed_key(whole.seed), whole.number)
    state = table.new(settings, luck) if whole.state is None else whole.state
    returns = np.zeros(2)
    for number, choices in enumerate(whole.branch.script):
        acts = [None if choice is None else choice.act for choice in choices]
        for seat, to_act in enumerate(np.asarray(table.to_act(state)).tolist()):
            act = acts[seat] or ()
            _, masks = table.observe(settings, state, seat)
            within = all(0 <= value < len(mask) for value, mask in zip(act, masks, strict=False))
            if bool(to_act) != (acts[seat] is not None) or (to_act and not (within and table.is_legal(masks, act))):
                raise BadInput(f"Step {number} is not possible in this game.")
        seen(number, state, acts)
        given = tuple(act or acts[1 - seat] for seat, act in enumerate(acts))
        state, rewards, _ = table.step(settings, state, given, luck, number)
        returns += np.asarray(rewards, float)
    if np.asarray(table.to_act(state)).any():
        raise BadInput("The game is not over after the last step.")
    return float(returns[0]), float(returns[1])
