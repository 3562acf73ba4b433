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

log = logging.getLogger("kibitz.advice")
PLACE = 16  # bytes of a position's hash
MOST = 2_000_000  # positions read from a file, the newest


class Known:
    """Acts and confidences by position. A file that fails is not used any more; then it is only slower."""

    def __init__(self, sizes: tuple[int, ...], scope: str, path: str | Path | None) -> None:
        self.sizes, self.scope = np.array(sizes, np.int32), scope
        self.rows: dict[bytes, int] = {}
        self.acts = np.zeros((1024, len(sizes)), np.int32)
        self.confidence = np.zeros(1024, np.float32)
        self.used = 0  # rows of the two tables
        self.fresh: list[bytes] = []  # places that are not in the file yet
        self._read: list[tuple[NDArray[np.int32], NDArray[np.float32]]] = []
        self.db: sqlite3.Connection | None = None
        if path is not None and not self._guarded(lambda: self._open(Path(path))):
            self.rows, self.used, self._read = {}, 0, []  # it broke off before the tables were filled

    def find(self, places: Sequence[bytes]) -> NDArray[np.int64]:
        """The row of each, -1 where it is not known."""
        get = self.rows.get
        return np.fromiter([get(place, -1) for place in places], np.int64, len(places))

    def add(self, place: bytes, act: Sequence[int], confidence: float) -> None:
        if place in self.rows:
            return
        if self.used == len(self.acts):
            self.acts = np.concatenate([self.acts, np.zeros_like(self.acts)])
            self.confidence = np.concatenate([self.confidence, np.zeros_like(self.confidence)])
        self.acts[self.used], self.confidence[self.used] = act, confidence
        self.rows[place] = self.used
        self.used += 1
        self.fresh.append(place)

    def flush(self) -> None:
        """Into the file, all new ones as one row: a row for each would take longer to read than to train with."""
        places, self.fresh = self.fresh, []
        if self.db is None or not places:
            return
        db, rows = self.db, [self.rows[place] for place in places]
        row = (self.scope, b"".join(places), self.acts[rows].tobytes(), self.confidence[rows].tobytes())

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
        for places, acts, confidences in self.db.execute(query, (self.scope,)):
            count = len(places) // PLACE
            sizes = (len(places), len(acts), len(confidences))
            if not count or sizes != (PLACE * count, 4 * heads * count, 4 * count):
                continue  # anybody may have touched the file
            self._take(places, np.frombuffer(acts, np.int32).reshape(count, heads), np.frombuffer(confidences, "f4"))
            if self.used >= MOST:
                break
        self._whole()

    def _take(self, places: bytes, acts: NDArray[np.int32], confidences: NDArray[np.float32]) -> None:
        """One row of the file; what is no act or no confidence is left out."""
        good = ((acts >= 0) & (acts < self.sizes)).all(1) & (confidences >= 0) & (confidences <= 1)
        keys = np.frombuffer(places, f"V{PLACE}").tolist()
        self.rows.update({key: self.used + i for i, key in enumerate(keys) if good[i]})
        self._read.append((acts, confidences))
        self.used += len(keys)

    def _whole(self) -> None:
        if self._read:
            self.acts = np.concatenate([acts for acts, _ in self._read])
            self.confidence = np.concatenate([confidences for _, confidences in self._read])
        self._read = []

    def _guarded(self, work: Any) -> bool:
        """Whether it went well."""
        try:
            work()
        except (sqlite3.Error, OSError, TypeError) as error:
            log.warning("the file of known hints is not used any more: %s", error)
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
    whole.update(_code(_home(game.words.prompt_variables)).encode())
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
