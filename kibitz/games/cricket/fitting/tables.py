"""The calibration tables as arrays. kibitz reads them in place and ships none of them."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kibitz.core.errors import BadInput
from kibitz.core.paths import named

Floats = NDArray[np.float64]
COLUMNS = ("p_0", "p_1", "p_2", "p_3", "p_4", "p_6", "p_wicket", "p_wide", "p_noball", "p_byelb")
PHASES = ("powerplay", "middle", "death")


class Table(dict[str, Any]):
    """A CSV row or JSON object that raises BadInput for a missing name."""

    def __init__(self, content: Any, file: Path) -> None:
        super().__init__(content)
        self.file = file

    def __missing__(self, name: str) -> Any:
        raise BadInput(f"The calibration table {str(self.file)!r} has no {name!r}; supply the complete table.")


Rows = Sequence[Table]


class Tables:
    """A folder of tables; `rows` reads a CSV, `numbers` a JSON file."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = named(folder)
        if not (self.folder / "innings_rows.csv").is_file():
            raise BadInput(f"There are no calibration tables in {str(folder)!r}; name a folder with innings_rows.csv.")

    def rows(self, name: str, **where: str) -> Rows:
        """The matching rows; BadInput if there are none."""
        file, text = self._text(f"{name}.csv")
        rows: list[Table] = []
        try:
            reader = csv.DictReader(io.StringIO(text, newline=""))
            for row in reader:
                if None in row or None in row.values():
                    raise BadInput(
                        f"Line {reader.line_num} of {str(file)!r} must have {len(reader.fieldnames or ())} fields."
                    )
                rows.append(Table(row, file))
        except csv.Error as error:
            raise BadInput(f"The calibration table {str(file)!r} is not a CSV: {error}.") from None
        found = [row for row in rows if all(row[k] == v for k, v in where.items())]
        if not found:
            wanted = "".join(f" of {k} {v!r}" for k, v in where.items())
            raise BadInput(f"The calibration table {str(file)!r} has no row{wanted}; it should have one.")
        return found

    def numbers(self, name: str) -> Any:
        file, text = self._text(f"{name}.json")
        try:
            return json.loads(text, object_hook=lambda found: Table(found, file))
        except json.JSONDecodeError as error:
            raise BadInput(f"The calibration table {str(file)!r}, line {error.lineno}, is not valid JSON.") from None

    def _text(self, name: str) -> tuple[Path, str]:
        file = self.folder / name
        try:
            return file, file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise BadInput(
                f"{name} in the calibration tables {str(self.folder)!r} cannot be read; supply it."
            ) from None


def number(row: Table, name: str) -> float:
    """The number in this column, or BadInput."""
    try:
        value = float(row[name])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadInput(f"{row[name]!r} under {name!r} in {str(row.file)!r} must be a number.")
    return value


def shares(row: Table) -> Floats:
    """f64[outcomes]; omits fives, which are rare."""
    p = np.array([number(row, column) for column in COLUMNS])
    return np.asarray(p / p.sum())


def counts(rows: Rows) -> Floats:
    """f64[rows, outcomes]."""
    return np.stack([shares(row) * number(row, "deliveries") for row in rows])


def column(rows: Rows, name: str) -> Floats:
    return np.array([number(row, name) if row[name] else math.nan for row in rows])


def multinomial(design: Floats, observed: Floats, ridge: Floats, steps: int = 60) -> Floats:
    """f64[features, outcomes], log-odds relative to a single, with a ridge penalty for each feature.

    Newton steps on the bound of Boehning (1992): slow but certain to converge, and the tables are small.
    """
    total = observed.sum(1, keepdims=True)
    beta = np.zeros((design.shape[1], observed.shape[1]))
    bound = 0.5 * (design * total).T @ design + np.diag(ridge)
    for _ in range(steps):
        logits = design @ beta
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        beta += np.linalg.solve(bound, design.T @ (observed - total * p) - ridge[:, None] * beta)
    result: Floats = beta - beta[:, 1:2]
    return result
