"""Examples from episodes that were played elsewhere: a live server's store, or a file of events.

An ended episode's events contain all that a replay needs: options, seed and acts. So a store is only read, a server may
go on writing to it, and each position is the one that the player saw.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kibitz.advice.ask import History, Position
from kibitz.core.errors import BadInput
from kibitz.core.play.events import LAST, Event
from kibitz.core.system.paths import named
from kibitz.teach.examples.walk import Example

if TYPE_CHECKING:
    from kibitz.live.episodes.prepare import PreparedEpisode

Found = TypeVar("Found")
EVENTS = """select episodes.id, body from episodes join events on episode_id = episodes.id
where game = {0} and status = 'ended' order by started_at, episodes.id, seq"""


@dataclass(frozen=True)
class Stored:
    """Which stored episodes to read."""

    source: str  # an SQLite file, postgresql://..., or a file of events as JSON Lines
    player: str = ""  # whose acts become examples; default: both seats'
    opponents: frozenset[str] = frozenset()  # in the other seat; default: any


def stored_examples(game: str, asked: Stored, skipped: Callable[[str], None]) -> Iterator[list[Example]]:
    """The examples of each episode and seat, in the order of their start; `paid` is that seat's return."""

    def read(events: list[Event], names: list[str]) -> list[list[Example]]:
        seats = [
            seat
            for seat in (0, 1)
            if asked.player in ("", names[seat]) and (not asked.opponents or names[1 - seat] in asked.opponents)
        ]
        return list(_replayed(game, events, names, seats)) if seats else []

    for found in each_ended(asked.source, game, read, skipped):
        yield from found


def each_ended(
    source: str, game: str, read: Callable[[list[Event], list[str]], Found], skipped: Callable[[str], None]
) -> Iterator[Found]:
    """What `read` makes of the events and the players of each ended episode; records it cannot read are skipped."""
    try:
        from kibitz.live.episodes.branch import NotReplayable
    except ImportError as error:
        raise BadInput(f"{error.name} is not installed; run `pip install 'kibitz[live]'`.") from None
    for events in episodes(source, game):
        try:
            names = [str(name) for name in events[0].payload.get("players", ())]
            if events[-1].type not in LAST or events[0].payload.get("game") != game or len(names) != 2:
                continue
            found = read(events, names)
        except (NotReplayable, BadInput) as error:
            skipped(f"{events[0].episode_id}: {error}")
        except (AttributeError, TypeError, ValueError, OverflowError):  # a foreign driver may write any values
            skipped(f"{events[0].episode_id}: That record is not in kibitz's format.")
        else:
            yield found


class _Record:
    """Stands for a store that holds one episode."""

    def __init__(self, events: list[Event]) -> None:
        self._bodies = [event.as_json().encode() for event in events]

    def events(self, episode_id: str, since: int) -> list[bytes]:
        return self._bodies[since + 1 :]


def recorded(game: str, events: list[Event], names: Sequence[str]) -> PreparedEpisode:
    """An ended episode as it was played, ready to be replayed: its branch holds every act."""
    from kibitz.live.episodes.branch import read_whole
    from kibitz.live.episodes.prepare import Limits, prepare
    from kibitz.live.episodes.timeouts import StopSignal
    from kibitz.live.store.base import Row

    first = events[0]
    row = Row(first.episode_id, game, (names[0], names[1]), first.ts, about=first.payload.get("about", {}))
    record: Any = _Record(events)
    request, branch = read_whole(record, row)
    return prepare(request, Limits(), StopSignal(), branch)


def _replayed(game: str, events: list[Event], names: list[str], seats: list[int]) -> Iterator[list[Example]]:
    from kibitz.core.play.episode import table_for
    from kibitz.live.episodes.verify import replay

    whole = recorded(game, events, names)
    assert whole.branch is not None
    script = whole.branch.script
    table, history = table_for(whole.game), list[dict[str, Any]]()
    found: dict[int, list[tuple[Position, tuple[int, ...]]]] = {seat: [] for seat in seats}

    def seen(number: int, state: Any, acts: list[tuple[int, ...] | None]) -> None:
        for seat in seats:
            choice = script[number][seat]
            if choice is not None and not choice.fallback:  # a fallback's act is not the player's
                view, masks = table.observe(whole.settings, state, seat)
                past: History = list(history)
                found[seat].append((Position(whole.settings, view, masks, past), choice.act))
        history.extend({"seat": seat, "act": act} for seat, act in enumerate(acts) if act is not None)

    returns = replay(whole, seen)
    for seat in seats:
        yield [Example(position, act, returns[seat]) for position, act in found[seat]]


def episodes(source: str, game: str) -> Iterator[list[Event]]:
    """The events of each episode of the game."""
    from kibitz.live.store.stored_event import decode_event

    postgres = source.startswith(("postgresql://", "postgres://"))
    rows = _from_postgres(source, game) if postgres else _from_file(source, game)
    for _, group in itertools.groupby(rows, key=lambda row: row[0]):
        try:
            yield sorted((decode_event(bytes(body)) for _, body in group), key=lambda event: event.seq)
        except (ValueError, KeyError, TypeError):
            raise BadInput(
                f"{source.split('@')[-1]!r} holds a line that is not an event; name another store."
            ) from None


def _from_file(source: str, game: str) -> Iterator[tuple[str, bytes]]:
    path = named(source.removeprefix("sqlite:///"))
    if not path.is_file():
        raise BadInput(f"There is no store {source!r}; name an SQLite file, postgresql://... or a file of events.")
    with path.open("rb") as file:
        is_sqlite = file.read(16) == b"SQLite format 3\0"
    yield from _from_sqlite(path, game) if is_sqlite else _from_lines(path)


def _from_sqlite(path: Path, game: str) -> Iterator[tuple[str, bytes]]:
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
            yield from db.execute(EVENTS.format("?"), (game,))
    except sqlite3.Error as error:
        raise BadInput(f"The store {path} cannot be read: {error}; name one of `kibitz serve`.") from None


def _from_postgres(source: str, game: str) -> Iterator[tuple[str, bytes]]:
    try:
        import psycopg
    except ImportError:
        raise BadInput("psycopg is not installed; run `pip install 'kibitz[scale]'`.") from None
    try:
        with psycopg.connect(source, connect_timeout=10) as db, db.cursor("teach") as cursor:
            yield from cursor.execute(EVENTS.format("%s"), (game,))
    except psycopg.Error as error:
        place, reason = source.split("@")[-1], str(error).partition("\n")[0]
        raise BadInput(f"The store {place!r} cannot be read: {reason}; name one of `kibitz serve`.") from None


def _from_lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """Of one episode after another, as `GET /episodes/ID/events` gives them."""
    import orjson

    with path.open("rb") as file:
        for line in file:
            try:
                yield str(orjson.loads(line)["episode_id"]), line
            except (ValueError, KeyError, TypeError):
                raise BadInput(f"{path} is neither a store nor a file of events; name another one.") from None
