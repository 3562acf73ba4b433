"""Answers that were good once, in SQLite. A cache may fail at any time; then it is only slower."""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kibitz.llm.client.types import Usage

log = logging.getLogger("kibitz.llm")

LAYOUT = 1  # raised when old rows can no longer be read
MOST_IN_MEMORY = 100_000


class Entry(NamedTuple):
    text: str
    fields: Mapping[str, Any]
    likelihood: Mapping[str, float]
    usage: Usage  # what it did cost when it was asked


def key_of(*parts: Any) -> str:
    """A hash of everything that decides an answer."""
    whole = json.dumps([LAYOUT, *parts], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()


class Cache:
    """Safe to use from several threads and processes; None as a path keeps it in memory only."""

    def __init__(self, path: str | Path | None) -> None:
        self.memory: dict[str, Entry] = {}
        self.lock = threading.Lock()
        self.db: sqlite3.Connection | None = None
        if path is not None:
            self._open(Path(path))

    def get(self, key: str) -> Entry | None:
        with self.lock:
            if (entry := self.memory.get(key)) is not None or self.db is None:
                return entry
            try:
                row = self.db.execute("SELECT entry FROM answers WHERE key = ?", (key,)).fetchone()
                entry = _read(row[0]) if row else None
            except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
                self._give_up(error)
                return None
            if entry is not None:
                self._remember(key, entry)
            return entry

    def put(self, key: str, entry: Entry) -> None:
        with self.lock:
            self._remember(key, entry)
            if self.db is None:
                return
            try:
                with self.db:
                    self.db.execute(
                        "INSERT OR REPLACE INTO answers (key, entry, made_at) VALUES (?, ?, ?)",
                        (key, _write(entry), time.time()),
                    )
            except sqlite3.Error as error:
                self._give_up(error)

    def close(self) -> None:
        with self.lock:
            if self.db is not None:
                self.db.close()
                self.db = None

    def _open(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # a short wait: a locked file must not hold up calls that have a deadline
            self.db = sqlite3.connect(path, timeout=0.2, check_same_thread=False)
            self.db.execute("PRAGMA journal_mode = WAL")
            self.db.execute("PRAGMA synchronous = NORMAL")
            self.db.execute(
                "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, entry TEXT NOT NULL, made_at REAL NOT NULL)"
            )
        except (sqlite3.Error, OSError) as error:
            self._give_up(error)

    def _remember(self, key: str, entry: Entry) -> None:
        if len(self.memory) >= MOST_IN_MEMORY:
            del self.memory[next(iter(self.memory))]
        self.memory[key] = entry

    def _give_up(self, error: Exception) -> None:
        """A busy file is tried again next time; anything else ends the file's use."""
        if isinstance(error, sqlite3.OperationalError) and ("locked" in str(error) or "busy" in str(error)):
            return
        log.warning("the cache of answers is not used any more: %s", error)
        if self.db is not None:
            self.db.close()
            self.db = None


def _write(entry: Entry) -> str:
    usage = [entry.usage.prompt_tokens, entry.usage.completion_tokens, entry.usage.money]
    return json.dumps([entry.text, dict(entry.fields), dict(entry.likelihood), usage])


def _read(row: str) -> Entry:
    text, fields, likelihood, (prompt_tokens, completion_tokens, money) = json.loads(row)
    return Entry(text, fields, likelihood, Usage(int(prompt_tokens), int(completion_tokens), float(money)))
