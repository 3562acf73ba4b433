"""`kibitz evaluate`: measure a player over many episodes, or on a pack of fixed scenarios."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from kibitz.cli import output
from kibitz.cli.options import (
    DEFAULT_GAME,
    Contexts,
    GameName,
    GameOptions,
    Hint,
    Json,
    Opponent,
    RayAddress,
    Seed,
    Workers,
    read_game,
)
from kibitz.core.errors import BadInput

DEFAULT_EPISODES = 1000


def evaluate(
    player: Annotated[str, typer.Option("--player", help="Player to evaluate; see `kibitz list players`")],
    game: GameName = DEFAULT_GAME,
    opponent: Opponent = None,
    episodes: Annotated[
        int | None,
        typer.Option(
            "--episodes",
            min=1,
            help=f"Number of episodes; default: {DEFAULT_EPISODES}, or the whole pack",
            show_default=False,
        ),
    ] = None,
    pack: Annotated[
        str | None,
        typer.Option(
            "--pack", help="Fixed scenarios, each played from both sides: a file, or a name from `kibitz list packs`"
        ),
    ] = None,
    contexts: Contexts = "uniform",
    hint: Annotated[
        Hint | None,
        typer.Option(
            "--hint",
            help="Whether a policy trained with hints hears them: none or own; default: own, but none from an LLM",
            show_default=False,
        ),
    ] = None,
    styles: Annotated[
        bool, typer.Option("--styles", help="Also report how often each seat showed each style of the game")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder to keep episodes, prompts and answers in; the same command continues it",
            metavar="FOLDER",
        ),
    ] = None,
    seed: Seed = 0,
    options: GameOptions = None,
    workers: Workers = None,
    ray: RayAddress = None,
    as_json: Json = False,
) -> None:
    """Play many episodes and report a player's measures with confidence intervals."""
    if pack is not None:
        if contexts != "uniform" or options or styles:
            raise BadInput("--pack cannot be combined with --contexts, --set or --styles.")
        _evaluate_pack(game, pack, player, opponent, episodes, hint, seed, out, as_json, (workers, ray))
        return
    from kibitz.core.work.executor import executor_for
    from kibitz.evaluate import match

    episodes = DEFAULT_EPISODES if episodes is None else episodes
    record, chosen = read_game(game, options, contexts)
    # resolved before the progress bar appears, so that an unknown player is reported at once
    one = match.side_of(record, player, hint)
    other = match.side_of(record, opponent or record.default_players[1])
    runs = match.runs_of(record, one, other)
    title = f"{one.name} v {other.name}"
    with (
        executor_for(workers, ray) as executor,
        output.progress(title, episodes * runs, quiet=as_json) as advance,
    ):
        found = match.evaluate(record, chosen, one, other, episodes, seed, advance, styles, out, executor)
    found["contexts"] = contexts
    _print(found, as_json, output.evaluation_table, out)


def _evaluate_pack(
    name: str,
    pack_name: str,
    player: str,
    opponent: str | None,
    episodes: int | None,
    hint: Hint | None,
    seed: int,
    out: Path | None,
    as_json: bool,
    where: tuple[int | None, str | None],
) -> None:
    from kibitz.core.work.executor import executor_for
    from kibitz.evaluate.match import side_of
    from kibitz.evaluate.packs import evaluate_pack
    from kibitz.games import get_game, get_pack

    game, pack = get_game(name), get_pack(name, pack_name)
    one, other = side_of(game, player, hint), side_of(game, opponent or game.default_players[1])
    title = f"{one.name} v {other.name}, {pack.name}"
    with (
        executor_for(*where) as executor,
        output.progress(title, episodes or pack.matches, quiet=as_json) as advance,
    ):
        found = evaluate_pack(game, pack, one, other, episodes, seed, advance, out, executor)
    _print(found, as_json, output.pack_table, out)


def _print(found: dict[str, Any], as_json: bool, table: Callable[[dict[str, Any]], Table], out: Path | None) -> None:
    output.result(found, as_json, table)
    if found["interrupted"]:
        if out is not None:
            print(f"kibitz: the episodes so far are in {out}; the same command continues there.", file=sys.stderr)
        raise KeyboardInterrupt
