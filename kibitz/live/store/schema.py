"""The store's schema version, and the steps that lead from each version to the next.

Version 1 is the first build's, which did not record it. A store of an older version is migrated when it is opened,
in one transaction; a newer one is refused.
"""

from __future__ import annotations

from typing import Any

from kibitz.live.store.base import StoreDamaged

COLUMNS = (
    "id, game, player0, player1, status, origin, owner, open, started_at, ended_at, "
    "return0, return1, text, about, secret"
)
TABLES = {  # and their columns
    "episodes": COLUMNS.split(", "), "events": ["episode_id", "seq", "body"], "verified": ["episode_id"],
}  # fmt: skip
# Statements by version, each harmless where it has been run: an older build may have created the table without a
# version. Only the types differ between SQLite and PostgreSQL. Add a step to change anything; never edit one.
MIGRATIONS = (
    """
    create table if not exists episodes (
      id {id} primary key, game text not null, player0 text not null, player1 text not null,
      status text not null, origin text not null, owner text not null, open integer not null,
      started_at {real} not null, ended_at {real}, return0 {real}, return1 {real},
      text text not null default '', about text not null, secret text not null
    ) {options};
    create index if not exists episodes_by_start on episodes (started_at desc, id);
    create index if not exists episodes_by_status on episodes (status);
    create table if not exists events (
      episode_id {id} not null, seq integer not null, body {bytes} not null, primary key (episode_id, seq)
    ) {options}
    """,
    "create table if not exists verified (episode_id {id} primary key) {options}",
)
VERSION = len(MIGRATIONS)
SELECT_VERSION = "select max(version) from store_version"


class WrongVersion(StoreDamaged):
    """Another version of kibitz wrote the store."""


def migrate(db: Any, dialect: dict[str, str], select_columns: str) -> tuple[int, int]:
    """The versions before and after; 0 before: the store is new. Call it in a transaction, which a failure undoes."""
    is_new = not db.execute(select_columns, ("episodes",)).fetchall()
    db.execute("create table if not exists store_version (version integer not null)")
    found = db.execute(SELECT_VERSION).fetchone()[0]
    before = found or (0 if is_new else 1)
    check_version(before, oldest=0)
    for step in MIGRATIONS[found or 0 :]:
        for statement in step.format(**dialect).split(";"):
            db.execute(statement)
    check_columns({table: db.execute(select_columns, (table,)).fetchall() for table in TABLES})
    if before != VERSION or not found:
        db.execute("insert into store_version values (?)", (VERSION,))
    return before, VERSION


def check_version(found: int, oldest: int = VERSION) -> None:
    if found > VERSION:
        knows = f"but this kibitz knows only version {VERSION}; upgrade kibitz"
        raise WrongVersion(f"The store has schema version {found}, {knows}.")
    if found < oldest:
        raise WrongVersion(f"The store has schema version {found}, not {VERSION}; run `kibitz store migrate`.")


def check_columns(found: dict[str, list[Any]]) -> None:
    for table, rows in found.items():
        if {name for (name,) in rows} != set(TABLES[table]):
            raise StoreDamaged(f"The store's table {table} is not the one that this version of kibitz uses.")
