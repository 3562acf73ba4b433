"""Training runs side by side: learning curves with bands, and a table of where each of them ended."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from kibitz.core.errors import BadInput
from kibitz.core.statistics import Floats, band_ci95, finite, holm, mean_ci95, paired_difference
from kibitz.core.system.paths import read_json, write_whole
from kibitz.studies.reports.plot import DASHES, LIGHT
from kibitz.train.run.logs import read_rows

FORMATS = ("pdf", "svg", "png")
DEFAULT_METRICS = ("share_of_ceiling", "return_mean")  # the first that every run has
NOT_METRICS = ("step", "seed", "hints_from")
SEED_KEYS = ("seed", "seeds", "logging")  # of a config: runs that differ only in these repeat one experiment


@dataclass(frozen=True)
class Line:
    """One experiment: a run, or several that differ only in their seeds."""

    name: str
    seeds: tuple[int, ...]
    steps: tuple[int, ...]
    values: Floats  # f64[seeds, steps]

    @property
    def final(self) -> dict[int, float]:
        return dict(zip(self.seeds, self.values[:, -1].tolist(), strict=True))


@dataclass(frozen=True)
class Comparison:
    """Several experiments by one metric."""

    metric: str
    lines: list[Line]

    def summary(self) -> dict[str, Any]:
        """Where each line ended, and how far from the first, over the seeds that both have."""
        first = self.lines[0].final
        shared = [sorted(set(first) & set(line.final)) for line in self.lines]
        apart = [
            paired_difference(*(np.array([one[seed] for seed in seeds]) for one in (line.final, first)))
            for line, seeds in zip(self.lines, shared, strict=True)
        ]
        adjusted = [math.nan, *holm([difference.p for difference in apart[1:]])]
        rows = []
        for line, difference, p in zip(self.lines, apart, adjusted, strict=True):
            mean, interval = mean_ci95(line.values[:, -1])
            row: dict[str, Any] = {"run": line.name, "seeds": len(line.seeds), "steps": line.steps[-1]}
            row |= {"mean": mean, "ci95": list(interval)}
            row |= {"difference": None, "difference_ci95": None, "p_holm": None}
            if line is not self.lines[0]:
                row |= {"difference": difference.mean, "difference_ci95": list(difference.ci95), "p_holm": p}
            rows.append(finite(row))
        return {"metric": self.metric, "runs": rows}

    def figure(self) -> Any:
        """A matplotlib figure: the mean of each line with its 95 % band."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7.2, 4.4), dpi=150, layout="constrained")
        axes = figure.add_subplot()
        percent = self.metric.startswith("share")
        for number, line in enumerate(self.lines):
            colour, dash = LIGHT[number % len(LIGHT)], DASHES[number % len(DASHES)]
            mean, low, high = (100 * values if percent else values for values in band_ci95(line.values))
            style: Any = (0, tuple(map(float, dash.split()))) if dash else "-"
            label = f"{line.name} ({len(line.seeds)} seed{'s' if len(line.seeds) > 1 else ''})"
            axes.plot(line.steps, mean, color=colour, linestyle=style, label=label)
            axes.fill_between(line.steps, low, high, color=colour, alpha=0.16, linewidth=0)
        unit = " (%)" if percent else ""
        axes.set(
            xlabel="steps of the learner",
            ylabel=f"{self.metric.replace('_', ' ')}{unit}",
            title="mean and 95 % interval",
        )
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, loc="best")
        return figure

    def save(self, path: Path) -> None:
        """Writes the figure; the format follows from the file's name."""
        check_figure(path)
        drawn = self.figure()
        write_whole(path, lambda file: drawn.savefig(file, format=path.suffix[1:]))


def compare(folders: Sequence[str | Path], metric: str | None = None) -> Comparison:
    """One line for each experiment, in the order of its first run; `metric` is a column of evaluations.csv."""
    tables = {folder: _evaluations(folder) for folder in dict.fromkeys(map(Path, folders))}
    if not tables:
        raise BadInput("There is nothing to compare; name the folders of training runs.")
    games = {folder: _about(folder).get("game") for folder in tables}
    if len(set(games.values())) > 1:
        (one, first), *others = games.items()
        two, second = next(other for other in others if other[1] != first)
        raise BadInput(f"{one} plays {first} and {two} plays {second}; compare runs of one game.")
    metric = _metric(tables, metric)
    groups: dict[str, list[Path]] = {}
    for folder in tables:
        groups.setdefault(_experiment(folder), []).append(folder)
    names = _short_names(list(tables))
    return Comparison(metric, [_line(names, members, tables, metric) for members in groups.values()])


def check_figure(path: Path) -> None:
    """BadInput for a name that no figure can have; loads matplotlib, so that a missing extra is reported at once."""
    if path.suffix[1:] not in FORMATS:
        raise BadInput(f"{path} is not the name of a figure; end it in .{', .'.join(FORMATS[:-1])} or .{FORMATS[-1]}.")
    if not path.parent.is_dir():
        raise BadInput(f"There is no folder {path.parent} for the figure; create it first.")
    import matplotlib as matplotlib


def _line(names: dict[Path, str], members: list[Path], tables: dict[Path, list[dict[str, str]]], metric: str) -> Line:
    curves: dict[int, dict[int, float]] = {}
    where: dict[int, Path] = {}
    for folder in members:
        for row in tables[folder]:
            seed = int(row["seed"])
            if where.setdefault(seed, folder) != folder:
                raise BadInput(f"{folder} repeats seed {seed} of {where[seed]}; name one of them.")
            curves.setdefault(seed, {})[int(float(row["step"]))] = float(row[metric])
    steps = sorted(set.intersection(*map(set, curves.values())))
    if not steps:
        raise BadInput(f"{members[0]} and {members[-1]} were never evaluated at the same step; compare them singly.")
    values = np.array([[curve[step] for step in steps] for curve in curves.values()], float)
    more = f" and {len(members) - 1} more" if len(members) > 1 else ""
    return Line(names[members[0]] + more, tuple(curves), tuple(steps), values)


def _evaluations(folder: Path) -> list[dict[str, str]]:
    if not (folder / "evaluations.csv").is_file():
        raise BadInput(f"{folder} has no evaluations.csv; name the folder of a training run.")
    rows = read_rows(folder / "evaluations.csv", "step", "seed")
    if not rows:
        raise BadInput(f"{folder} has not been evaluated yet; train it further with --resume.")
    return rows


def _metric(tables: dict[Path, list[dict[str, str]]], asked: str | None) -> str:
    """The metric asked for, or the first default that has numbers in every run."""
    known = [name for name in next(iter(tables.values()))[0] if name not in NOT_METRICS]
    for name in (asked,) if asked is not None else DEFAULT_METRICS:
        lacking = [folder for folder, rows in tables.items() if not all(_is_number(row.get(name)) for row in rows)]
        if not lacking:
            return str(name)
    raise BadInput(f"{lacking[0]} has no numbers under {asked or name!r}; choose one of {', '.join(known)}.")


def _is_number(text: str | None) -> bool:
    try:
        return text is not None and math.isfinite(float(text))
    except ValueError:
        return False


def _experiment(folder: Path) -> str:
    """What two runs share if they differ only in their seeds; the folder itself where the config cannot be read."""
    try:
        job = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
        return json.dumps({key: value for key, value in job.items() if key not in SEED_KEYS}, sort_keys=True)
    except (OSError, ValueError, AttributeError, TypeError, yaml.YAMLError):
        return str(folder)


def _about(folder: Path) -> dict[str, Any]:
    about = read_json(folder / "run.json")
    return about if isinstance(about, dict) else {}


def _short_names(folders: Sequence[Path]) -> dict[Path, str]:
    """The last part of each path, or the whole path where two end in the same."""
    last = [folder.resolve().name for folder in folders]
    return {folder: name if last.count(name) == 1 else str(folder) for folder, name in zip(folders, last, strict=True)}
