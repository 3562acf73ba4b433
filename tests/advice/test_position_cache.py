"""Hints by position, from a file that other programs can write."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from kibitz.advice.position_cache import PositionCache

SIZES = (5, 11, 11, 11)
ACT = (4, 3, 2, 1)


def keys(start: int, count: int) -> list[bytes]:
    return [number.to_bytes(16, "big") for number in range(start, start + count)]


def write(file: Path, rows: int = 3) -> None:
    cache = PositionCache(SIZES, "scope", file)
    for row in range(rows):
        for key in keys(200 * row, 200):
            cache.add(key, ACT, 0.75)
        cache.flush()
    cache.close()


def test_written_positions_are_found_again(tmp_path: Path) -> None:
    write(tmp_path / "positions.sqlite")
    cache = PositionCache(SIZES, "scope", tmp_path / "positions.sqlite")
    rows = cache.find(keys(0, 601))
    assert rows[-1] == -1
    assert np.unique(cache.acts[rows[:-1]], axis=0).tolist() == [list(ACT)]
    assert set(cache.confidence[rows[:-1]].tolist()) == {0.75}
    cache.close()


def test_a_damaged_file_is_ignored_and_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "positions.sqlite"
    write(file)
    with sqlite3.connect(file) as db:
        db.execute("UPDATE positions SET acts = 7 WHERE rowid = 1")  # the oldest, read last
    db.close()
    cache = PositionCache(SIZES, "scope", file)
    assert (cache.find(keys(0, 600)) == -1).all()
    assert len(caplog.records) == 1
    cache.add(keys(0, 1)[0], ACT, 0.5)
    assert cache.acts[cache.find(keys(0, 1))].tolist() == [list(ACT)]


def test_an_empty_row_is_omitted(tmp_path: Path) -> None:
    file = tmp_path / "positions.sqlite"
    write(file, rows=0)
    with sqlite3.connect(file) as db:
        db.execute("INSERT INTO positions VALUES ('scope', x'', x'', x'')")
    db.close()
    cache = PositionCache(SIZES, "scope", file)
    cache.add(keys(0, 1)[0], ACT, 0.5)
    assert cache.find(keys(0, 2)).tolist() == [0, -1]
    cache.close()
