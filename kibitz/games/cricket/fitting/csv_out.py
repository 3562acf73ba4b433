"""CSV files that a person asked for."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

from kibitz.core.errors import BadInput
from kibitz.core.paths import named, write_whole


def check_place(path: str | Path) -> Path:
    """Before the work, not after it."""
    place = named(path)
    if place.is_dir() or not place.parent.is_dir():
        raise BadInput(f"{str(path)!r} cannot be written; name a file in a folder that exists.")
    return place


def write(path: str | Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """The file appears whole or not at all; a pipe or a device cannot be replaced and is written to."""
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
    text.detach()  # writes what is buffered and leaves the file open
