"""What the game's reference player would have got in each seat of a finished episode.

The episode is played again with the reference in that seat, against the same partner and with the same luck. Only a
partner that answers in this process and always in the same way, a bot or a policy, can be replayed.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kibitz.core.errors import BadInput, Stopped
from kibitz.core.registry import import_jax
from kibitz.live.episodes.branch import BranchPoint, NotReplayable, read_whole
from kibitz.live.episodes.request import HUMAN, EpisodeRequest
from kibitz.live.store.base import Row
from kibitz.live.store.sql import Store

if TYPE_CHECKING:
    from kibitz.core.game import Game
    from kibitz.core.play.episode import Episode

MAX_ANSWERS = 256  # kept in memory
MAX_REPLAY_SECONDS = 20.0  # of processor time, so that a busy machine answers, too
# the last four because a driver's record may contain any value
NO_REPLAY = (BadInput, NotReplayable, Stopped, AttributeError, OverflowError, TypeError, ValueError)
CHANGED = "has acts that its partner would not choose any more"


class References:
    """Each episode is replayed once, and one at a time: a replay computes for up to seconds."""

    def __init__(self, store: Store, runs: Path) -> None:
        self._store, self._runs = store, runs
        self._known: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._turn = asyncio.Lock()

    async def of(self, row: Row) -> dict[str, Any]:
        """By seat: both seats' `returns` with the reference in it, or `why` there are none. The episode is over."""
        async with self._turn:
            if row.episode_id not in self._known:
                self._known[row.episode_id] = await asyncio.to_thread(self._replay, row)
                if len(self._known) > MAX_ANSWERS:
                    self._known.popitem(last=False)
            return self._known[row.episode_id]

    def _replay(self, row: Row) -> dict[str, Any]:
        import_jax()
        from kibitz.games import get_game

        name = ""
        try:
            game = get_game(row.game)
            name = game.reference
            request, whole = read_whole(self._store, row)
        except NO_REPLAY as problem:
            return {"reference": name, "seats": [{"returns": None, "why": str(problem)}] * 2}
        seats: list[dict[str, Any]] = []
        for seat in (0, 1):
            try:
                seats.append({"returns": list(self._instead(game, row, request, whole, seat)), "why": ""})
            except NO_REPLAY as problem:
                seats.append({"returns": None, "why": str(problem)})
        return {"reference": name, "seats": seats}

    def _instead(
        self, game: Game, row: Row, request: EpisodeRequest, whole: BranchPoint, seat: int
    ) -> tuple[float, float]:
        """What both seats earn with the reference in `seat`."""
        from kibitz.core.play.resolve import Resolver
        from kibitz.live.episodes.prepare import Limits, prepare
        from kibitz.live.episodes.timeouts import StopSignal

        names, resolver = list(row.players), Resolver(self._runs)
        if game.aliases.get(names[seat], names[seat]) == game.reference:
            raise BadInput(f"{game.reference} itself played this seat.")
        adviser = row.about.get("adviser") if seat == 1 else None  # an adviser speaks to seat 0
        for name in [names[1 - seat], *([adviser] if adviser else [])]:
            if name == HUMAN or resolver.bot(game, name) is None:
                raise BadInput(f"{name} cannot be replayed: only bots and policies answer twice in the same way.")
        names[seat] = game.reference
        asked = request.model_copy(update={"players": names, "adviser": adviser})
        again = prepare(asked, Limits(resolver, False), StopSignal(), replace(whole, turn=0, script=()))
        late = time.thread_time() + MAX_REPLAY_SECONDS

        def stop() -> None:
            if time.thread_time() > late:
                raise Stopped(f"The replay takes more than {MAX_REPLAY_SECONDS:g} seconds of processor time.")

        played = again.play(stop=stop)
        if not _same_partner(played, whole, seat):
            raise NotReplayable(CHANGED)
        return played.returns


def _same_partner(played: Episode, whole: BranchPoint, seat: int) -> bool:
    """Whether the partner acts as it did in the record, until the reference first acts otherwise."""
    steps = [event.payload["acts"] for event in played.events if event.type == "step"]
    for now, choices in zip(steps, whole.script, strict=False):
        before = [None if choice is None else list(choice.act) for choice in choices]
        if now[1 - seat] != before[1 - seat]:
            return False
        if now[seat] != before[seat]:
            break
    return True
