"""Episodes as rows of a table: the same columns in the same order in both stores."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from kibitz.live.store.base import Query, Row

COLUMNS = (
    "id, game, player0, player1, status, origin, owner, open, started_at, ended_at, "
    "return0, return1, text, about, secret"
)
LAST_SEQ = "(select coalesce(max(seq), -1) from events where episode_id = id)"
LEADERBOARD = """
select game, player, count(*), avg(mine),
  sum(case when mine > theirs then 1 else 0 end), sum(case when mine = theirs then 1 else 0 end) from (
  select game, player0 as player, return0 as mine, return1 as theirs from episodes where status = 'ended'
  union all select game, player1, return1, return0 from episodes where status = 'ended') as sides
group by game, player order by game, avg(mine) desc
"""


def standings(rows: Iterable[Any]) -> list[dict[str, Any]]:
    return [
        {
            "game": game,
            "player": player,
            "episodes": int(episodes),
            "mean_return": float(mean),
            "wins": int(wins),
            "draws": int(draws),
        }
        for game, player, episodes, mean, wins, draws in rows
    ]


def values_of(row: Row) -> tuple[Any, ...]:
    first, second = row.returns or (None, None)
    return (
        row.episode_id, row.game, *row.players, row.status, row.origin, row.owner, int(row.open_table), row.started_at,
        row.ended_at, first, second, row.text, orjson.dumps(row.about).decode(), orjson.dumps(row.secret).decode(),
    )  # fmt: skip


def row_of(found: Any) -> Row:
    (
        episode_id, game, first, second, status, origin, owner, open_table, started, ended, return0, return1, text,
        about, secret, last_seq,
    ) = found  # fmt: skip
    return Row(
        episode_id, game, (first, second), started, status, origin, owner, bool(open_table), ended, int(last_seq),
        None if return0 is None else (return0, return1), text, orjson.loads(about), orjson.loads(secret),
    )  # fmt: skip


def conditions(query: Query, mark: str) -> tuple[str, list[Any]]:
    """A where clause with its values."""
    parts: list[str] = []
    values: list[Any] = []
    if query.game is not None:
        parts.append(f"game = {mark}")
        values.append(query.game)
    if query.status is not None:
        parts.append(f"status = {mark}")
        values.append(query.status)
    if query.player is not None:
        parts.append(f"(player0 = {mark} or player1 = {mark})")
        values += [query.player] * 2
    if query.before is not None:
        parts.append(f"(started_at < {mark} or (started_at = {mark} and id > {mark}))")
        values += [query.before[0], query.before[0], query.before[1]]
    return ("where " + " and ".join(parts) if parts else ""), values
