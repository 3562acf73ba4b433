"""What there is to play with: players by game, training runs and their curves."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

POINTS = 500  # of a curve: more than a page can draw


def players_of(game: str, bots: list[str], runs: Path) -> list[dict[str, Any]]:
    """Every name a start may use, with why one cannot be used here."""
    listed = [_player(name, name.capitalize(), "rule") for name in bots]
    listed.append(_player("human", "A person", "human"))
    listed += [_llm(name, why) for name, why in _presets()]
    trained = [run["name"] for run in runs_of(runs) if run["game"] == game]
    return listed + [_player(f"policy:{name}", f"Trained: {name}", "policy") for name in trained]


def _player(name: str, title: str, kind: str, why: str = "") -> dict[str, Any]:
    return {"name": name, "title": title, "kind": kind, "usable": not why, "why": why}


def _llm(name: str, why: str) -> dict[str, Any]:
    return _player(f"llm:{name}", f"Language model: {name}", "llm", why)


def _presets() -> list[tuple[str, str]]:
    from kibitz.core.errors import BadInput
    from kibitz.llm.presets import read_presets, why_not

    try:
        return [(name, why_not(preset)) for name, preset in read_presets().items()]
    except BadInput as wrong:
        return [("presets", str(wrong))]


def runs_of(folder: Path) -> list[dict[str, Any]]:
    """Training runs, newest first."""
    found = [_run(path) for path in _folders(folder)]
    return sorted((run for run in found if run is not None), key=lambda run: -run["changed"])


def run_named(folder: Path, name: str) -> dict[str, Any] | None:
    """One run with the points of its learning curve; the name is looked up, never joined into a path."""
    for path in _folders(folder):
        if path.name == name:
            run = _run(path)
            return None if run is None else run | {"curve": _curve(path)}
    return None


def _folders(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.is_dir()] if folder.is_dir() else []


def _run(path: Path) -> dict[str, Any] | None:
    about = _json(path / "run.json")
    if not isinstance(about, dict) or not isinstance(about.get("game"), str):
        return None
    return {
        "name": path.name,
        "game": about["game"],
        "seed": about.get("seed"),
        "advisers": about.get("advisers", []),
        "changed": (path / "run.json").stat().st_mtime,
    }


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _curve(path: Path) -> list[dict[str, float]]:
    """Evaluations by step, numbers only; thinned out to what can be drawn."""
    file = path / "evaluations.csv"
    if not file.is_file():
        return []
    with file.open(encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    stride = max(1, math.ceil(len(rows) / POINTS))
    return [_numbers(row) for i, row in enumerate(rows) if i % stride == 0 or i == len(rows) - 1]


def _numbers(row: dict[str, str]) -> dict[str, float]:
    kept: dict[str, float] = {}
    for name, text in row.items():
        try:
            value = float(text)
        except (TypeError, ValueError):
            continue
        if math.isfinite(value):
            kept[name] = value
    return kept
