"""What a tournament has done so far, one JSON object per line, on disk before anything depends on it.

A process that ends at any moment, even with `kill -9`, loses at most the line it was writing. Decisions of players that
cost time or money are kept as they arrive, so that an interrupted game continues without asking for them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from kibitz.core.play.json_lines import JsonLines
from kibitz.core.play.player import Choice, Player, PlayerFailed, Turn

FILE = "record.jsonl"
BUDGET = "budget"  # the kind of failure that says nothing about the player
Row = dict[str, Any]
GameId = tuple[str, str, int]  # first player, second player, number of the match between them


class Journal(JsonLines):
    """The record in a folder, which the caller has locked."""

    def __init__(self, folder: Path) -> None:
        self.header: dict[str, Any] = {}
        self.games: list[dict[str, Any]] = []  # finished, one game or one compiled batch each
        self.decisions: dict[GameId, list[Row]] = {}
        self.money = 0.0
        super().__init__(folder / FILE, self._sort)

    def _sort(self, row: dict[str, Any]) -> None:
        match row["kind"]:
            case "tournament":
                self.header = row
            case "decision":
                game = (row["one"], row["other"], row["match"])
                self.decisions.setdefault(game, []).append(row)
                self.money += float(row["usage"].get("money") or 0.0)
            case "games":
                self.games.append(row)


def is_begun(folder: Path) -> bool:
    """Whether the folder has a record with at least its first line."""
    path = folder / FILE
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.readline().endswith(b"\n")


class JournalledPlayer:
    """A player of one game whose answers are recorded as they arrive, and repeated from the record after a crash."""

    def __init__(self, player: Player, game: GameId, known: Iterable[Row], add: Callable[[Row], None]) -> None:
        self.name, self.player, self.game, self.add = player.name, player, game, add
        self.known = {(row["turn"], row["seat"]): row for row in known}
        self.out_of_budget = False

    def begin(self, settings: Any, seat: int, luck: Any) -> None:
        self.player.begin(settings, seat, luck)

    def choose(self, turn: Turn) -> Choice:
        row = self.known.get((turn.number, turn.seat))
        if row is not None:
            follow = getattr(self.player, "follow", None)
            if follow is not None:
                follow(turn)
            return _repeat(row)
        try:
            choice = self.player.choose(turn)
        except PlayerFailed as failed:
            if failed.kind == BUDGET:
                self.out_of_budget = True
            else:
                self._record(turn, {"failure": failed.kind, "message": str(failed)}, failed.usage)
            raise
        said = asdict(replace(choice, exchange=None)) | {"act": [int(head) for head in choice.act]}
        self._record(turn, {"choice": said}, choice.usage)
        return choice

    def _record(self, turn: Turn, what: dict[str, Any], usage: Mapping[str, float]) -> None:
        one, other, match = self.game
        place = {"one": one, "other": other, "match": match, "turn": turn.number, "seat": turn.seat}
        self.add({"kind": "decision"} | place | what | {"usage": dict(usage)})


def _repeat(row: Mapping[str, Any]) -> Choice:
    if "choice" in row:
        return Choice(**(row["choice"] | {"act": tuple(row["choice"]["act"])}))
    raise PlayerFailed(row["message"], row["failure"], usage=row["usage"])
