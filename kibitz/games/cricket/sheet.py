"""CSV files that a person asked for."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kibitz.core.errors import BadInput


def check_place(path: str | Path) -> None:
    """Before the work, not after it."""
    if Path(path).is_dir() or not Path(path).parent.is_dir():
        raise BadInput(f"{str(path)!r} cannot be written; name a file in a folder that exists.")


def write(path: str | Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    check_place(path)
    try:
        with Path(path).open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(rows)
    except OSError as error:
        raise BadInput(f"{str(path)!r} cannot be written: {error.strerror}.") from None
