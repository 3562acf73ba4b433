"""`kibitz list`: games, players, packs, configs, config keys and presets, those of other packages included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from kibitz.cli import llm, output
from kibitz.cli.options import Json

app = typer.Typer(help="List games, players, packs, configs, config keys and presets.", no_args_is_help=True)
app.command("presets")(llm.list_presets)
OneGame = Annotated[str | None, typer.Option("--game", help="Only this game; default: every game", show_default=False)]


@app.command("games")
def games(as_json: Json = False) -> None:
    """List the games, the package that each comes from, its environment and its default players."""
    from kibitz.core.registry import GAMES, env_ids, registered

    found: list[dict[str, Any]] = []
    for name, entry in registered(GAMES).items():
        record, why_not = _load(name)
        row: dict[str, Any] = {"game": name, "title": record.title if record else ""}
        row["package"] = entry.dist.name if entry.dist else entry.module.partition(".")[0]
        row["environment"] = next(env_id for env_id, game in env_ids().items() if game == name)
        row["default_players"] = list(record.default_players) if record else []
        found.append(row | {"usable": record is not None, "why_not": why_not})
    output.result({"games": found}, as_json, _table("games"))


@app.command("players")
def players(game: OneGame = None, as_json: Json = False) -> None:
    """List who can play: bots, your trained policies in runs/ and language models."""
    from kibitz.core.play.resolve import ANY_PATH

    found = []
    for record in _records(game):
        for name, same in record.aliases.items():
            found.append(_player(record.name, name, "alias", "", f"the same as {same}"))
        for one in ANY_PATH.players(record):
            found.append(_player(record.name, one.name, one.kind, one.why_not, one.about))
    output.result({"players": found}, as_json, _table("players"))


def _player(game: str, name: str, kind: str, why_not: str, about: str) -> dict[str, Any]:
    row = {"game": game, "player": name, "kind": kind, "about": about}
    return row | {"usable": not why_not, "why_not": why_not}


@app.command("packs")
def packs(game: OneGame = None, as_json: Json = False) -> None:
    """List the packs of fixed scenarios for `kibitz evaluate --pack`."""
    from kibitz.games import get_pack, pack_names

    found = [
        {"game": record.name, "pack": name, "matches": get_pack(record.name, name).matches}
        for record in _records(game)
        for name in pack_names(record.name)
    ]
    output.result({"packs": found}, as_json, _table("packs"))


@app.command("configs")
def configs(as_json: Json = False) -> None:
    """List the training configs that kibitz ships and those in configs/."""
    from kibitz.core.errors import BadInput
    from kibitz.core.system.paths import SHIPPED, find
    from kibitz.train.config import read_job

    names = {path.name for folder in (*SHIPPED, Path("configs")) for path in folder.glob("*.yaml")}
    found: list[dict[str, Any]] = []
    for name in sorted(names - {"llm_presets.yaml"}):
        file = find(f"configs/{name}")
        row: dict[str, Any] = {"config": f"configs/{name}", "game": "", "algo": "", "steps": None}
        try:
            job = read_job(file, {})
            row |= {"game": job.env.game, "algo": job.algo, "steps": job.train.num_train_steps}
            about = file.read_text(encoding="utf-8").partition("\n")[0].partition("# ")[2]
            found.append(row | {"about": about.partition(". ")[0].rstrip("."), "usable": True, "why_not": ""})
        except BadInput as error:
            found.append(row | {"about": "", "usable": False, "why_not": str(error)})
    output.result({"configs": found}, as_json, _table("configs"))


@app.command("keys")
def keys(game: OneGame = None, as_json: Json = False) -> None:
    """List the keys of a training config with their defaults. `kibitz evaluate --set` takes a game's without `env.`"""
    from kibitz.train.config import Job

    found = [{"game": "", **row} for row in keys_of(Job, "") if not row["key"].startswith("env.")]
    for record in _records(game):
        found += [{"game": record.name, **row} for row in keys_of(record.options, "env.")]
    output.result({"keys": found}, as_json, _table("keys"))


def keys_of(model: Any, prefix: str) -> Iterator[dict[str, Any]]:
    for name, field in model.model_fields.items():
        if hasattr(field.annotation, "model_fields"):
            yield from keys_of(field.annotation, f"{prefix}{name}.")
        else:
            default = None if field.is_required() else field.get_default(call_default_factory=True)
            yield {"key": f"{prefix}{name}", "default": _plain(default), "about": field.description or ""}


def _plain(value: Any) -> Any:
    """A default as JSON can carry it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else str(value)


def _records(game: str | None) -> list[Any]:
    """The record of one game, or of every game that can be loaded."""
    from kibitz.games import get_game, usable_games

    return [get_game(name) for name in (usable_games() if game is None else [game])]


def _load(name: str) -> tuple[Any, str]:
    """A game's record, or why it cannot be loaded: a broken package must not hide the others."""
    from kibitz.games import get_game

    try:
        return get_game(name), ""
    except Exception as error:
        return None, str(error)


def _table(kind: str) -> Callable[[dict[str, Any]], Table]:
    """A function that makes a table of the rows: a column for each key, and one that says why something is unusable."""

    def make(found: dict[str, Any]) -> Table:
        rows = found[kind]
        columns = [name for name in (rows[0] if rows else {kind: ""}) if name not in ("usable", "why_not")]
        table = Table(*(name.replace("_", " ") for name in columns))
        if any("usable" in row for row in rows):
            table.add_column("usable")
        for row in rows:
            cells = [_cell(row[name]) for name in columns]
            if "usable" in row:
                cells.append("yes" if row["usable"] else f"no: {row['why_not']}")
            table.add_row(*map(Text, cells))
        return table

    return make


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else f"{value:,}" if type(value) is int else str(value)
