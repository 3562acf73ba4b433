"""A report: what was found, as one HTML file without scripts, as Markdown, as JSON and as CSV.

A `Report` holds tables, figures and verdicts; code that builds one does not deal with formats.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from kibitz.core.statistics import finite
from kibitz.core.system.paths import write_whole

Kind = Literal["text", "number", "count", "percent", "money", "seconds"]


class Interval(NamedTuple):
    """A value with its 95 % interval, which is None where the sample is too small for one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Column:
    name: str
    kind: Kind = "text"
    digits: int = 2  # after the decimal point, for `number`

    def shown(self, value: Any) -> str:
        """A cell as people read it."""
        if isinstance(value, Interval):
            middle = self.shown(value.value)
            if value.low is None or value.high is None or not _is_number(value.low):
                return middle
            return f"{middle} [{self._bare(value.low)}, {self._bare(value.high)}]"
        if not _is_number(value):
            return "-" if value is None or isinstance(value, float) else str(value)
        return self._bare(value) + (" %" if self.kind == "percent" else " s" if self.kind == "seconds" else "")

    def _bare(self, value: float) -> str:
        if self.kind == "percent":
            return f"{100 * value:.1f}"
        if self.kind == "count" or (self.kind == "text" and value == int(value)):
            return f"{value:,.0f}"
        if self.kind == "seconds":
            return f"{value:,.0f}" if value >= 10 else f"{value:.2f}"
        return f"{value:,.{6 if self.kind == 'money' else self.digits}f}"


@dataclass(frozen=True)
class ReportTable:
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]  # str, number, None or Interval
    note: str = ""

    def shown(self) -> list[list[str]]:
        return [[column.shown(cell) for column, cell in zip(self.columns, row, strict=True)] for row in self.rows]

    def as_csv(self) -> str:
        """Raw values; an interval takes three columns."""
        wide = [any(isinstance(row[i], Interval) for row in self.rows) for i in range(len(self.columns))]
        text = io.StringIO()
        writer = csv.writer(text)
        names = (
            [c.name, f"{c.name} low", f"{c.name} high"] if w else [c.name]
            for c, w in zip(self.columns, wide, strict=True)
        )
        writer.writerow([name for group in names for name in group])
        for row in self.rows:
            writer.writerow([_raw(x) for cell, w in zip(row, wide, strict=True) for x in _parts(cell, w)])
        return text.getvalue()


@dataclass(frozen=True)
class Figure:
    title: str
    svg: str  # from `plot`
    note: str = ""


@dataclass(frozen=True)
class Verdict:
    """One comparison in a sentence."""

    text: str
    shown: bool  # whether a difference was shown


@dataclass(frozen=True)
class Report:
    title: str
    summary: str  # one or two sentences
    facts: dict[str, str]  # command, seeds, versions, machine: see `provenance`
    verdicts: Sequence[Verdict] = ()
    parts: Sequence[ReportTable | Figure] = ()
    notes: Sequence[str] = ()  # how to read it, and what it does not show
    data: dict[str, Any] = field(default_factory=dict)  # all figures, for machines

    @property
    def tables(self) -> list[ReportTable]:
        return [part for part in self.parts if isinstance(part, ReportTable)]

    def write(self, folder: Path, name: str = "report") -> list[Path]:
        """NAME.html, NAME.md and NAME.json, a CSV file for each table and an SVG file for each figure."""
        from kibitz.studies.reports.page import page  # it needs the records of this module

        figures = [part for part in self.parts if isinstance(part, Figure)]
        files = {f"{name}.html": page(self), f"{name}.md": self.as_markdown(name), f"{name}.json": self.as_json()}
        files |= {_file(name, table, "csv"): table.as_csv() for table in self.tables}
        files |= {_file(name, figure, "svg"): figure.svg + "\n" for figure in figures}
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            write_whole(folder / file, text)
        return [folder / file for file in files]

    def as_json(self) -> str:
        verdicts = [{"text": verdict.text, "shown": verdict.shown} for verdict in self.verdicts]
        whole = {"title": self.title, "summary": self.summary, **self.facts, "verdicts": verdicts}
        return json.dumps(finite(whole | {"notes": list(self.notes)} | self.data), indent=1, allow_nan=False) + "\n"

    def as_markdown(self, name: str = "report") -> str:
        """`name` is that of the files beside it."""
        parts = [f"# {self.title}", self.summary]
        if self.verdicts:
            lines = (f"- {verdict.text}" for verdict in self.verdicts)
            parts += ["## Verdicts", "\n".join(lines)]
        for part in self.parts:
            parts.append(f"## {part.title}")
            if isinstance(part, ReportTable):
                parts.append(_markdown_table(part))
            else:
                parts.append(f"![{part.title}]({_file(name, part, 'svg')})")
            parts += [part.note] if part.note else []
        if self.notes:
            parts += ["## Notes", "\n".join(f"- {note}" for note in self.notes)]
        parts += [
            "## How this was made",
            "\n".join(f"- {key}: {_code(key, value)}" for key, value in self.facts.items()),
        ]
        return "\n\n".join(parts) + "\n"


def _file(name: str, part: ReportTable | Figure, ending: str) -> str:
    slug = re.sub("[^a-z0-9]+", "_", part.title.lower()).strip("_")
    return f"{name}_{slug}.{ending}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _parts(cell: Any, wide: bool) -> Iterable[Any]:
    if isinstance(cell, Interval):
        return tuple(cell)
    return (cell, None, None) if wide else (cell,)


def _raw(value: Any) -> Any:
    return value if isinstance(value, str) or _is_number(value) else ""


def _markdown_table(table: ReportTable) -> str:
    rows = [[column.name for column in table.columns]]
    rows.append(["---" if column.kind == "text" else "---:" for column in table.columns])
    rows += table.shown()
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)


def _code(key: str, value: str) -> str:
    return f"`{value}`" if key == "command" else value
