"""Agents trained for each style of a game, in one table beside the figures of a paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from kibitz.core.game import Game
from kibitz.core.statistics import mean_ci95
from kibitz.core.styles import PREFIX
from kibitz.studies.reports.provenance import provenance, seed_range
from kibitz.studies.reports.report import Column, Interval, Report, ReportTable
from kibitz.studies.study import training_seconds
from kibitz.train.run.run import Run
from kibitz.train.start import prepare

Train = Callable[[Run, bool], dict[str, Any]]  # trains a run, or resumes it, and returns its summary


def study_styles(
    game: Game, folder: Path, styles: Sequence[str], options: Sequence[str], train: Train, **job: Any
) -> Report | None:
    """Trains one run for each style and writes the report; runs that the folder holds are continued.

    `job` and `options` are arguments of `prepare`. None if a run was stopped before its end.
    """
    found = {}
    for style in game.styles.names(styles, game.name):
        out = folder / style
        resume = (out / "config.yaml").is_file()
        settings = [*options, "reward.mode=style", f"reward.style={style}"]
        run = prepare(out=str(out), resume=resume, options=settings, **job)
        summary = train(run, resume)
        if not summary["finished"]:
            return None
        found[style] = summary | {"seed": run.job.seed, "episodes": run.job.logging.eval_episodes}
        found[style]["seconds"] = training_seconds(out)
    report = _report(game, found)
    report.write(folder)
    return report


def _report(game: Game, found: dict[str, dict[str, Any]]) -> Report:
    published = game.styles.published
    listed = [name for figures in published.values() for name in figures] or _measures(game)
    measures = list(dict.fromkeys(listed))
    columns = [Column("style"), Column("shows it", "percent")]
    for name in measures:
        columns.append(Column(name.replace("_", " "), "number"))
        columns += [Column(f"{name.replace('_', ' ')}, paper", "number")] if published else []
    rows: list[list[Any]] = []
    for style, summary in found.items():
        row: list[Any] = [style.replace("_", "-"), _interval(summary[PREFIX + style])]
        for name in measures:
            row.append(_interval(summary[name]))
            row += [published.get(style, {}).get(name)] if published else []
        rows.append(row)
    one = next(iter(found.values()))
    seeds, episodes = one["seeds"], one["episodes"]
    learners = f"{seeds} learners" if seeds > 1 else "One learner"
    return Report(
        title=f"Agents trained for a style: {game.title}",
        summary=(
            f"{learners} for each style, paid 1 for an episode that shows it; greedy play in {episodes:,} new "
            f"episodes each, after {one['steps']:,} steps. Intervals are over learners."
        ),
        facts=provenance(seed_range(one["seed"], seeds), sum(run["seconds"] for run in found.values())),
        parts=[ReportTable("Styles", columns, rows)],
        data={"styles": {style: {k: v for k, v in s.items() if k != "run"} for style, s in found.items()}},
    )


def _measures(game: Game) -> list[str]:
    """The measures that the game adds for its styles."""
    settings = game.default_settings
    notes = game.styles.start(settings, 0)
    return list(jax.eval_shape(lambda s: game.styles.measures(settings, notes, s, 0), game.example))


def _interval(values: Sequence[float | None]) -> Interval:
    known = np.array([value for value in values if value is not None], float)
    mean, (low, high) = mean_ci95(known)
    return Interval(mean, *(None if np.isnan(x) else float(x) for x in (low, high)))
