"""CSV files that a person asked for."""

from __future__ import annotations

import csv
import os
import secrets
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kibitz.core.errors import BadInput
from kibitz.core.paths import named


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
            _fill(place, header, rows)
            return
        place = place.resolve()  # a link stays one
        part = place.with_name(f".{secrets.token_hex(8)}.part")
        try:
            _fill(part, header, rows)
            if place.is_file():
                shutil.copymode(place, part)
            os.replace(part, place)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(f"{str(path)!r} cannot be written: {error.strerror}.") from None


def _fill(place: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with place.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
