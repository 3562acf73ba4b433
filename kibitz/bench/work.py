"""`kibitz bench work`: how much faster several workers are than one, and what an item costs beyond its work."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

from kibitz.core.work.executor import Executor, Item, Work, executor_for
from kibitz.core.work.processes import Processes
from kibitz.games import get_game
from kibitz.studies.tournaments.field import TournamentPlan, field_of, play_part

PLAYERS = ("bayes", "heuristic")
GAMES_PER_ITEM = 512
EMPTY_ITEMS = 1000
ROUNDS = 3


def run(
    workers: int, items: int = 16, rounds: int = ROUNDS, progress: Callable[[int], None] = lambda count: None
) -> dict[str, Any]:
    """One worker and several take turns, so that other load on the machine meets all.

    They have the same number of cores per worker; `one_worker_all_cores_s` is one worker with the cores of all.
    """
    game = get_game("deal_or_no_deal")
    plan = TournamentPlan(game, game.default_options, PLAYERS, 2)
    work = Work(field_of, play_part, plan.spec())
    with Processes(workers) as several, Processes(1, several.cores_each) as one, Processes(1) as wide:
        seconds: dict[Processes, list[float]] = {one: [], several: [], wide: []}
        for executor in seconds:
            _timed(executor, work, _items(executor.workers))  # compiles
        for _ in range(rounds):
            for executor, measured in seconds.items():
                measured.append(_timed(executor, work, _items(items)))
                progress(1)
        empty = {"local": _overhead_ms(several)}
    if find_spec("ray") is not None:
        with executor_for(ray="local") as cluster:
            empty["ray"] = _overhead_ms(cluster)
    progress(1)
    return {
        "workers": workers,
        "cores_each": several.cores_each,
        "items": items,
        "one_worker_s": round(statistics.median(seconds[one]), 2),
        "all_workers_s": round(statistics.median(seconds[several]), 2),
        "speedup": round(statistics.median(a / b for a, b in zip(seconds[one], seconds[several], strict=True)), 2),
        "one_worker_all_cores_s": round(statistics.median(seconds[wide]), 2),
        **{f"ms_per_empty_item_{place}": found for place, found in empty.items()},
        "load": round(os.getloadavg()[0], 1),
    }


def _items(count: int) -> list[Item]:
    each = {"one": PLAYERS[0], "other": PLAYERS[1], "count": GAMES_PER_ITEM}
    return [Item(each | {"first": GAMES_PER_ITEM * i}) for i in range(count)]


def _timed(executor: Executor, work: Work, items: list[Item]) -> float:
    began = time.perf_counter()
    assert sum(1 for _ in executor.run(work, items)) == len(items)
    return time.perf_counter() - began


def _overhead_ms(executor: Executor) -> float:
    work = Work(nothing, _nothing_done, None)
    _timed(executor, work, [Item({"x": -1 - i}) for i in range(executor.workers)])  # starts the workers
    seconds = _timed(executor, work, [Item({"x": i}) for i in range(EMPTY_ITEMS)])
    return round(1000 * seconds / EMPTY_ITEMS, 3)


def nothing(spec: Any) -> None:
    """The context of items that do nothing."""


def _nothing_done(context: None, item: Mapping[str, Any], report: Callable[[Any], None]) -> None:
    """An item that does nothing."""
