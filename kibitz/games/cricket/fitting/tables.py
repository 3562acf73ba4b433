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
from kibitz.core.system.paths import named
from kibitz.games.cricket.model.calibration import ERAS
from kibitz.games.cricket.model.delivery import TYPES

Floats = NDArray[np.float64]
COLUMNS = ("p_0", "p_1", "p_2", "p_3", "p_4", "p_6", "p_wicket", "p_wide", "p_noball", "p_byelb")
PHASES = ("powerplay", "middle", "death")
RATE_BINS = ("<4", "4-6", "6-7", "7-8", "8-9", "9-10", "10-11", "11-12", "12-14", "14-17", "17-22", "22+")
FACED_BINS = ("0", "1", "2", "3-5", "6-9", "10-14", "15-19", "20-29", "30-44", "45+")
DOWN_BINS = ("0", "1", "2", "3", "4", "5", "6", "7", "8-9")
POSITION_BINS = ("1-2", "3-4", "5-6", "7-8", "9-11")
LABELS: dict[str, Sequence[str]] = {  # the columns that name things, and the names
    "era": ERAS,
    "inn": ("1", "2"),
    "phase": PHASES,
    "over1": [str(over + 1) for over in range(20)],
    "rrrb": RATE_BINS,
    "fb": FACED_BINS,
    "wkb": DOWN_BINS,
    "wk": [str(down) for down in range(10)],
    "posb": [str(place + 1) for place in range(11)],
    "posg": POSITION_BINS,
    "btype": TYPES,
    "hand": ("R", "L"),
    "fh": ("True", "False"),
}


class TableRow(dict[str, Any]):
    """A CSV row or JSON object that raises BadInput for a missing name."""

    def __init__(self, content: Any, file: Path) -> None:
        super().__init__(content)
        self.file = file

    def __missing__(self, name: str) -> Any:
        raise BadInput(f"The calibration table {str(self.file)!r} has no {name!r}; supply the complete table.")


Rows = Sequence[TableRow]


class Tables:
    """A folder of tables; `rows` reads a CSV, `numbers` a JSON file."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = named(folder)
        if not (self.folder / "innings_rows.csv").is_file():
            raise BadInput(f"There are no calibration tables in {str(folder)!r}; name a folder with innings_rows.csv.")

    def rows(self, name: str, **where: str) -> Rows:
        """The matching rows; BadInput if there are none."""
        file, text = self._text(f"{name}.csv")
        rows: list[TableRow] = []
        try:
            reader = csv.DictReader(io.StringIO(text, newline=""))
            for row in reader:
                if None in row or None in row.values():
                    raise BadInput(
                        f"Line {reader.line_num} of {str(file)!r} must have {len(reader.fieldnames or ())} fields."
                    )
                for name in LABELS.keys() & row.keys():
                    if row[name] not in LABELS[name]:
                        raise BadInput(
                            f"{row[name]!r} under {name!r} in line {reader.line_num} of {str(file)!r} is unknown; "
                            f"use one of {', '.join(LABELS[name])}."
                        )
                rows.append(TableRow(row, file))
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
            return json.loads(text, object_hook=lambda found: TableRow(found, file))
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


class OtherSeasons(Tables):
    """The tables as if some seasons had not been played.

    Rows of innings are left out. Counts of outcomes lose the seasons' share of each outcome, by era where the
    table has eras: exact in total, while how a table divides its balls stays that of all seasons.
    """

    def __init__(self, tables: Tables, without: Sequence[str]) -> None:
        super().__init__(tables.folder)
        self.without = frozenset(without)
        seasons = {row["year"]: counts([row])[0] for row in super().rows("outcome_by_season")}
        era_of = {row["year"]: row["era"] for row in super().rows("innings_rows")}
        self.kept: dict[str | None, Floats] = {}  # by era, None for all eras: the share that stays, [outcomes]
        for era in (None, *sorted(set(era_of.values()))):
            years = [year for year in seasons if era in (None, era_of.get(year))]
            left = [seasons[year] for year in years if year not in self.without]
            if not left:
                raise BadInput(f"Era {era!r} needs more than one season to leave one out; supply more seasons.")
            self.kept[era] = np.sum(left, axis=0) / np.maximum(np.sum([seasons[y] for y in years], axis=0), 1e-9)

    def rows(self, name: str, **where: str) -> Rows:
        found = [row for row in super().rows(name, **where) if row.get("year") not in self.without]
        if "deliveries" not in found[0] or "year" in found[0]:
            return found
        return [self._reduced(row) for row in found]

    def _reduced(self, row: TableRow) -> TableRow:
        left = counts([row])[0] * self.kept[row.get("era")]
        balls = max(float(left.sum()), 1e-9)
        outcomes = {name: str(x / balls) for name, x in zip(COLUMNS, left, strict=True)}
        return TableRow({**row, **outcomes, "deliveries": str(balls)}, row.file)


def number(row: TableRow, name: str) -> float:
    """The number in this column, or BadInput."""
    try:
        value = float(row[name])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadInput(f"{row[name]!r} under {name!r} in {str(row.file)!r} must be a number.")
    return value


def shares(row: TableRow) -> Floats:
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
