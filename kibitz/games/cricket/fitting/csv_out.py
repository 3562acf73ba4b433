"""CSV files: simulated rows, and chase states with their win probability."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from kibitz.core.errors import BadInput
from kibitz.core.system.paths import named, write_whole
from kibitz.games.cricket.chances.winprob import CHASE_COLUMNS, score_states
from kibitz.games.cricket.model.calibration import ERAS, models_by_era
from kibitz.games.cricket.model.par import Floats


def check_place(path: str | Path) -> Path:
    """Checks the path before the work starts; BadInput if the file cannot be written."""
    place = named(path)
    if place.is_dir() or not place.parent.is_dir():
        raise BadInput(f"{str(path)!r} cannot be written; name a file in an existing folder.")
    return place


def write(path: str | Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Replaces the file atomically; writes directly to a pipe or a device."""
    place = check_place(path)
    try:
        if place.exists() and not place.is_file():
            with place.open("wb") as file:
                _fill(file, header, rows)
        else:
            write_whole(place, lambda file: _fill(file, header, rows))
    except OSError as error:
        raise BadInput(f"{str(path)!r} cannot be written: {error.strerror}.") from None


def _fill(file: IO[bytes], header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    text.detach()  # flushes the buffer and leaves the file open


def _read_states(path: str | Path) -> tuple[list[str], list[list[str]], dict[str, Floats], NDArray[np.int64] | None]:
    """Header, rows, CHASE_COLUMNS as numbers, and eras if there is an era column."""
    try:
        with named(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            (_, header), *lines = [(reader.line_num, row) for row in reader]
    except BadInput:
        raise
    except (OSError, ValueError, csv.Error):
        raise BadInput(f"{str(path)!r} cannot be read; give a CSV with {', '.join(CHASE_COLUMNS)}.") from None
    missing = [name for name in CHASE_COLUMNS if name not in header]
    if missing:
        raise BadInput(f"{str(path)!r} has no column {missing[0]!r}; it needs {', '.join(CHASE_COLUMNS)}.")
    while lines and not lines[-1][1]:  # blank lines at the end
        lines.pop()
    for line, row in lines:
        if len(row) != len(header):
            raise BadInput(f"Line {line} of {str(path)!r} has {len(row)} fields; the header has {len(header)}.")
    rows = [row for _, row in lines]
    numbers = {}
    for name in CHASE_COLUMNS:
        at = header.index(name)
        try:
            numbers[name] = np.array([float(row[at]) for row in rows])
            np.asarray_chkfinite(numbers[name])
        except ValueError:
            raise BadInput(f"The column {name!r} of {str(path)!r} must hold a number in every row.") from None
    eras = None
    if "era" in header:
        at = header.index("era")
        for line, row in lines:
            if row[at] not in ERAS:
                raise BadInput(
                    f"Line {line} of {str(path)!r} has the era {row[at]!r}; use one of {', '.join(ERAS)}, "
                    "or leave the column out."
                )
        eras = np.array([ERAS.index(row[at]) for row in rows])
    return header, rows, numbers, eras


def write_winprob(states: str | Path, out: str | Path, model: str | None = None) -> int:
    """Copies the CSV with a column p_win; returns how many rows. Each era has its own model unless one is named."""
    models = models_by_era(model)
    header, rows, numbers, eras = _read_states(states)
    chances = score_states(numbers, eras, models)
    kept = [i for i, name in enumerate(header) if name != "p_win"]
    lines = ([*(row[i] for i in kept), f"{p:.5f}"] for row, p in zip(rows, chances, strict=True))
    write(out, [*(header[i] for i in kept), "p_win"], lines)
    return len(rows)
