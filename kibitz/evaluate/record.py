"""An evaluation's folder: every finished episode with its events, questions and answers, so that it can be resumed."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kibitz.core.errors import BadInput
from kibitz.core.play.episode import Episode
from kibitz.core.play.json_lines import JsonLines
from kibitz.core.play.player import Choice, Exchange, Player, PlayerFailed, Turn
from kibitz.core.system.paths import read_json, write_whole

ABOUT, EPISODES, RESULT = "evaluation.json", "episodes.jsonl", "result.json"
FORMAT = 1  # of the folder; raise it when old ones can no longer be continued


@dataclass(frozen=True)
class AskedQuestion:
    """One question to a model, and how it ended."""

    seat: int
    turn: int
    messages: Sequence[Mapping[str, str]]
    answer: str
    failure: str = ""  # why the answer was no act; empty if it was one


@dataclass(frozen=True)
class KeptEpisode:
    number: int
    events: Sequence[Mapping[str, Any]]  # as `Event.as_dict` has them
    asked: Sequence[AskedQuestion] = ()
    lost: tuple[float, float] = (0.0, 0.0)  # regret of both seats, by the pack's judge

    @property
    def returns(self) -> tuple[float, float]:
        first, second = self.events[-1]["payload"]["returns"]
        return float(first), float(second)

    @property
    def scores(self) -> dict[str, tuple[float, float]]:
        """NaN where a measure does not apply."""
        found = self.events[-1]["payload"]["scores"].items()
        return {name: (_number(first), _number(second)) for name, (first, second) in found}

    @property
    def decisions(self) -> list[Mapping[str, Any]]:
        return [event["payload"] for event in self.events if event["type"] == "decision"]

    @property
    def summary(self) -> KeptEpisode:
        """What measures are computed from, without frames and questions, which may have megabytes."""
        few = [_without(event, "private", "frame", "calls") for event in self.events if event["type"] == "decision"]
        return KeptEpisode(self.number, [*few, _without(self.events[-1], "private", "frame", "review")], (), self.lost)

    @staticmethod
    def of(number: int, episode: Episode, players: Sequence[ListeningPlayer]) -> KeptEpisode:
        asked = sorted((one for player in players for one in player.asked), key=lambda one: (one.turn, one.seat))
        return KeptEpisode(number, [event.as_dict() for event in episode.events], asked)

    @staticmethod
    def read(row: Mapping[str, Any]) -> KeptEpisode:
        """Raises KeyError, TypeError or ValueError for a row that is not an episode."""
        first, second = row["lost"]
        kept = KeptEpisode(
            int(row["number"]),
            row["events"],
            [AskedQuestion(**one) for one in row["asked"]],
            (float(first), float(second)),
        )
        if kept.events[-1]["type"] != "episode.ended":
            raise ValueError
        return kept

    def as_dict(self) -> dict[str, Any]:
        asked = [vars(one) for one in self.asked]
        return {"number": self.number, "lost": list(self.lost), "asked": asked, "events": list(self.events)}


class ListeningPlayer:
    """Plays as its player does and keeps what a model was asked and answered in the current episode."""

    def __init__(self, player: Player) -> None:
        self.name, self._player = player.name, player
        self.asked: list[AskedQuestion] = []

    def begin(self, settings: Any, seat: int, luck: Any) -> None:
        self.asked = []
        self._player.begin(settings, seat, luck)

    def choose(self, turn: Turn) -> Choice:
        try:
            choice = self._player.choose(turn)
        except PlayerFailed as failed:
            self._keep(turn, failed.exchange, failed.aside or str(failed))
            raise
        self._keep(turn, choice.exchange)
        return choice

    def _keep(self, turn: Turn, exchange: Exchange | None, failure: str = "") -> None:
        if exchange is not None:
            messages = [dict(message) for message in exchange.messages]
            self.asked.append(AskedQuestion(turn.seat, turn.number, messages, exchange.answer, failure))


class EvaluationRecord:
    """The folder of one evaluation, open for more episodes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.episodes: dict[int, KeptEpisode] = {}  # their summaries
        (folder / EPISODES).touch(mode=0o600)  # private values of both seats
        self._lines = JsonLines(folder / EPISODES, self._take)

    def _take(self, row: dict[str, Any]) -> None:
        kept = KeptEpisode.read(row)
        self.episodes[kept.number] = kept.summary

    def add(self, kept: KeptEpisode) -> None:
        """Returns once the episode is on the disk."""
        self._lines.add(kept.as_dict())

    def finish(self, result: Mapping[str, Any]) -> None:
        write_whole(self.folder / RESULT, json.dumps(result, indent=2, allow_nan=False) + "\n")

    def close(self) -> None:
        self._lines.file.close()


@contextmanager
def recorded(folder: Path | None, describe: Callable[[], Mapping[str, Any]]) -> Iterator[EvaluationRecord | None]:
    """The record in a folder, new or continued; None without a folder. Its evaluation has to be the described one."""
    if folder is None:
        yield None
        return
    about = {"format": FORMAT, **json.loads(json.dumps(describe()))}
    try:
        _begin(folder, about)
        with _locked(folder):
            record = EvaluationRecord(folder)
            try:
                yield record
            finally:
                record.close()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise BadInput(f"{folder} cannot hold an evaluation ({reason}); choose another --out.") from None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One evaluation at a time, at most until the process ends."""
    import fcntl  # Windows has none, and evaluations without a folder need none

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise BadInput(f"Another evaluation writes to {folder}; choose another --out, or wait for its end.") from None
    finally:
        os.close(descriptor)


def _begin(folder: Path, about: Mapping[str, Any]) -> None:
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file; --out must name a folder.")
    if not (folder / ABOUT).exists():
        if folder.exists() and any(folder.iterdir()):
            raise BadInput(f"{folder} is not empty and holds no evaluation; choose another --out.")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(folder / ABOUT, json.dumps(about, indent=2) + "\n")
        return
    before = read_about(folder)
    for key in {**before, **about}:
        if before.get(key) != about.get(key):
            raise BadInput(
                f"{folder} holds another evaluation: {key} is {before.get(key)!r} there and {about.get(key)!r} here; "
                "choose another --out."
            )


def read_about(folder: Path) -> dict[str, Any]:
    """What a folder's evaluation played; BadInput if it holds none."""
    about = read_json(folder / ABOUT)
    if not isinstance(about, dict):
        raise BadInput(f"{folder} holds no evaluation; name a folder of `kibitz evaluate --out`.")
    return about


def read_episodes(folder: Path) -> Iterator[KeptEpisode]:
    """The finished episodes of a folder, in the order in which they ended."""
    try:
        with (folder / EPISODES).open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    yield KeptEpisode.read(json.loads(line))
                except (ValueError, KeyError, TypeError):
                    raise BadInput(f"{folder / EPISODES} is damaged in line {number}.") from None
    except FileNotFoundError:
        raise BadInput(f"{folder} holds no episodes; name a folder of `kibitz evaluate --out`.") from None


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _without(event: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    kept = {key: value for key, value in event["payload"].items() if key not in keys}
    return {"type": event["type"], "payload": kept}
