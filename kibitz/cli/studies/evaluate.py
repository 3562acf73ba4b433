"""`kibitz evaluate`: measure a player over many episodes, or on a pack of fixed scenarios."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

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
    from kibitz.core.work.executor import executor_for
    from kibitz.evaluate import match
    from kibitz.evaluate.packs import evaluate_pack
    from kibitz.games import get_pack

    if pack is not None and (contexts != "uniform" or options or styles):
        raise BadInput("--pack cannot be combined with --contexts, --set or --styles.")
    record, chosen = read_game(game, options, contexts)
    scenarios = None if pack is None else get_pack(game, pack)
    # resolved before the progress bar appears, so that an unknown player is reported at once
    one = match.side_of(record, player, hint)
    other = match.side_of(record, opponent or record.default_players[1])
    title = f"{one.name} v {other.name}"
    if scenarios is None:
        episodes = DEFAULT_EPISODES if episodes is None else episodes
        total = episodes * match.runs_of(record, one, other)
    else:
        title, total = f"{title}, {scenarios.name}", episodes or scenarios.matches
    with executor_for(workers, ray) as executor, output.progress(title, total, quiet=as_json) as advance:
        if scenarios is not None:
            found = evaluate_pack(record, scenarios, one, other, episodes, seed, advance, out, executor)
        else:
            assert episodes is not None
            found = match.evaluate(record, chosen, one, other, episodes, seed, advance, styles, out, executor)
            found["contexts"] = contexts
    output.result(found, as_json, output.evaluation_table if scenarios is None else output.pack_table)
    if found["interrupted"]:
        if out is not None:
            print(f"kibitz: the episodes so far are in {out}; the same command continues there.", file=sys.stderr)
        raise KeyboardInterrupt
