"""A cache of good answers in SQLite. When the file fails, the client only gets slower."""

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

FORMAT_VERSION = 1  # raise it when old rows can no longer be read
MAX_MEMORY_ENTRIES = 100_000
LOCK_SECONDS = 0.2  # short: a locked file must not delay calls that have a deadline


class CachedAnswer(NamedTuple):
    text: str
    fields: Mapping[str, Any]
    likelihood: Mapping[str, float]
    usage: Usage  # what the call cost


def cache_key(*parts: Any) -> str:
    """A hash of everything that determines an answer."""
    text = json.dumps([FORMAT_VERSION, *parts], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Cache:
    """Several threads and processes may share the file. Without a path it stays in memory."""

    def __init__(self, path: str | Path | None) -> None:
        self.memory: dict[str, CachedAnswer] = {}
        self.lock = threading.Lock()
        self.db: sqlite3.Connection | None = None
        if path is not None:
            self._open(Path(path))

    def get(self, key: str) -> CachedAnswer | None:
        with self.lock:
            if (entry := self.memory.get(key)) is not None or self.db is None:
                return entry
            try:
                row = self.db.execute("SELECT entry FROM answers WHERE key = ?", (key,)).fetchone()
                entry = _decode(row[0]) if row else None
            except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
                self._handle(error)
                return None
            if entry is not None:
                self._remember(key, entry)
            return entry

    def put(self, key: str, entry: CachedAnswer) -> None:
        with self.lock:
            self._remember(key, entry)
            if self.db is None:
                return
            try:
                with self.db:
                    self.db.execute(
                        "INSERT OR REPLACE INTO answers (key, entry, made_at) VALUES (?, ?, ?)",
                        (key, _encode(entry), time.time()),
                    )
            except sqlite3.Error as error:
                self._handle(error)

    def close(self) -> None:
        with self.lock:
            self._close_file()

    def _open(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.db = sqlite3.connect(path, timeout=LOCK_SECONDS, check_same_thread=False)
            self.db.execute("PRAGMA journal_mode = WAL")
            self.db.execute("PRAGMA synchronous = NORMAL")
            self.db.execute(
                "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, entry TEXT NOT NULL, made_at REAL NOT NULL)"
            )
        except (sqlite3.Error, OSError) as error:
            self._handle(error)

    def _remember(self, key: str, entry: CachedAnswer) -> None:
        if len(self.memory) >= MAX_MEMORY_ENTRIES:
            del self.memory[next(iter(self.memory))]
        self.memory[key] = entry

    def _handle(self, error: Exception) -> None:
        """Retry a busy file next time; after any other error continue in memory only."""
        if isinstance(error, sqlite3.OperationalError) and ("locked" in str(error) or "busy" in str(error)):
            return
        log.warning("the answer cache file is no longer used: %s", error)
        self._close_file()

    def _close_file(self) -> None:
        if self.db is not None:
            self.db.close()
            self.db = None


def _encode(entry: CachedAnswer) -> str:
    usage = [entry.usage.prompt_tokens, entry.usage.completion_tokens, entry.usage.money]
    return json.dumps([entry.text, dict(entry.fields), dict(entry.likelihood), usage])


def _decode(row: str) -> CachedAnswer:
    text, fields, likelihood, (prompt_tokens, completion_tokens, money) = json.loads(row)
    return CachedAnswer(text, fields, likelihood, Usage(int(prompt_tokens), int(completion_tokens), float(money)))
