"""`kibitz serve`, `kibitz watch` and `kibitz bench live`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from kibitz.cli import output
from kibitz.cli.options import Json
from kibitz.core.seed import LAST_SEED


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
    starts: Annotated[float, typer.Option("--starts", min=0.1, help="starts of one address in a second")] = 10.0,
    runs: Annotated[Path, typer.Option("--runs", help="folder of training runs")] = Path("runs"),
    commentator: Annotated[str, typer.Option("--commentator", help="template, or llm:PRESET")] = "template",
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
            connections=connections, starts=starts, runs=runs, commentator=commentator, warm=warm,
        ),
        as_json,
    )  # fmt: skip


def watch(
    server: Annotated[str, typer.Option("--server", help="where to publish")] = "http://127.0.0.1:8000",
    player: Annotated[str, typer.Option("--player", help="who sits in seat 0")] = "balanced",
    opponent: Annotated[str, typer.Option("--opponent", help="who sits in the other seat")] = "heuristic",
    game: Annotated[str, typer.Option("--game", help="which game")] = "cricket",
    overs: Annotated[int, typer.Option("--overs", min=1, max=20, help="of an innings, where the game has them")] = 5,
    pack: Annotated[str, typer.Option("--pack", help="first positions; default: a fresh match")] = "default",
    adviser: Annotated[str | None, typer.Option("--adviser", help="who whispers to seat 0")] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, max=LAST_SEED, help="play this very episode")] = None,
    pace: Annotated[float, typer.Option("--pace", min=0, max=60, help="seconds between steps")] = 0.6,
    open_table: Annotated[bool, typer.Option("--open", help="watchers see both sides' secrets at once")] = False,
    token: Annotated[str, typer.Option("--token", help="of the server; or KIBITZ_TOKEN")] = "",
    give_up: Annotated[float, typer.Option("--give-up", min=1, help="seconds the server may be away")] = 3600.0,
    options: Annotated[list[str] | None, typer.Option("--set", help="a game option as name=value")] = None,
    as_json: Json = False,
) -> None:
    """Plays here and publishes to a server; one that is away gets every event once it is back."""
    from kibitz.core.options import parse_settings
    from kibitz.live.episodes.prepare import Wish
    from kibitz.live.episodes.remote_driver import drive

    wish = Wish(
        player, opponent, overs, pack, game=game, seed=seed, adviser=adviser, open=open_table,
        options=parse_settings(options or []),
    )  # fmt: skip
    secret = token or os.environ.get("KIBITZ_TOKEN", "")

    def tell(line: str) -> None:
        if not as_json:
            output.out.print(line, markup=False, highlight=False)

    output.facts(drive(wish, server, secret, pace, tell=tell, give_up=give_up), as_json)


def bench_live(
    watchers: Annotated[int, typer.Option("--watchers", min=1, help="sockets that look on")] = 500,
    rate: Annotated[float, typer.Option("--rate", min=0.1, help="events a second")] = 20.0,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="how long to measure")] = 10.0,
    batch: Annotated[
        int, typer.Option("--batch", min=0, max=5000, help="ms that watchers ask to gather; 0: as it comes")
    ] = 0,
    stalled: Annotated[int, typer.Option("--stalled", min=0, help="further watchers that read nothing")] = 0,
    processes: Annotated[int, typer.Option("--processes", min=1, help="of clients")] = 1,
    store: Annotated[str, typer.Option("--store", help="as of serve; empty: a temporary file")] = "",
    bus: Annotated[str, typer.Option("--bus", help="as of serve")] = "",
    as_json: Json = False,
) -> None:
    """The live server under load: a real one, a publisher over HTTP, watchers in processes of their own."""
    from kibitz.bench.live import Load

    with output.progress("watching", 1, quiet=as_json):
        found = Load(watchers, rate, seconds, batch, stalled, processes, store, bus).run()
    output.facts(found, as_json)


def add_to(app: typer.Typer, bench: typer.Typer) -> None:
    app.command()(serve)
    app.command()(watch)
    bench.command("live")(bench_live)
