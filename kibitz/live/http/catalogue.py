"""What can be played and read here: games, players, training runs with their curves, reports of studies."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import math
import time
from functools import cache
from pathlib import Path
from typing import Any

from kibitz.core.registry import import_jax
from kibitz.core.system.paths import folders_in, read_json, read_small
from kibitz.live.episodes.request import HUMAN
from kibitz.live.http.models import Tournament
from kibitz.live.public_text import public_text
from kibitz.llm.client.types import clean

REFRESH_SECONDS = 5.0  # after which a new run is listed
MAX_POINTS = 500  # of a curve: more than a page can draw
MAX_CURVE_BYTES = 16 << 20
MAX_REPORT_BYTES = 16 << 20
MAX_SUMMARY_CHARS = 1000
MAX_TEXTS = 100  # one for each phase of a curriculum
MAX_TOURNAMENTS = 20
TITLES = {"llm": "Language model", "policy": "Trained"}  # by kind; a name without one is its own title


class Catalogue:
    """The answer of `games`, computed at most once every few seconds, however many ask."""

    def __init__(self, runs: Path, default_game: str = "") -> None:
        self._runs, self._default_game = runs, default_game
        self._lock = asyncio.Lock()
        self._known: dict[str, Any] = {}
        self._expires = 0.0  # monotonic seconds

    async def games(self) -> dict[str, Any]:
        async with self._lock:
            if time.monotonic() >= self._expires:
                self._known = await asyncio.to_thread(games, self._runs, self._default_game)
                self._expires = time.monotonic() + REFRESH_SECONDS
        return self._known


def games(runs: Path, default_game: str = "") -> dict[str, Any]:
    """Every game with what the start form needs. Loads the games, so call it off the event loop."""
    from kibitz.games import usable_games

    names = usable_games()
    described = {name: {**_game(name), "players": players_of(name, runs)} for name in names}
    return {"games": described, "default_game": default_game or names[0]}


@cache
def _game(name: str) -> dict[str, Any]:
    import_jax()
    from kibitz.games import get_game
    from kibitz.live.episodes.prepare import pack_choices

    game = get_game(name)
    schema = game.options.model_json_schema()
    kept = {key: value for key, value in schema.get("properties", {}).items() if not value.pop("operator", False)}
    defaults = game.options().model_dump(mode="json")
    return {
        "title": game.title,
        "options": {**schema, "properties": kept},
        "defaults": {key: defaults[key] for key in kept if key in defaults},
        "default_players": list(game.default_players),
        "packs": pack_choices(name),
        "starts": [start._asdict() for start in game.starts],
    }


def players_of(game: str, runs: Path) -> list[dict[str, Any]]:
    """Every name that a start may use, and why some cannot play here."""
    import_jax()
    from kibitz.core.play.resolve import PlayerInfo, Resolver
    from kibitz.games import get_game

    found = Resolver(runs).players(get_game(game))
    bots = [one for one in found if one.kind == "bot"]
    others = [one for one in found if one.kind not in ("bot", HUMAN)]
    return [_player(one) for one in [*bots, PlayerInfo(HUMAN, HUMAN), *others]]


def _player(found: Any) -> dict[str, Any]:
    title = "A person" if found.kind == HUMAN else found.name.capitalize()
    if found.kind in TITLES:
        title = f"{TITLES[found.kind]}: {found.name.partition(':')[2]}"
    why = public_text(found.why_not)
    about = public_text(found.about)
    return {"name": found.name, "title": title, "kind": found.kind, "usable": not why, "why": why, "about": about}


def runs_in(folder: Path) -> list[dict[str, Any]]:
    """Training runs, newest first."""
    found = [_run(path) for path in _folders(folder)]
    return sorted((run for run in found if run is not None), key=lambda run: -run["changed"])


def run_named(folder: Path, name: str) -> dict[str, Any] | None:
    """One run with its learning curve. The name is looked up, never joined into a path."""
    for path in _folders(folder):
        if path.name == name:
            run = _run(path)
            return None if run is None else run | {"curve": _curve(path)}
    return None


def reports_in(folder: Path) -> list[dict[str, Any]]:
    """Reports of studies and tournaments, newest first."""
    found = [_report(path) for path in _folders(folder)]
    return sorted((report for report in found if report is not None), key=lambda report: -report["changed"])


def report_page(folder: Path, name: str) -> Path | None:
    """A report's HTML file; None unless it can be shown. The name is looked up, never joined into a path."""
    for path in _folders(folder):
        if path.name == name:
            try:
                file = _report_file(path, "html")
                return file if file.is_file() and file.stat().st_size <= MAX_REPORT_BYTES else None
            except OSError:
                return None
    return None


def _report_file(folder: Path, ending: str) -> Path:
    """A study's report or, in the folder of a tournament, the tournament's."""
    study = folder / f"report.{ending}"
    return study if study.exists() else folder / f"tournament.{ending}"


def _report(path: Path) -> dict[str, Any] | None:
    """None unless there is a valid report: the folder may contain anything."""
    try:
        about = json.loads(read_small(_report_file(path, "json"), MAX_REPORT_BYTES))
        changed = _report_file(path, "html").stat().st_mtime
        title, summary = str(about["title"]), str(about["summary"])
        verdicts = [(str(verdict["text"]), verdict["shown"] is True) for verdict in about["verdicts"][:MAX_TEXTS]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return {
        "name": path.name,
        "title": clean(title),
        "summary": clean(summary, MAX_SUMMARY_CHARS),
        "verdicts": [{"text": clean(text, MAX_SUMMARY_CHARS), "shown": shown} for text, shown in verdicts],
        "changed": changed,
    }


def tournaments_in(folder: Path) -> list[dict[str, Any]]:
    """The newest tournaments of the runs folder; omits files that are damaged or of another version."""
    found = []
    for path in _folders(folder):
        file = path / "tournament.json"
        try:
            tournament = Tournament.model_validate(json.loads(read_small(file, MAX_REPORT_BYTES)))
            found.append(tournament.model_dump() | {"name": clean(path.name), "changed": file.stat().st_mtime})
        except (ValueError, OSError, RecursionError):
            continue
    return sorted(found, key=lambda one: -one["changed"])[:MAX_TOURNAMENTS]


def ratings_of(folder: Path, player: str) -> list[dict[str, Any]]:
    """A player's place in each of the newest tournaments."""
    found = []
    for tournament in tournaments_in(folder):
        for place, one in enumerate(tournament["players"], 1):
            if one["name"] == player:
                about = {key: tournament[key] for key in ("game", "changed")}
                found.append(one | about | {"tournament": tournament["name"], "place": place})
    return found


def _folders(folder: Path) -> list[Path]:
    """Folders whose names can be shown; a name may be any bytes."""
    return [path for path in folders_in(folder) if path.name.isprintable()]


def _run(path: Path) -> dict[str, Any] | None:
    """None unless there is a valid record: the folder may contain anything."""
    about = read_json(path / "run.json")
    if not isinstance(about, dict) or not isinstance(about.get("game"), str):
        return None
    seed = about.get("seed")
    try:
        changed = (path / "run.json").stat().st_mtime
    except OSError:  # deleted just now
        return None
    return {
        "name": path.name,
        "game": clean(about["game"]),
        "seed": seed if type(seed) is int and 0 <= seed < 1 << 64 else None,
        "advisers": _texts(about.get("advisers")),
        "evaluation_hints_from": _texts(about.get("evaluation_hints_from")),
        "changed": changed,
    }


def _texts(value: Any) -> list[str]:
    return [clean(str(text)) for text in value[:MAX_TEXTS]] if isinstance(value, list) else []


def _curve(path: Path) -> list[dict[str, float]]:
    """Evaluations by step, numbers only, thinned out to what can be drawn; empty if the file is damaged."""
    try:
        text = read_small(path / "evaluations.csv", MAX_CURVE_BYTES).decode()
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    except (OSError, ValueError, csv.Error):
        return []
    stride = max(1, math.ceil(len(rows) / MAX_POINTS))
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
