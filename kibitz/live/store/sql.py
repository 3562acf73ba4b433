"""Episodes and events in SQL tables. `sqlite` and `postgres` add connections and what their dialects differ in.

Commit, then show: nothing reaches a watcher before `append` returns. A commit survives `kill -9` of the server. A power
cut may lose the last commits, but never the middle of an episode.
"""

from __future__ import annotations

import logging
import secrets
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import orjson

from kibitz.core.play.events import mostly_fallback
from kibitz.live.store.base import MAX_READ_BYTES, EpisodeClosed, Query, Row, SequenceGap, StoreDamaged
from kibitz.live.store.schema import COLUMNS, SELECT_VERSION, TABLES, check_columns, check_version
from kibitz.live.store.stored_event import PackedEvent, StoredEvent
from kibitz.live.store.writer import Writer

log = logging.getLogger("kibitz.live")
# a server's own episodes, and those whose result a replay has confirmed
VERIFIED = "(origin = 'server' or exists (select 1 from verified where verified.episode_id = id))"
# a branch does not count: other players began it, and its luck is known
COUNTED = f"""status = 'ended' and {VERIFIED} and replace(about, '"branched_from":', '') = about"""
SELECT_ROWS = f"""
select {COLUMNS}, (select coalesce(max(seq), -1) from events where episode_id = id), {VERIFIED} from episodes
"""
DECISION = b'"type":"decision"'  # as `StoredEvent` encodes it
FALLBACK_SEAT = "fallback_seat_{}"  # a key of `about`: the fallback bot played most of this seat's turns
REPLACED = [
    f"""case when replace(about, '"{FALLBACK_SEAT.format(seat)}":', '') = about then 0 else 1 end""" for seat in (0, 1)
]
LEADERBOARD = f"""
select game, player, sum(1 - replaced), avg(case when replaced = 0 then mine end),
  sum(case when replaced = 0 and mine > theirs then 1 else 0 end),
  sum(case when replaced = 0 and mine = theirs then 1 else 0 end), sum(replaced) from (
  select game, player0 as player, return0 as mine, return1 as theirs, {REPLACED[0]} as replaced
    from episodes where {COUNTED}
  union all select game, player1, return1, return0, {REPLACED[1]} from episodes where {COUNTED}) as sides
group by game, player order by game, sum(1 - replaced) = 0, avg(case when replaced = 0 then mine end) desc, player
"""
OPPONENTS = f"""
select game, opponent, sum(1 - replaced), avg(case when replaced = 0 then mine end),
  sum(case when replaced = 0 and mine > theirs then 1 else 0 end),
  sum(case when replaced = 0 and mine = theirs then 1 else 0 end), sum(replaced) from (
  select game, player1 as opponent, return0 as mine, return1 as theirs, {REPLACED[0]} as replaced
    from episodes where player0 = ? and {COUNTED}
  union all select game, player0, return1, return0, {REPLACED[1]} from episodes where player1 = ? and {COUNTED}
  ) as sides
group by game, opponent order by game, sum(1 - replaced) desc, opponent
"""


class Store(ABC):
    """Blocking calls, from any thread. Statements use SQLite's placeholder `?`; see `postgres.Connection`."""

    name: ClassVar[str]
    shared: ClassVar[bool]  # other servers may write here too
    row_lock: ClassVar[str] = ""  # ends the select that precedes an append
    select_columns: ClassVar[str]  # the names of a table's columns
    migrated: tuple[int, int]  # schema versions before and after opening; 0: the store is new

    def __init__(self, store_timeout: float, unavailable: tuple[type[Exception], ...]) -> None:
        self.owner = secrets.token_hex(4)  # marks the episodes that this server plays
        self.damage = ""  # what the last `check` found; while it is set, the store accepts nothing
        self.writer: Writer[Any] = Writer(self._transact, unavailable, store_timeout)

    def log_migration(self) -> None:
        before, after = self.migrated
        if 0 < before < after:
            log.info("migrated the store from schema version %d to %d", before, after)

    @abstractmethod
    def _transact(self, jobs: list[Callable[[Any], Any]]) -> list[Any]:
        """Runs the jobs in one transaction, with `run_jobs`, and commits it."""

    @abstractmethod
    def _read(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """Raises StoreUnavailable."""

    @abstractmethod
    def events(self, episode_id: str, since: int, limit: int = 1000, max_bytes: int = MAX_READ_BYTES) -> list[bytes]:
        """Bodies with seq above `since`, in order; none only if none exist.

        At most `limit`, and as many as begin within `max_bytes`.
        """

    @abstractmethod
    def orphaned(self) -> list[Row]:
        """Running episodes whose server seems to be gone; never this server's own."""

    @abstractmethod
    def heartbeat(self) -> None:
        """Signals to servers that share the store that this one is alive. Call it every few seconds."""

    @abstractmethod
    def close(self) -> None: ...

    def check(self) -> None:
        """Raises StoreUnavailable if the store cannot be read, StoreDamaged if it also needs repair."""
        try:
            self._check()
        except StoreDamaged as damaged:
            self.damage = str(damaged)
            raise
        self.damage = ""

    def _check(self) -> None:
        check_version(self._read(SELECT_VERSION)[0][0] or 0)
        check_columns({table: self._read(self.select_columns, (table,)) for table in TABLES})

    def _write(self, job: Callable[[Any], Any]) -> Any:
        """Returns once the job is committed."""
        if self.damage:
            raise StoreDamaged(self.damage)
        return self.writer.run(job)

    def begin(self, row: Row) -> None:
        """Adds an episode. An id that exists is accepted while it has no events; otherwise EpisodeClosed."""
        self._write(lambda db: _begin(db, row))

    def append(self, event: StoredEvent) -> bool:
        """Returns once the event is committed; False if it already was. Raises SequenceGap or EpisodeClosed."""
        _ = event.body  # serialise here, not in the writer's only thread
        added: bool = self._write(lambda db: _append(db, event, self.row_lock))
        return added

    def load(self, row: Row, events: Iterable[StoredEvent | PackedEvent]) -> None:
        """Adds a complete episode, or nothing of it."""
        listed = list(events)
        rows = [(row.episode_id, event.seq, event.body) for event in listed]

        def job(db: Any) -> None:
            if not _begin(db, row):  # its server or driver may not have sent its first event yet
                raise EpisodeClosed(f"There is already an episode {row.episode_id}.")
            db.cursor().executemany("insert into events values (?, ?, ?)", rows)
            _finish(db, listed[-1])

        self._write(job)

    def mark_verified(self, episode_id: str) -> None:
        """Counts the episode on the leaderboard from now on."""
        self._write(lambda db: db.execute("insert into verified values (?) on conflict do nothing", (episode_id,)))

    def episode(self, episode_id: str) -> Row | None:
        found = self._rows("where id = ?", (episode_id,))
        return found[0] if found else None

    def episodes(self, query: Query) -> list[Row]:
        where, values = _where(query)
        return self._rows(f"{where} order by started_at desc, id limit ?", (*values, query.limit))

    def open_drivers(self) -> int:
        """How many episodes of remote drivers have not ended."""
        found = self._read("select count(*) from episodes where status = 'running' and origin = 'driver'")
        return int(found[0][0])

    def leaderboard(self) -> list[dict[str, Any]]:
        """By game and player: episodes, mean return, wins, draws; episodes that the fallback played count apart."""
        return [_record("player", found) for found in self._read(LEADERBOARD)]

    def opponents(self, player: str) -> list[dict[str, Any]]:
        """The same for one player, by game and opponent."""
        return [_record("opponent", found) for found in self._read(OPPONENTS, (player, player))]

    def _rows(self, where: str, values: tuple[Any, ...]) -> list[Row]:
        return [_row(found) for found in self._read(f"{SELECT_ROWS} {where}", values)]


def _record(whom: str, found: Any) -> dict[str, Any]:
    game, name, episodes, mean, wins, draws, replaced = found
    return {
        "game": game,
        whom: name,
        "episodes": int(episodes),
        "mean_return": None if mean is None else float(mean),
        "wins": int(wins),
        "draws": int(draws),
        "fallback_episodes": int(replaced),
    }


def run_jobs(db: Any, jobs: Iterable[Callable[[Any], Any]]) -> list[Any]:
    """Their results, inside an open transaction. A refused job has written nothing, so the others continue."""
    results: list[Any] = []
    for job in jobs:
        try:
            results.append(job(db))
        except (SequenceGap, EpisodeClosed) as refused:
            results.append(refused)
    return results


def _next_seq(db: Any, episode_id: str) -> int:
    found = db.execute("select coalesce(max(seq), -1) + 1 from events where episode_id = ?", (episode_id,))
    return int(found.fetchone()[0])


def _begin(db: Any, row: Row) -> bool:
    """Whether the row is new."""
    marks = ", ".join("?" * len(COLUMNS.split(",")))
    first, second = row.returns or (None, None)
    values = (
        row.episode_id, row.game, *row.players, row.status, row.origin, row.owner, int(row.open_table), row.started_at,
        row.ended_at, first, second, row.text, orjson.dumps(row.about).decode(), orjson.dumps(row.secret).decode(),
    )  # fmt: skip
    added = db.execute(f"insert into episodes ({COLUMNS}) values ({marks}) on conflict (id) do nothing", values)
    if not added.rowcount and _next_seq(db, row.episode_id):
        raise EpisodeClosed(f"There is already an episode {row.episode_id}.")
    return bool(added.rowcount)


def _append(db: Any, event: StoredEvent, row_lock: str) -> bool:
    found = db.execute(f"select status from episodes where id = ? {row_lock}", (event.episode_id,)).fetchone()
    expected = _next_seq(db, event.episode_id)
    if event.seq < expected:
        return False
    if event.seq > expected:
        raise SequenceGap(expected)
    if found is None or found[0] != "running":
        raise EpisodeClosed(f"Episode {event.episode_id} is not running.")
    db.execute("insert into events values (?, ?, ?)", (event.episode_id, event.seq, event.body))
    if event.last:
        _finish(db, event)
    return True


def _finish(db: Any, last: StoredEvent | PackedEvent) -> None:
    event = last.event
    payload = event.payload
    if event.type == "episode.ended":
        status, text = "ended", payload.get("text", "")
        first, second = (float(points) for points in payload["returns"])
        returns: tuple[float | None, float | None] = (first, second)
        _mark_fallbacks(db, last.episode_id)
    else:
        status = "interrupted" if payload.get("kind") == "interrupted" else "failed"
        text, returns = payload.get("reason", ""), (None, None)
    db.execute(
        "update episodes set status = ?, ended_at = ?, return0 = ?, return1 = ?, text = ? where id = ?",
        (status, event.ts, *returns, str(text).replace("\0", ""), last.episode_id),
    )


def _mark_fallbacks(db: Any, episode_id: str) -> None:
    """Notes which seats the fallback bot mostly played: their results do not count."""
    turns, fallbacks = Counter[int](), Counter[int]()
    for (body,) in db.execute("select body from events where episode_id = ?", (episode_id,)).fetchall():
        if DECISION in bytes(body):
            payload = orjson.loads(body)["payload"]  # a driver of another version may omit keys
            turns[payload.get("seat", 0)] += 1
            fallbacks[payload.get("seat", 0)] += bool(payload.get("fallback"))
    seats = [seat for seat in sorted(turns) if mostly_fallback(fallbacks[seat], turns[seat])]
    if seats:
        about = orjson.loads(db.execute("select about from episodes where id = ?", (episode_id,)).fetchone()[0])
        about |= {FALLBACK_SEAT.format(seat): True for seat in seats}
        db.execute("update episodes set about = ? where id = ?", (orjson.dumps(about).decode(), episode_id))


def _row(found: Any) -> Row:
    (
        episode_id, game, first, second, status, origin, owner, open_table, started, ended, return0, return1, text,
        about, secret, last_seq, verified,
    ) = found  # fmt: skip
    return Row(
        episode_id, game, (first, second), started, status, origin, owner, bool(open_table), ended, int(last_seq),
        None if return0 is None else (return0, return1), text, orjson.loads(about), orjson.loads(secret),
        bool(verified),
    )  # fmt: skip


def _where(query: Query) -> tuple[str, list[Any]]:
    parts: list[str] = []
    values: list[Any] = []
    if query.game is not None:
        parts.append("game = ?")
        values.append(query.game)
    if query.status is not None:
        parts.append("status = ?")
        values.append(query.status)
    if query.player is not None:
        parts.append("(player0 = ? or player1 = ?)")
        values += [query.player] * 2
    if query.before is not None:
        parts.append("(started_at < ? or (started_at = ? and id > ?))")
        values += [query.before[0], query.before[0], query.before[1]]
    return ("where " + " and ".join(parts) if parts else ""), values
