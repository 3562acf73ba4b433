"""`kibitz compare`: learning curves of several runs in one figure, and a table of where they ended."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from kibitz.cli import output
from kibitz.cli.options import Json


def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of training runs; those that differ only in seeds become one line")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="Figure to write: FILE.pdf, .svg or .png; default: none")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option("--metric", help="Column of evaluations.csv; default: share_of_ceiling, else return_mean"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare training runs: curves with 95 % bands in a figure, final values and differences in a table."""
    from kibitz.studies.compare import check_figure
    from kibitz.studies.compare import compare as read

    if out is not None:
        check_figure(out)
    comparison = read(runs, metric)
    found = comparison.summary()
    if out is not None:
        comparison.save(out)
        found["figure"] = str(out)
    output.result(found, as_json, _table)


def _table(found: dict[str, Any]) -> Table:
    metric = found["metric"]
    first = found["runs"][0]["run"]
    caption = "95 % intervals; differences over the seeds that both have, p-values adjusted by Holm's method."
    table = output.titled(f"{output.LABELS.get(metric, metric.replace('_', ' '))} at the end", caption)
    for name in ("run", "seeds", "steps", "mean", f"less {first}", "p"):
        table.add_column(Text(name), justify="left" if name == "run" else "right")
    for row in found["runs"]:
        apart = "-" if row["difference"] is None else _shown(metric, row["difference"], row["difference_ci95"])
        p = "-" if row["p_holm"] is None else f"{row['p_holm']:.3f}"
        cells = [row["run"], f"{row['seeds']:,}", f"{row['steps']:,}", _shown(metric, row["mean"], row["ci95"])]
        table.add_row(*map(Text, [*cells, apart, p]))
    return table


def _shown(metric: str, value: float, interval: list[float | None]) -> str:
    low, high = interval
    text = output.number(metric, value)
    return text if low is None else f"{text} ({output.number(metric, low)} to {output.number(metric, high)})"
