"""What a run logs: CSV rows, TensorBoard files, a picture of the learning curve."""

from __future__ import annotations

import csv
import io
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kibitz.core.bots import NO_HINTS
from kibitz.core.errors import BadInput
from kibitz.core.system.paths import write_whole


class CsvRows:
    """A CSV file that grows by whole rows. Drops rows after `step`, which an interrupted run did not save."""

    def __init__(self, path: Path, step: int) -> None:
        self._path = path
        self._names: list[str] | None = None
        if path.exists():
            kept = [row for row in read_rows(path, "step") if float(row["step"]) <= step]
            text = io.StringIO()
            if kept:
                self._names = list(kept[0])
                table = csv.DictWriter(text, self._names)
                table.writeheader()
                table.writerows(kept)
            write_whole(path, text.getvalue())
        self._file = open(path, "a", encoding="utf-8", newline="")  # noqa: SIM115  (closed by `close`)

    def add(self, row: Mapping[str, Any]) -> None:
        if self._names is None:
            self._names = list(row)
            csv.writer(self._file).writerow(self._names)
        # a run that an older version began keeps its columns
        csv.DictWriter(self._file, self._names, restval="", extrasaction="ignore").writerow(row)
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_rows(path: Path, *numbers: str) -> list[dict[str, str]]:
    """Complete rows only: a crash may have cut the last one. BadInput unless these columns hold numbers."""
    if not path.is_file():
        raise BadInput(f"{path} is not a file; delete it to continue without its rows.")
    try:
        with open(path, encoding="utf-8", newline="") as file:
            table = csv.DictReader(file)
            rows = [row for row in table if None not in row.values() and None not in row]
        for row in rows:
            for name in numbers:
                float(row[name])
    except (ValueError, KeyError, csv.Error):  # a UnicodeDecodeError is a ValueError
        raise BadInput(f"{path} is damaged; delete it to continue without its rows.") from None
    return rows


class Tensorboard:
    """Event files for TensorBoard, if its writer is installed.

    They are written here and now: the thread of `SummaryWriter` dies on a full disk, and then the run waits forever.
    """

    def __init__(self, folder: Path, notes: list[str]) -> None:
        self._writer: Any = None
        try:
            from tensorboardX.event_file_writer import EventsWriter
        except ImportError:
            notes.append("no TensorBoard files: pip install 'kibitz[logs]' for them")
            return
        folder.mkdir(parents=True, exist_ok=True)
        self._writer = EventsWriter(str(folder / "events"))

    def add(self, group: str, row: Mapping[str, Any], step: int) -> None:
        if self._writer is None:
            return
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.summary import scalar

        for name, value in row.items():
            if name not in ("step", "seed"):
                summary = scalar(f"{group}/{name}", value)
                self._writer.write_event(Event(summary=summary, step=step, wall_time=time.time()))
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class LearningCurve:
    """`learning_curve.png`: evaluations over steps, one line per seed and their mean."""

    def __init__(self, folder: Path, notes: list[str]) -> None:
        self._folder, self._notes = folder, notes

    def draw(self, title: str) -> None:
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError:
            self._notes.append("no learning_curve.png: pip install 'kibitz[logs]' for it")
            return
        rows = read_rows(self._folder / "evaluations.csv", "step", "return_mean")
        trained = read_rows(self._folder / "metrics.csv", "step", "return")
        figure = Figure(figsize=(7.2, 4.2), dpi=120, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        _lines(axes, trained, "return", "#b9c4d0", "while training (sampled acts)")
        hinted = any(row.get("hints_from", NO_HINTS) != NO_HINTS for row in rows)
        heard = "with hints" if hinted else "greedy acts, fresh contexts"
        _lines(axes, rows, "return_mean", "#0b6e99", f"evaluated ({heard})")
        if hinted:
            _lines(axes, rows, "without_hints_return_mean", "#b5651d", "evaluated (without hints)")
        axes.set(title=title, xlabel="steps of the learner", ylabel="return")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, loc="lower right")
        write_whole(self._folder / "learning_curve.png", lambda file: figure.savefig(file, format="png"))


def _lines(axes: Any, rows: list[dict[str, str]], name: str, colour: str, label: str) -> None:
    """A thin line per seed, a thick one for their mean."""
    seeds: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        seeds[row["seed"]].append((float(row["step"]), float(row[name])))
    if not seeds:
        return
    for points in seeds.values():
        axes.plot(*zip(*points, strict=True), color=colour, alpha=0.5 if len(seeds) > 1 else 1, linewidth=1)
    means = [
        (steps[0][0], sum(value for _, value in steps) / len(steps)) for steps in zip(*seeds.values(), strict=False)
    ]
    axes.plot(*zip(*means, strict=True), color=colour, linewidth=2, marker="o", markersize=3, label=label)
