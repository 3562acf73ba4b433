"""Hints for known positions, found without writing the question.

The answer cache of the client finds an answer by the whole question, and writing a question takes about a
millisecond, longer than a step of training: with every answer in that cache, 65,000 hints took 65 s. Found
by the hash of the position, they take 2 s, which is less than random hints from the host.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
from collections.abc import Callable, Sequence
from functools import cache
from inspect import getfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from kibitz.core.game import Game

log = logging.getLogger("kibitz.advice")
KEY_BYTES = 16
MAX_POSITIONS_READ = 2_000_000  # the newest


class PositionCache:
    """Acts and confidences by position, in memory and in a file. A file that fails is no longer used."""

    def __init__(self, sizes: tuple[int, ...], scope: str, path: str | Path | None) -> None:
        self.sizes, self.scope = np.array(sizes, np.int32), scope
        self.rows: dict[bytes, int] = {}  # row of each position in the two tables
        self.acts = np.zeros((1024, len(sizes)), np.int32)
        self.confidence = np.zeros(1024, np.float32)
        self.used = 0  # rows in use
        self.unsaved: list[bytes] = []
        self.db: sqlite3.Connection | None = None
        if path is not None and not self._guarded(lambda: self._open(Path(path))):
            self.rows, self.used = {}, 0  # the file failed before the tables were filled

    def find(self, keys: Sequence[bytes]) -> NDArray[np.int64]:
        """The row of each position; -1 for an unknown one."""
        get = self.rows.get
        return np.fromiter([get(key, -1) for key in keys], np.int64, len(keys))

    def add(self, key: bytes, act: Sequence[int], confidence: float) -> None:
        if key in self.rows:
            return
        if self.used == len(self.acts):
            self.acts = np.concatenate([self.acts, np.zeros_like(self.acts)])
            self.confidence = np.concatenate([self.confidence, np.zeros_like(self.confidence)])
        self.acts[self.used], self.confidence[self.used] = act, confidence
        self.rows[key] = self.used
        self.used += 1
        self.unsaved.append(key)

    def flush(self) -> None:
        """Writes all new positions as one row of the file: one row each would be slow to read."""
        keys, self.unsaved = self.unsaved, []
        if self.db is None or not keys:
            return
        db, rows = self.db, [self.rows[key] for key in keys]
        row = (self.scope, b"".join(keys), self.acts[rows].tobytes(), self.confidence[rows].tobytes())

        def write() -> None:
            with db:
                db.execute("INSERT INTO positions VALUES (?, ?, ?, ?)", row)

        self._guarded(write)

    def close(self) -> None:
        self.flush()
        if self.db is not None:
            self.db.close()
            self.db = None

    def _open(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.db = sqlite3.connect(path, timeout=5.0)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = NORMAL")
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS positions (scope TEXT NOT NULL, places BLOB NOT NULL, acts BLOB NOT NULL, "
            "confidences BLOB NOT NULL)"
        )
        self.db.execute("CREATE INDEX IF NOT EXISTS positions_by_scope ON positions (scope)")
        query = "SELECT places, acts, confidences FROM positions WHERE scope = ? ORDER BY rowid DESC"
        heads = len(self.sizes)
        tables: list[tuple[NDArray[np.int32], NDArray[np.float32]]] = []
        for keys, acts, confidences in self.db.execute(query, (self.scope,)):
            count = len(keys) // KEY_BYTES
            lengths = (len(keys), len(acts), len(confidences))
            if not count or lengths != (KEY_BYTES * count, 4 * heads * count, 4 * count):
                continue  # other programs can write the file
            table = np.frombuffer(acts, np.int32).reshape(count, heads), np.frombuffer(confidences, np.float32)
            self._index(keys, *table)
            tables.append(table)
            if self.used >= MAX_POSITIONS_READ:
                break
        if tables:
            self.acts = np.concatenate([acts for acts, _ in tables])
            self.confidence = np.concatenate([confidences for _, confidences in tables])

    def _index(self, keys: bytes, acts: NDArray[np.int32], confidences: NDArray[np.float32]) -> None:
        """Enters one row of the file, omitting invalid acts and confidences."""
        valid = ((acts >= 0) & (acts < self.sizes)).all(1) & (confidences >= 0) & (confidences <= 1)
        split = np.frombuffer(keys, f"V{KEY_BYTES}").tolist()
        self.rows.update({key: self.used + i for i, key in enumerate(split) if valid[i]})
        self.used += len(split)

    def _guarded(self, work: Callable[[], None]) -> bool:
        """Whether the work succeeded."""
        try:
            work()
        except (sqlite3.Error, OSError, TypeError) as error:
            log.warning("hints are no longer read from or written to the cache file: %s", error)
            if self.db is not None:
                self.db.close()
                self.db = None
            return False
        return True


def scope_of(game: Game, settings: Any, question: str) -> str:
    """A hash of all that decides a hint besides the position; `question` stands for model, sampling and template."""
    whole = hashlib.sha256(f"{game.name}\0{game.version}\0{question}\0".encode())
    for leaf in jax.tree.leaves(jax.device_get(settings)):
        array = np.asarray(leaf)
        whole.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    for function in (game.rules.view, game.words.prompt_variables):
        whole.update(_sources(Path(getfile(getattr(function, "func", function))).parent).encode())
    return whole.hexdigest()


@cache
def _sources(folder: Path) -> str:
    """A hash of the code that finds the words: a developer's edit there must not reuse old answers."""
    whole = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        whole.update(file.read_bytes())
    return whole.hexdigest()
