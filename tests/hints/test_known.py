"""Hints by position, from a file that anybody may have touched."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from kibitz.advice.known import Known

SIZES = (5, 11, 11, 11)
ACT = (4, 3, 2, 1)


def places(start: int, count: int) -> list[bytes]:
    return [number.to_bytes(16, "big") for number in range(start, start + count)]


def write(file: Path, rows: int = 3) -> None:
    known = Known(SIZES, "scope", file)
    for row in range(rows):
        for place in places(200 * row, 200):
            known.add(place, ACT, 0.75)
        known.flush()
    known.close()


def test_what_was_written_is_found_again(tmp_path: Path) -> None:
    write(tmp_path / "known.sqlite")
    known = Known(SIZES, "scope", tmp_path / "known.sqlite")
    rows = known.find(places(0, 601))
    assert rows[-1] == -1
    assert np.unique(known.acts[rows[:-1]], axis=0).tolist() == [list(ACT)]
    assert set(known.confidence[rows[:-1]].tolist()) == {0.75}
    known.close()


def test_of_a_file_that_breaks_off_nothing_is_known(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "known.sqlite"
    write(file)
    with sqlite3.connect(file) as db:
        db.execute("UPDATE positions SET acts = 7 WHERE rowid = 1")  # the oldest, read last
    db.close()
    known = Known(SIZES, "scope", file)
    assert (known.find(places(0, 600)) == -1).all()
    assert len(caplog.records) == 1
    known.add(places(0, 1)[0], ACT, 0.5)
    assert known.acts[known.find(places(0, 1))].tolist() == [list(ACT)]


def test_an_empty_row_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "known.sqlite"
    write(file, rows=0)
    with sqlite3.connect(file) as db:
        db.execute("INSERT INTO positions VALUES ('scope', x'', x'', x'')")
    db.close()
    known = Known(SIZES, "scope", file)
    known.add(places(0, 1)[0], ACT, 0.5)
    assert known.find(places(0, 2)).tolist() == [0, -1]
    known.close()
