"""Cross-validation by season: what the fit predicts for seasons that it has not seen."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kibitz.core.statistics import Interval, mean_ci95, share_ci95
from kibitz.games.cricket.fitting.fit import Report, fit_rates
from kibitz.games.cricket.fitting.report import Play, StatisticLine
from kibitz.games.cricket.fitting.tables import Floats, OtherSeasons, Tables, column
from kibitz.games.cricket.model.calibration import ERAS

FOLDS = 5  # each leaves out about one season of every era
STATISTICS = ("total", "wkts", "pp", "mid_", "death")  # means; then all out and chases won, as shares


def figures(rows: dict[str, NDArray[Any]]) -> dict[str, Floats]:
    """A value for each innings or chase, whose mean is the statistic."""
    found: dict[str, Floats] = {}
    for inn in (1, 2):
        here = rows["inn"] == inn
        for name in STATISTICS:
            found[f"innings {inn} {name}, mean"] = rows[name][here].astype(np.float64)
        found[f"innings {inn} all out, share"] = (rows["wkts"][here] == 10).astype(np.float64)
    lead = (rows["total"] - rows["target"])[rows["inn"] == 2]
    found["chases won, share"] = (lead[lead != -1] >= 0).astype(np.float64)  # without ties
    return found


def cross_validate(
    tables: Tables, report: Report, rounds: int = 4, matches: int = 4096, folds: int = FOLDS
) -> list[StatisticLine]:
    """Fits without some seasons and predicts those, until every season was predicted once.

    `ours` averages the predictions by the matches of the seasons left out, `real` is the mean of all
    matches, and `within` the distance from it to the limit of its 95 % interval on the side of `ours`; `all` pools
    the eras.
    """
    innings = tables.rows("innings_rows")
    seasons = sorted({(row["era"], row["year"]) for row in innings})
    predicted: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for fold in range(folds):
        out = seasons[fold::folds]
        report(f"fold {fold + 1} of {folds}: without {', '.join(year for _, year in out)}")
        others = OtherSeasons(tables, [year for _, year in out])
        fitted = fit_rates(others, rounds, matches, lambda line: None)
        for era in sorted({era for era, _ in out}):
            size = sum((row["era"], row["year"]) in out for row in innings if row["era"] == era)
            for name, values in figures(Play(era, matches, 100 + fold, fitted).rows).items():
                predicted.setdefault((era, name), []).append((float(values.mean()), size))
    return list(_lines(tables, predicted))


def _lines(tables: Tables, predicted: dict[tuple[str, str], list[tuple[float, float]]]) -> list[StatisticLine]:
    made = []
    for era in (*ERAS, "all"):
        rows = tables.rows("innings_rows", **({} if era == "all" else {"era": era}))
        real = {name: column(rows, name) for name in ("inn", "target", *STATISTICS)}
        for name, values in figures(real).items():
            eras = ERAS if era == "all" else (era,)
            ours, weight = zip(*(fold for each in eras for fold in predicted[each, name]), strict=True)
            predicted_mean = float(np.average(ours, weights=weight))
            mean, (low, high) = real_ci95(name, values)
            error = float(values.std(ddof=1) / np.sqrt(len(values)))
            within = high - mean if predicted_mean >= mean else mean - low
            made.append(StatisticLine(era, name, predicted_mean, mean, error, within))
    return made


def real_ci95(name: str, values: Floats) -> tuple[float, Interval]:
    """The mean of a statistic's values and its 95 % interval: Wilson's for a share, Student's t for the others."""
    return share_ci95(float(values.sum()), len(values)) if name.endswith("share") else mean_ci95(values)
