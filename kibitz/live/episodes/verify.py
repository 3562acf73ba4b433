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


def replay(whole: PreparedEpisode, seen: Callable[[int, Any, Any], None] = lambda *step: None) -> tuple[float, float]:
    """What the recorded acts earn; see `kibitz.core.play.replay`. Unlike `play_episode`, asks no player."""
    from kibitz.core.chance import episode_luck, seed_key
    from kibitz.core.play.replay import replay as repeat

    assert whole.branch is not None
    luck = episode_luck(seed_key(whole.seed), whole.number)
    steps = [[None if choice is None else choice.act for choice in choices] for choices in whole.branch.script]
    return repeat(whole.game, whole.settings, whole.state, luck, steps, seen)
