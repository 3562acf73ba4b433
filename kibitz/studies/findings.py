"""What the cells of a study have shown: curves, steps to a threshold, costs, and paired comparisons in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kibitz.core import statistics
from kibitz.studies.reports import plot
from kibitz.studies.reports.report import Column, Figure, Interval, Kind, ReportTable, Verdict

Floats = NDArray[np.float64]
THRESHOLDS = (0.90, 0.95)
SIGNIFICANT = 0.05  # after Holm's correction


@dataclass(frozen=True)
class Yardstick:
    """What a learner's return is divided by. Without one, returns are shown as they are."""

    name: str
    percent: bool

    @property
    def unit(self) -> str:
        return "percentage points" if self.percent else "points of return"

    @property
    def kind(self) -> Kind:
        return "percent" if self.percent else "number"

    def change(self, value: float) -> float:
        """A difference in the unit."""
        return 100 * value if self.percent else value


def yardstick_of(results: Sequence[Mapping[str, Any]]) -> Yardstick:
    """The ceiling, else the reference player's return if that is a gain."""
    if all(result["share"] is not None for result in results):
        return Yardstick("share of the ceiling", True)
    if all(result.get("reference") and result["reference"] > 0 for result in results):
        return Yardstick("share of the reference player's return", True)
    return Yardstick("return", False)


@dataclass(frozen=True)
class Found:
    """One cell's results; values are in the yardstick's terms unless they are called returns."""

    name: str
    label: str
    seeds: list[int]
    steps: list[int]
    alone: Floats  # [seeds, evaluations], without hints in the ear
    heard: Floats | None  # the same with hints; None: never measured along the way
    final_heard: Floats  # [seeds]; of a cell without hints the same as alone; NaN where it was not measured
    returns: Floats  # [seeds], at the end, without hints
    heard_returns: Floats  # [seeds]
    result: Mapping[str, Any]

    @property
    def final(self) -> Floats:
        last: Floats = self.alone[:, -1]
        return last

    @property
    def curve_mean(self) -> Floats:
        """The mean over all evaluations: the earlier a learner improves, the higher."""
        return np.asarray(self.alone.mean(axis=1), float)


def found(result: Mapping[str, Any], label: str, hinted: bool, yardstick: Yardstick) -> Found:
    returns = np.asarray(result["return"], float)
    heard_returns = None if result["heard_return"] is None else np.asarray(result["heard_return"], float)
    unit = result["reference"] if result["share"] is None and yardstick.percent else 1.0
    if result["share"] is not None:
        alone = np.asarray(result["share"], float)
        heard = None if result["heard_share"] is None else np.asarray(result["heard_share"], float)
    else:
        alone, heard = returns / unit, None if heard_returns is None else heard_returns / unit
    missing = np.full(len(returns), math.nan)
    if not hinted:
        ends = alone[:, -1], returns[:, -1]
    elif heard is not None and heard_returns is not None:
        ends = heard[:, -1], heard_returns[:, -1]
    elif result.get("heard_gain") is not None:
        gain = np.asarray(result["heard_gain"], float)
        share = result["heard_gain_share"]
        apart = gain / unit if share is None else np.asarray(share, float)
        ends = alone[:, -1] + apart, returns[:, -1] + gain
    else:
        ends = missing, missing
    return Found(
        result["name"], label, result["seeds"], result["steps"], alone, heard, ends[0], returns[:, -1], ends[1], result
    )


def interval(values: Floats) -> Interval | None:
    """The mean over seeds with its t interval."""
    mean, limits = statistics.mean_ci95(values)
    return None if math.isnan(mean) else Interval(mean, *limits)


def middle(values: Floats) -> Interval | None:
    """The interquartile mean over seeds with its bootstrap interval."""
    if np.isnan(values).any():
        return None
    mean, limits = statistics.bootstrap_ci95(statistics.interquartile_mean, values[:, None])
    return Interval(mean, *limits)


def steps_to(curves: Floats | None, steps: Sequence[int], threshold: float) -> list[int | None]:
    """The first evaluation of each seed that reaches the threshold; None where none does."""
    if curves is None:
        return []
    return [next((step for step, value in zip(steps, row, strict=True) if value >= threshold), None) for row in curves]


def median_steps(reached: Sequence[int | None]) -> float | None:
    """The median over seeds; None where half of them or more never reached it."""
    value = float(np.median([math.inf if step is None else step for step in reached])) if reached else math.inf
    return value if math.isfinite(value) else None


def curve_figure(title: str, cells: Sequence[Found], yardstick: Yardstick, heard: bool, note: str) -> Figure:
    lines = []
    for cell in cells:
        values = cell.heard if heard and cell.heard is not None else cell.alone
        mean, low, high = statistics.band_ci95(values)
        lines.append(plot.Curve(cell.label, cell.steps, mean.tolist(), low.tolist(), high.tolist()))
    return Figure(title, plot.curves(lines, "steps of the learner", yardstick.name, percent=yardstick.percent), note)


def final_table(cells: Sequence[Found], yardstick: Yardstick) -> ReportTable:
    kind = yardstick.kind
    columns = [
        Column("cell"), Column("seeds", "count"), Column("alone", kind), Column("alone, middle half", kind),
        Column("hints heard", kind), Column("return alone", "number"), Column("return, hints heard", "number"),
    ]  # fmt: skip
    rows = [
        [cell.label, len(cell.seeds), interval(cell.final), middle(cell.final), interval(cell.final_heard),
         interval(cell.returns), interval(cell.heard_returns)]
        for cell in cells
    ]  # fmt: skip
    note = (
        f"At the end of training, {yardstick.name} and return: greedy acts on fresh deals, "
        "mean over seeds with its 95 % t interval; the middle half is the interquartile mean with a bootstrap interval."
    )
    return ReportTable("Final results", columns, rows, note)


def threshold_table(cells: Sequence[Found], yardstick: Yardstick) -> ReportTable:
    columns = [Column("cell")]
    for threshold in THRESHOLDS:
        for how in ("alone", "hints heard"):
            columns += [Column(f"{100 * threshold:.0f} %, {how}", "count"), Column("seeds")]
    rows: list[list[Any]] = []
    for cell in cells:
        row: list[Any] = [cell.label]
        for threshold in THRESHOLDS:
            for curves in (cell.alone, cell.heard):
                reached = steps_to(curves, cell.steps, threshold)
                count = sum(step is not None for step in reached)
                row += [median_steps(reached), f"{count} of {len(reached)}" if reached else "-"]
        rows.append(row)
    note = (
        f"Steps of the learner until an evaluation first reaches 90 % and 95 % ({yardstick.name}): the median over "
        "seeds, and how many of them reached it. No number where half of the seeds or more did not."
    )
    return ReportTable("Steps to a threshold", columns, rows, note)


def cost_table(cells: Sequence[Found]) -> ReportTable:
    names = ("asked", "calls", "failed", "prompt_tokens", "completion_tokens", "money")
    columns = [Column("cell"), Column("steps", "count"), Column("seconds", "seconds")]
    columns += [Column(name.replace("_", " "), "money" if name == "money" else "count") for name in names]
    rows: list[list[Any]] = []
    for cell in cells:
        cost, extra = cell.result["cost"], cell.result.get("heard_cost") or {}
        spent = [None if cost is None else cost[name] + extra.get(name, 0) for name in names]
        rows.append([cell.label, cell.steps[-1] * len(cell.seeds), cell.result["seconds"], *spent])
    note = (
        "Steps and seconds of all seeds together, with evaluations and compilation. Questions include those of the "
        "final evaluation; `calls` are those that no cache could answer. A cell that comes later finds answers of "
        "earlier cells in the study's cache."
    )
    return ReportTable("Cost", columns, rows, note)


@dataclass(frozen=True)
class PairedComparison:
    """One measure of two cells over their common seeds: the first less the second."""

    subject: str  # who is compared, in words
    measure: str
    pairs: int
    difference: statistics.Difference
    improvement: tuple[float, tuple[float, float]]
    corrected: float = math.nan

    @property
    def shown(self) -> bool:
        return self.corrected < SIGNIFICANT


def compared(subject: str, measure: str, one: Floats, other: Floats) -> PairedComparison:
    """Seeds are consecutive from the same first one, so the first pairs with the first."""
    count = min(len(one), len(other))
    mine, theirs = one[:count], other[:count]
    improvement = statistics.improvement_ci95(mine[:, None], theirs[:, None])
    return PairedComparison(subject, measure, count, statistics.paired_difference(mine, theirs), improvement)


def corrected(comparisons: Sequence[PairedComparison]) -> list[PairedComparison]:
    """All of them as one family, by Holm's method; omits what was not measured."""
    known = [one for one in comparisons if not math.isnan(one.difference.mean)]
    adjusted = statistics.holm([one.difference.p for one in known])
    return [
        PairedComparison(one.subject, one.measure, one.pairs, one.difference, one.improvement, p)
        for one, p in zip(known, adjusted, strict=True)
    ]


def verdicts(comparisons: Sequence[PairedComparison], yardstick: Yardstick) -> list[Verdict]:
    """One for each subject: what was shown, then what was not."""
    by_subject: dict[str, list[PairedComparison]] = {}
    for one in comparisons:
        by_subject.setdefault(one.subject, []).append(one)
    made = []
    for subject, group in by_subject.items():
        pairs = f"{group[0].pairs} paired seed{'s' if group[0].pairs != 1 else ''}"
        shown = [f"{one.measure} {_size(one, yardstick)}" for one in group if one.shown]
        open_ones = ", ".join(f"{one.measure} {_limits(one, yardstick)}" for one in group if not one.shown)
        sentences = [f"{subject} ({pairs}): {'; '.join(shown) or 'nothing was shown'}."]
        if open_ones:
            sentences.append(
                f"No difference was shown in: {open_ones}." if shown else f"{open_ones[0].upper()}{open_ones[1:]}."
            )
        made.append(Verdict(" ".join(sentences), bool(shown)))
    return made


def _size(one: PairedComparison, yardstick: Yardstick) -> str:
    value = yardstick.change(one.difference.mean)
    return f"{abs(value):.2f} {yardstick.unit} {'higher' if value > 0 else 'lower'} {_limits(one, yardstick)}"


def _limits(one: PairedComparison, yardstick: Yardstick) -> str:
    """The interval and the corrected p-value."""
    value, low, high = (yardstick.change(x) for x in (one.difference.mean, *one.difference.ci95))
    if math.isnan(one.corrected):
        return f"({value:+.2f}; one pair has no interval)"
    p = "p < 0.001" if one.corrected < 0.001 else f"p = {one.corrected:.3f}"
    return f"({'' if one.shown else f'{value:+.2f}, '}95 % interval {low:+.2f} to {high:+.2f}, {p})"


def comparison_table(comparisons: Sequence[PairedComparison], yardstick: Yardstick) -> ReportTable:
    columns = [
        Column("comparison"), Column("measure"), Column("pairs", "count"), Column("difference", "number"),
        Column("p", "number", 4), Column("corrected p", "number", 4), Column("probability of improvement", "number"),
    ]  # fmt: skip
    rows = []
    for one in comparisons:
        mean, limits, p = one.difference
        apart = Interval(yardstick.change(mean), *map(yardstick.change, limits))
        chance, chances = one.improvement
        rows.append([one.subject, one.measure, one.pairs, apart, p, one.corrected, Interval(chance, *chances)])
    note = (
        f"Paired differences in {yardstick.unit} with t intervals; p-values of the paired t test, and corrected by "
        f"Holm's method over all {len(comparisons)} comparisons of the study. The probability of improvement is the "
        "chance that a random seed of the first beats a random seed of the second."
    )
    return ReportTable("Comparisons", columns, rows, note)


def as_data(cells: Sequence[Found], comparisons: Sequence[PairedComparison]) -> dict[str, Any]:
    """Everything in the tables and figures, for machines."""
    reached = [
        {
            "name": cell.name,
            "label": cell.label,
            "final_alone": cell.final.tolist(),
            "final_heard": cell.final_heard.tolist(),
            "steps_to": {
                str(threshold): {
                    "alone": steps_to(cell.alone, cell.steps, threshold),
                    "heard": steps_to(cell.heard, cell.steps, threshold),
                }
                for threshold in THRESHOLDS
            },
        }
        for cell in cells
    ]
    return {
        "cells": [{**cell.result, **more} for cell, more in zip(cells, reached, strict=True)],
        "comparisons": [
            {
                "comparison": one.subject,
                "measure": one.measure,
                "pairs": one.pairs,
                "difference": one.difference.mean,
                "ci95": list(one.difference.ci95),
                "p": one.difference.p,
                "corrected_p": one.corrected,
                "probability_of_improvement": one.improvement[0],
                "shown": one.shown,
            }
            for one in comparisons
        ],
    }
