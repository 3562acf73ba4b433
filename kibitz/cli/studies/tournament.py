"""`kibitz tournament`: every player against every other, with ratings, head-to-head records and costs."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from kibitz.cli import output
from kibitz.cli.options import DEFAULT_GAME, GameOptions, Json, RayAddress, Workers, read_game
from kibitz.core.errors import BadInput
from kibitz.core.system.interrupt import finishing
from kibitz.core.system.seed import LAST_SEED

DEFAULT_EPISODES = 100
DEFAULT_FOLDER = "runs"


def tournament(
    players: Annotated[
        str | None,
        typer.Option("--players", help="Players, separated by commas; see `kibitz list players`", show_default=False),
    ] = None,
    game: Annotated[
        str | None, typer.Option("--game", help=f"Game to play; default: {DEFAULT_GAME}", show_default=False)
    ] = None,
    episodes: Annotated[
        int | None,
        typer.Option(
            "--episodes",
            min=2,
            help=f"Games of every pairing, an even number; default: {DEFAULT_EPISODES}, or the whole pack",
            show_default=False,
        ),
    ] = None,
    pack: Annotated[str | None, typer.Option("--pack", help="Fixed scenarios: a name or a file")] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, max=LAST_SEED, help="Seed of the deals; default: 0")
    ] = None,
    options: GameOptions = None,
    budget_money: Annotated[
        float | None,
        typer.Option("--budget-money", help="Stop before all models together cost more than this", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Folder of the record and the report; default: a new one in runs/", show_default=False
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the tournament in --out")] = False,
    workers: Workers = None,
    ray: RayAddress = None,
    as_json: Json = False,
) -> None:
    """Play every pairing of the players, and rate them."""
    from kibitz import __version__
    from kibitz.core.work.executor import executor_for
    from kibitz.studies.reports.provenance import command_line, provenance
    from kibitz.studies.tournaments import ratings
    from kibitz.studies.tournaments.standings import report, standings
    from kibitz.studies.tournaments.tournament import TournamentPlan, play, stored_header

    ratings.check_installed()
    if resume:
        if out is None:
            raise BadInput("--resume needs --out, the folder of the tournament.")
        stored = stored_header(out)
        players = players or ",".join(stored.get("players", []))
        game, pack = game or stored.get("game"), pack or stored.get("pack")
        seed = stored.get("seed") if seed is None else seed
        episodes = episodes or stored.get("episodes")
        budget_money = stored.get("money") if budget_money is None else budget_money
        if not options and stored.get("options"):
            options = [f"{name}={json.dumps(value)}" for name, value in stored["options"].items()]
    if not players:
        raise BadInput("--players is missing; name at least two, separated by commas.")
    if pack is not None and options:
        raise BadInput("--pack cannot be combined with --set: the pack defines what is played.")
    game, seed = game or DEFAULT_GAME, seed or 0
    names = tuple(name.strip() for name in players.split(",") if name.strip())
    record, chosen = read_game(game, options)
    matches = _pack(game, pack)
    count = episodes or (matches.matches if matches is not None else DEFAULT_EPISODES)
    plan = TournamentPlan(record, chosen, names, count, seed, matches, budget_money, command_line(sys.argv[1:]))
    plan.check()
    folder = out or _new_folder(game)
    began, total = time.perf_counter(), count * len(names) * (len(names) - 1) // 2
    try:
        with (
            executor_for(workers, ray) as executor,
            output.progress(f"{len(names)} players of {game}", total, quiet=as_json) as advance,
        ):
            played = play(plan, folder, resume, advance, executor)
    except KeyboardInterrupt:
        finishing()
        print(f"kibitz: the games so far are in {folder}; continue with --resume --out {folder}.", file=sys.stderr)
        raise
    found = standings(names, count, played.rows, played.hints_from)
    about = {
        "game": game,
        "pack": None if matches is None else Path(matches.name).name,
        "episodes": count,
        "seed": seed,
        "version": __version__,
        "unfinished": played.unfinished,
    }
    facts = provenance(str(seed), time.perf_counter() - began) | {"command": played.command}
    facts["time"] += ", counted from the last --resume" if resume else ""
    report(found, f"Tournament: {record.title}, {len(names)} players", facts, about).write(folder, "tournament")
    output.result(found.as_dict() | about | {"command": played.command, "out": str(folder)}, as_json, _table)
    if not as_json:
        output.out.print(f"Report: {folder / 'tournament.html'}", markup=False, highlight=False, soft_wrap=True)
    if played.unfinished:
        print(
            f"kibitz: unfinished, because {played.unfinished}; continue with --resume and a larger --budget-money.",
            file=sys.stderr,
        )


def _pack(game: str, name: str | None) -> Any:
    from kibitz.games import get_pack

    return None if name is None else get_pack(game, name)


def _new_folder(game: str) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path(DEFAULT_FOLDER) / f"tournament-{game}-{stamp}"


def _table(found: dict[str, Any]) -> Table:
    where = f"pack {found['pack']}" if found["pack"] else f"seed {found['seed']}"
    title = f"{found['game']}: {found['episodes']:,} games of every pairing, {where}"
    table = output.titled(title, "Every deal is played twice with the seats swapped. 95 % intervals.")
    costs = any(one["tokens"] or one["fallback_share"] for one in found["players"])
    names = ["", "player", "rating", "win share", "return"]
    names += ["illegal", "fallback", "tokens", "money", "seconds"] if costs else []
    heard = any(one["hints_from"] != "none" for one in found["players"])
    names += ["hints from"] if heard else []
    for name in names:
        table.add_column(name, justify="left" if name in ("player", "hints from") else "right")
    for place, one in enumerate(found["players"], 1):
        low, high = one["rating_ci95"] or (None, None)
        rating = "not rated" if one["rating"] is None else f"{one['rating']:.0f}"
        cells = [
            str(place) if one["rated"] else "-",
            one["name"],
            rating + ("" if low is None else f" ({low:.0f} to {high:.0f})"),
            output.number("win_share", one["win_share"]),
            output.number("return", one["return_mean"]),
        ]
        if costs:
            cells += [output.number(key, one[key]) for key in ("illegal_share", "fallback_share", "tokens", "money")]
            cells.append(f"{one['seconds']:,.1f}")
        cells += [one["hints_from"]] if heard else []
        table.add_row(*map(Text, cells))
    return table
