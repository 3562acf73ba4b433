"""Games with a player on the host, several at once: while one waits for a model's answer, others ask theirs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from typing import Any

from kibitz.core.errors import Stopped
from kibitz.core.play.player import BotPlayer, Player
from kibitz.evaluate.record import EvaluationRecord, KeptEpisode, ListeningPlayer
from kibitz.evaluate.tally import Tallies

Play = Callable[[int, Sequence[ListeningPlayer], dict[str, Any]], KeptEpisode]
"""The number of a game, its players and arguments for `play_episode` -> the game."""


def games_at_once(players: Sequence[Player]) -> int:
    """As many as each player on the host can answer for at the same time; a player with a state answers for one."""
    return min((int(getattr(one, "games_at_once", 1)) for one in players if not isinstance(one, BotPlayer)), default=1)


def host_games(
    numbers: Sequence[int], players: Sequence[Player], play: Play, tallies: Tallies, record: EvaluationRecord | None
) -> Generator[KeptEpisode, None, None]:
    """Plays the games and yields them in the order of their numbers; those that the record has are not played again.

    The tallies count what a game cost when it is yielded, and that of unfinished games when the iterator is closed.
    """
    running: dict[int, Tallies] = {}
    stopping = threading.Event()
    at_once = min(games_at_once(players), len(numbers))

    def stop() -> None:
        if stopping.is_set():
            raise Stopped("the evaluation")

    def one(number: int) -> KeptEpisode:
        cost = running[number] = Tallies()
        if record is not None and (known := record.episodes.get(number)) is not None:
            cost.count(known.decisions)
            return known
        # bots have a memory
        own = [copy(one) if at_once > 1 and isinstance(one, BotPlayer) else one for one in players]
        seats = [ListeningPlayer(player) for player in own]
        return play(number, seats, {"observers": (cost.observe,), "stop": stop})

    def ended(number: int, kept: KeptEpisode) -> KeptEpisode:
        if record is not None and number not in record.episodes:
            record.add(kept)
        tallies.count(running.pop(number).decisions)
        return kept

    futures: dict[int, Future[KeptEpisode]] = {}
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="game") if at_once > 1 else None
    try:
        if pool is None:
            yield from (ended(number, one(number)) for number in numbers)
        else:
            futures |= {number: pool.submit(one, number) for number in numbers}
            yield from (ended(number, futures.pop(number).result()) for number in numbers)
    finally:
        if pool is not None:  # after an error or Ctrl-C, games in progress end before their next step
            stopping.set()
            pool.shutdown(wait=False, cancel_futures=True)
        for number, future in futures.items():  # the record keeps games that ended before an earlier one
            if future.done() and not future.cancelled() and future.exception() is None:
                ended(number, future.result())
        for unfinished in list(running.values()):
            tallies.count(list(unfinished.decisions))
