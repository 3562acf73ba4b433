"""Hints of positions that were met before, found without a word being written.

The cache of answers is found by the whole question, and writing a question costs more than a step of training.
Here the same answers are found by the hash of a position. It is only ever a shortcut: whatever else decides an
answer (model, sampling, template, settings, the code that finds the words) is in `scope`.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
from collections.abc import Iterable, Sequence
from functools import cache
from inspect import getfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from kibitz.core.game import Game
from kibitz.core.paths import PACKAGE

log = logging.getLogger("kibitz.hints")
MOST = 2_000_000  # positions read from a file, the newest


class Known:
    """Acts and confidences by position. A file that fails is not used any more; then it is only slower."""

    def __init__(self, sizes: tuple[int, ...], scope: str, path: str | Path | None) -> None:
        self.sizes, self.scope = np.array(sizes, np.int32), scope
        self.rows: dict[bytes, int] = {}
        self.acts = np.zeros((1024, len(sizes)), np.int32)
        self.confidence = np.zeros(1024, np.float32)
        self.used = 0  # rows of the two tables
        self.fresh: list[tuple[str, bytes, bytes, float]] = []
        self.db: sqlite3.Connection | None = None
        if path is not None:
            self._guarded(lambda: self._open(Path(path)))

    def find(self, places: Sequence[bytes]) -> NDArray[np.int64]:
        """The row of each, -1 where it is not known."""
        get = self.rows.get
        return np.fromiter([get(place, -1) for place in places], np.int64, len(places))

    def add(self, place: bytes, act: Sequence[int], confidence: float) -> None:
        self._put(place, act, confidence)
        if self.db is not None:
            self.fresh.append((self.scope, place, np.asarray(act, np.int32).tobytes(), confidence))

    def flush(self) -> None:
        """Into the file, all new ones at once."""
        if self.db is None or not self.fresh:
            return
        db, rows, self.fresh = self.db, self.fresh, []

        def write() -> None:
            with db:
                db.executemany("INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?)", rows)

        self._guarded(write)

    def close(self) -> None:
        self.flush()
        if self.db is not None:
            self.db.close()
            self.db = None

    def _put(self, place: bytes, act: Sequence[int] | NDArray[Any], confidence: float) -> None:
        row = self.rows.setdefault(place, self.used)
        self.used = max(self.used, row + 1)
        if row == len(self.acts):
            self.acts = np.concatenate([self.acts, np.zeros_like(self.acts)])
            self.confidence = np.concatenate([self.confidence, np.zeros_like(self.confidence)])
        self.acts[row], self.confidence[row] = act, confidence

    def _open(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.db = sqlite3.connect(path, timeout=5.0)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = NORMAL")
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS positions (scope TEXT NOT NULL, place BLOB NOT NULL, act BLOB NOT NULL, "
            "confidence REAL NOT NULL, PRIMARY KEY (scope, place))"
        )
        query = "SELECT place, act, confidence FROM positions WHERE scope = ? ORDER BY rowid DESC LIMIT ?"
        rows = self.db.execute(query, (self.scope, MOST)).fetchall()
        width = 4 * len(self.sizes)
        whole = [row for row in rows if len(row[1]) == width]  # anybody may have touched the file
        if not whole:
            return
        acts = np.frombuffer(b"".join(row[1] for row in whole), np.int32).reshape(len(whole), -1)
        confidence = np.array([row[2] for row in whole], np.float32)
        good = ((acts >= 0) & (acts < self.sizes)).all(1) & (confidence >= 0) & (confidence <= 1)
        self.rows = {row[0]: i for i, row in enumerate(whole) if good[i]}
        self.acts, self.confidence, self.used = acts.copy(), confidence, len(whole)

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except (sqlite3.Error, OSError, TypeError) as error:
            log.warning("the file of known hints is not used any more: %s", error)
            if self.db is not None:
                self.db.close()
                self.db = None


def scope_of(game: Game, settings: Any, question: str) -> str:
    """A hash of all that decides a hint besides the position; `question` stands for model, sampling and template."""
    whole = hashlib.sha256(f"{game.name}\0{game.version}\0{question}\0".encode())
    for leaf in jax.tree.leaves(jax.device_get(settings)):
        array = np.asarray(leaf)
        whole.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    whole.update(_code(_home(game.describe)).encode())
    return whole.hexdigest()


def _home(function: Any) -> Path:
    """The folder of the file that defines it."""
    return Path(getfile(getattr(function, "func", function))).parent


@cache
def _code(home: Path) -> str:
    """Words come from code: with other code nothing is known."""
    whole = hashlib.sha256()
    for file in _sources((PACKAGE, home)):
        whole.update(file.read_bytes())
    return whole.hexdigest()


def _sources(folders: Iterable[Path]) -> list[Path]:
    return sorted({file for folder in folders for file in folder.rglob("*.py")})
