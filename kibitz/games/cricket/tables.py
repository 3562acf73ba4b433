"""The calibration tables as arrays. They are read where they lie and never copied into the product."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kibitz.core.errors import BadInput

Floats = NDArray[np.float64]
COLUMNS = ("p_0", "p_1", "p_2", "p_3", "p_4", "p_6", "p_wicket", "p_wide", "p_noball", "p_byelb")
PHASES = ("powerplay", "middle", "death")
Rows = list[dict[str, str]]


class Tables:
    """A folder of tables; `rows` reads a CSV, `numbers` a JSON file."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not (self.folder / "innings_rows.csv").is_file():
            raise BadInput(f"There are no calibration tables in {str(folder)!r}; it should hold innings_rows.csv.")

    def rows(self, name: str, **where: str) -> Rows:
        with (self.folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            return [row for row in csv.DictReader(file) if all(row[k] == v for k, v in where.items())]

    def numbers(self, name: str) -> Any:
        return json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))


def shares(row: dict[str, str]) -> Floats:
    """f64[outcomes]; fives are rare enough to be left out."""
    p = np.array([float(row[column]) for column in COLUMNS])
    return np.asarray(p / p.sum())


def counts(rows: Rows) -> Floats:
    """f64[rows, outcomes]."""
    return np.stack([shares(row) * float(row["deliveries"]) for row in rows])


def column(rows: Rows, name: str) -> Floats:
    return np.array([float(row[name] or "nan") for row in rows])


def multinomial(design: Floats, observed: Floats, ridge: Floats, steps: int = 60) -> Floats:
    """f64[features, outcomes], log-odds against a single, with a penalty for each feature.

    Newton steps on the upper bound of Boehning (1992): slow and sure, and the tables are small.
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
