"""A tournament: every player meets every other in pairs of games with the same luck and the seats swapped.

Every finished game or batch is on disk before the next one counts on it, so an interrupted tournament continues.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

from kibitz.core.errors import BadInput
from kibitz.core.work.executor import Executor, Here, Item, Work
from kibitz.evaluate.match import Progress
from kibitz.studies.tournaments.field import GAMES_AT_ONCE, TournamentField, TournamentPlan, field_of, play_part
from kibitz.studies.tournaments.journal import FILE, GameId, Journal, Row, is_begun
from kibitz.train.run.folder import new_folder, written_by_us

__all__ = ["PlayedTournament", "TournamentPlan", "play", "stored_header"]

BATCH_GAMES = 2048  # of bots, between two commits: about a second of a slow one


@dataclass
class PlayedTournament:
    """Every row of the record, in a fixed order."""

    rows: list[dict[str, Any]]
    command: str  # that began the tournament
    hints_from: dict[str, str]  # by player: whose hints it hears
    unfinished: str = ""  # why games are missing


def play(
    plan: TournamentPlan,
    folder: Path,
    resume: bool = False,
    progress: Progress = lambda count: None,
    executor: Executor | None = None,
) -> PlayedTournament:
    """Plays what the record in the folder lacks. Raises BadInput before anything is played."""
    plan.check()
    field = TournamentField(plan)
    _prepare(folder, resume)
    with written_by_us(folder), Journal(folder) as journal:
        _continue(journal, plan, folder)
        if plan.money is not None:
            field = TournamentField(plan, spent=journal.money)
        try:
            return _Session(field, journal, progress, executor or Here()).run()
        finally:
            field.close()


def stored_header(folder: Path) -> dict[str, Any]:
    """What the tournament in this folder plays, for a command that only says `--resume`."""
    _prepare(folder, resume=True)
    with written_by_us(folder), Journal(folder) as journal:
        return journal.header


def _prepare(folder: Path, resume: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file; --out must name a folder.")
    with new_folder(folder):
        begun = is_begun(folder)
        others = folder.is_dir() and any(path.name != FILE for path in folder.iterdir())
    if resume and not begun:
        raise BadInput(f"There is no tournament to resume in {folder}; start it without --resume.")
    if (begun or others) and not resume:
        raise BadInput(f"{folder} is not empty; choose another --out, or --resume the tournament in it.")
    with new_folder(folder):
        folder.mkdir(parents=True, exist_ok=True)


def _continue(journal: Journal, plan: TournamentPlan, folder: Path) -> None:
    """More or fewer games may be wanted than at first, and another budget; everything else must be the same."""
    wanted, more = plan.header(), {"episodes": plan.episodes, "money": plan.money}
    if not journal.header:
        journal.add(wanted | more | {"command": plan.command})
        return
    for name, value in wanted.items():
        if journal.header.get(name) != value:
            raise BadInput(
                f"The tournament in {folder} has {name.replace('_', ' ')} {journal.header.get(name)!r}, not {value!r}; "
                "choose another --out."
            )
    if any(journal.header.get(name) != value for name, value in more.items()):
        journal.add(journal.header | more)


class _Session:
    """Plays the missing games of a plan."""

    def __init__(self, field: TournamentField, journal: Journal, progress: Progress, executor: Executor) -> None:
        self.field, self.plan, self.journal, self.progress = field, field.plan, journal, progress
        self.executor = executor
        self.done = {
            (row["one"], row["other"], row["first"] + i) for row in journal.games for i in range(len(row["returns"]))
        }
        self.shown: dict[Item, int] = {}  # games of a batch that the progress bar counts already
        self.unfinished = ""

    def run(self) -> PlayedTournament:
        pairings = list(combinations(self.plan.players, 2))
        self.progress(len([game for game in self.done if game[2] < self.plan.episodes]))
        compiled = [pairing for pairing in pairings if self.field.compiled(*pairing)]
        hosted = [
            (*pairing, i)
            for pairing in pairings
            if pairing not in compiled
            for i in range(self.plan.episodes)
            if (*pairing, i) not in self.done
        ]
        work = Work(field_of, play_part, self.plan.spec(), here=self.field)
        for item, returns in self.executor.run(work, self._batches(compiled), self._count):
            part = {name: item.arguments[name] for name in ("one", "other", "first")}
            self.journal.add({"kind": "games"} | part | {"returns": returns})
            self._count(item, len(returns))
        # one process keeps account of a budget, so that no two of them spend the same money
        executor = Here() if self.plan.money is not None else self.executor
        for _, unfinished in executor.run(work, self._host_items(hosted, executor.workers), self._record):
            self.unfinished = self.unfinished or unfinished
        places = {pairing: place for place, pairing in enumerate(pairings)}
        rows = [row for row in self.journal.games if row["first"] < self.plan.episodes]
        rows.sort(key=lambda row: (places[row["one"], row["other"]], row["first"]))
        return PlayedTournament(rows, self.journal.header.get("command", ""), self.field.hints_from, self.unfinished)

    def _batches(self, pairings: list[tuple[str, str]]) -> Iterator[Item]:
        """The missing games of bots; what was played before may have gaps, as workers finish in any order."""
        for one, other in pairings:
            missing = [i for i in range(self.plan.episodes) if (one, other, i) not in self.done]
            while missing:
                first = missing[0]
                count = next((n for n, i in enumerate(missing) if i != first + n or n == BATCH_GAMES), len(missing))
                yield Item({"one": one, "other": other, "first": first, "count": count})
                missing = missing[count:]

    def _host_items(self, games: list[GameId], workers: int) -> Iterator[Item]:
        """One item if there is one worker, so that its games never wait for each other; else a few for each worker."""
        size = len(games) if workers == 1 else max(1, min(GAMES_AT_ONCE, len(games) // (2 * workers)))
        for first in range(0, len(games), max(size, 1)):
            part = games[first : first + size]
            yield Item({"games": [list(game) for game in part]}, partial(self._earlier, part))

    def _earlier(self, games: list[GameId]) -> dict[str, Any]:
        """What need not be played or asked again, should an item be sent a second time."""
        return {
            "finished": [list(game) for game in games if game in self.done],
            "decisions": [row for game in games for row in self.journal.decisions.get(game, ())],
        }

    def _count(self, item: Item, games: int) -> None:
        """Advances the progress bar to this many games of a batch, which may run twice."""
        shown = self.shown.get(item, 0)
        self.progress(max(0, games - shown))
        self.shown[item] = max(shown, games)

    def _record(self, item: Item, row: Row) -> None:
        """Keeps a row. A game counts once, even if its item runs again."""
        if row["kind"] != "games":
            self.journal.add(row)
        elif (game := (row["one"], row["other"], row["first"])) not in self.done:
            self.journal.add(row)
            self.done.add(game)
            self.progress(1)
