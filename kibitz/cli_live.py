"""`kibitz serve`, `kibitz watch` and `kibitz bench live`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="one JSON object on standard output, nothing else")]


def serve(
    host: Annotated[
        str, typer.Option("--host", help="address to listen on; others than your own need --token")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free one")] = 8000,
    store: Annotated[str, typer.Option("--store", help="a SQLite file, or postgresql://...")] = "kibitz.db",
    bus: Annotated[str, typer.Option("--bus", help="redis://... between several servers; empty: in process")] = "",
    token: Annotated[str, typer.Option("--token", help="needed to change anything; or KIBITZ_TOKEN")] = "",
    max_episodes: Annotated[int, typer.Option("--max-episodes", min=1, max=64, help="played at once")] = 1,
    pace: Annotated[float, typer.Option("--pace", min=0, max=60, help="seconds between steps")] = 0.6,
    patience: Annotated[
        float, typer.Option("--patience", min=0.1, help="seconds a player or the store may take")
    ] = 30.0,
    human_seconds: Annotated[float, typer.Option("--human-seconds", min=0.1, help="a person may think")] = 60.0,
    connections: Annotated[int, typer.Option("--connections", min=1, help="sockets of one address")] = 200,
    runs: Annotated[Path, typer.Option("--runs", help="folder of training runs")] = Path("runs"),
    warm: Annotated[bool, typer.Option("--warm/--no-warm", help="compile the games at the start")] = True,
    as_json: Json = False,
) -> None:
    """The live server: cockpit, API, watchers. Ctrl-C ends it and says so in every stream."""
    from kibitz.live.config import LiveConfig
    from kibitz.live.serve import serve as run

    run(
        LiveConfig(
            host=host, port=port, store=store, bus=bus, token=token or os.environ.get("KIBITZ_TOKEN", ""),
            max_episodes=max_episodes, pace=pace, patience=patience, human_seconds=human_seconds,
            connections=connections, runs=runs, warm=warm,
        ),
        as_json,
    )  # fmt: skip


def add_to(app: typer.Typer, bench: typer.Typer) -> None:
    app.command()(serve)
