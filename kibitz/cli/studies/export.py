"""`kibitz export`: recorded episodes for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from kibitz.cli import output
from kibitz.cli.options import DEFAULT_GAME, GameName, Json


def export(
    source: Annotated[
        str, typer.Argument(help="Folder of `kibitz evaluate --out`, or a store: FILE or postgresql://...")
    ],
    out: Annotated[Path, typer.Option("--out", help="File to write")],
    kind: Annotated[
        Literal["sft", "dpo", "jsonl", "parquet"],
        typer.Option("--format", help="Rows for supervised or preference training, or one row per decision"),
    ],
    game: GameName = DEFAULT_GAME,
    player: Annotated[str, typer.Option("--player", help="Export only this player's seats; default: both")] = "",
    min_return: Annotated[
        float | None, typer.Option("--min-return", help="Omit seats that earned less in the episode")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write recorded episodes as rows for other tools: chat rows, pairs, JSON Lines or Parquet."""
    if kind == "parquet":
        import pyarrow  # if it is missing, say so before anything is read  # noqa: F401
    from kibitz.teach.records.formats import Wanted
    from kibitz.teach.records.formats import export as write

    with output.err.status("writing rows") as status:
        written = 0

        def show(count: int) -> None:
            nonlocal written
            written += count
            status.update(f"writing rows: {written:,}")

        found = write(Wanted(source, kind, game, player, min_return), out, show)
    output.facts(found, as_json)
