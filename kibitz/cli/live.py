"""`kibitz serve`, `kibitz watch`, `kibitz store` and `kibitz bench live`."""

from __future__ import annotations

import os
import secrets
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from kibitz.cli import output
from kibitz.cli.options import GameOptions, Json, OneSeed
from kibitz.cli.setup import extras
from kibitz.cli.setup.helping import WithPlayers

StoreUrl = Annotated[str, typer.Option("--store", help="Event store: FILE, sqlite:///FILE or postgresql://...")]
BackupFile = Annotated[str, typer.Argument(help="The backup, an SQLite file")]
store_app = typer.Typer(help="Copy and migrate the event store of a live server.", no_args_is_help=True)


def serve(
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; a public address requires --token")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0: any free port")] = 8000,
    store: StoreUrl = "kibitz.db",
    bus: Annotated[str, typer.Option("--bus", help="Event bus between servers: redis://...; empty: none")] = "",
    token: Annotated[str, typer.Option("--token", help="Token that changes require; default: $KIBITZ_TOKEN")] = "",
    tokens: Annotated[
        Path | None, typer.Option("--tokens", help="File with a line ROLE NAME TOKEN for each further token")
    ] = None,
    guests: Annotated[
        bool, typer.Option("--guests", help="Print an invitation: a link whose holders may start games and play")
    ] = False,
    audit: Annotated[
        Path | None, typer.Option("--audit", help="File to append the audit log to; default: none")
    ] = None,
    max_episodes: Annotated[
        int, typer.Option("--max-episodes", min=1, max=64, help="Limit on concurrent episodes")
    ] = 1,
    max_drivers: Annotated[
        int, typer.Option("--max-drivers", min=0, help="Limit on open episodes of remote drivers")
    ] = 100,
    pace: Annotated[float, typer.Option("--pace", min=0, max=60, help="Seconds between steps")] = 0.6,
    player_timeout: Annotated[
        float, typer.Option("--player-timeout", min=0.1, help="Time limit per turn for players, in seconds")
    ] = 30.0,
    store_timeout: Annotated[
        float, typer.Option("--store-timeout", min=0.1, help="Limit on store outages, in seconds")
    ] = 30.0,
    human_seconds: Annotated[
        float, typer.Option("--human-seconds", min=0.1, help="Time limit per turn for people, in seconds")
    ] = 60.0,
    drain: Annotated[
        float, typer.Option("--drain", min=0, help="Seconds that running episodes get to end after SIGTERM")
    ] = 5.0,
    connections: Annotated[int, typer.Option("--connections", min=1, help="Limit on sockets per client address")] = 200,
    starts: Annotated[
        float, typer.Option("--starts", min=0.1, help="Limit on starts per second and client address")
    ] = 10.0,
    trusted_proxies: Annotated[
        int,
        typer.Option("--trusted-proxies", min=0, max=10, help="Number of proxies in front that set X-Forwarded-For"),
    ] = 0,
    runs: Annotated[Path, typer.Option("--runs", help="Folder with the training runs")] = Path("runs"),
    default_game: Annotated[
        str, typer.Option("--default-game", help="Game for requests that name none; empty: the first registered")
    ] = "",
    embed: Annotated[
        str, typer.Option("--embed", help="Sites that may embed episodes: origins, or * for all; empty: none")
    ] = "",
    commentator: Annotated[
        str, typer.Option("--commentator", help="Source of commentary: template or llm:PRESET")
    ] = "template",
    warm: Annotated[bool, typer.Option("--warm/--no-warm", help="Compile the games at startup")] = True,
    as_json: Json = False,
) -> None:
    """Run the live server: cockpit, API and event streams. Ctrl-C ends all episodes cleanly and stops the server."""
    extras.require("live")
    from kibitz.live.config import LiveConfig
    from kibitz.live.serve import serve as run

    if bus:
        import_module("redis")  # if it is missing, say so before the store is created
    run(
        LiveConfig(
            host=host, port=port, store=store, bus=bus, token=token,
            tokens=tokens, guests=secrets.token_urlsafe(12) if guests else "", audit=audit,
            max_episodes=max_episodes, max_drivers=max_drivers, pace=pace, player_timeout=player_timeout,
            store_timeout=store_timeout, human_seconds=human_seconds, drain=drain, connections=connections,
            starts=starts, trusted_proxies=trusted_proxies, runs=runs, default_game=default_game, embed=embed,
            commentator=commentator, warm=warm,
        ),
        as_json,
    )  # fmt: skip


def watch(
    server: Annotated[str, typer.Option("--server", help="Server to publish to")] = "http://127.0.0.1:8000",
    game: Annotated[str, typer.Option("--game", help="Game to play; empty: the first registered")] = "",
    player: Annotated[
        str, typer.Option("--player", help="Player in seat 0; see `kibitz list players`; empty: the game's default")
    ] = "",
    opponent: Annotated[str, typer.Option("--opponent", help="Player in seat 1; empty: the game's default")] = "",
    overs: Annotated[
        int | None, typer.Option("--overs", min=1, help="Value of max_overs, for games with that option")
    ] = None,
    pack: Annotated[
        str, typer.Option("--pack", help="Pack of first positions; --seed is then the number of the match")
    ] = "",
    adviser: Annotated[str | None, typer.Option("--adviser", help="Player who advises seat 0")] = None,
    seed: OneSeed = None,
    pace: Annotated[float, typer.Option("--pace", min=0, max=60, help="Seconds between steps")] = 0.6,
    open_table: Annotated[
        bool, typer.Option("--open/--closed", help="Show watchers both seats' private values before the end")
    ] = True,
    token: Annotated[str, typer.Option("--token", help="Token of the server; default: $KIBITZ_TOKEN")] = "",
    give_up: Annotated[float, typer.Option("--give-up", min=1, help="Limit on server outages, in seconds")] = 3600.0,
    options: GameOptions = None,
    as_json: Json = False,
) -> None:
    """Play an episode here and publish it to a server, even across outages of that server."""
    from kibitz.core.options import parse_settings
    from kibitz.live.episodes.remote_driver import drive
    from kibitz.live.episodes.request import EpisodeRequest

    named = {"game": game, "captain_preset": player, "opponent_choice": opponent}
    request = EpisodeRequest.read(
        **{key: value for key, value in named.items() if value}, max_overs=overs, eval_pack_id=pack or None, seed=seed,
        adviser=adviser, open=None if open_table else False, pace=pace, options=parse_settings(options or []),
    )  # fmt: skip
    secret = token or os.environ.get("KIBITZ_TOKEN", "")

    def show(line: str) -> None:
        if not as_json:
            output.out.print(line, markup=False, highlight=False)

    output.facts(drive(request, server, secret, show, give_up=give_up), as_json)


def bench_live(
    watchers: Annotated[int, typer.Option("--watchers", min=1, help="Number of watching sockets")] = 500,
    rate: Annotated[float, typer.Option("--rate", min=0.1, help="Events per second")] = 20.0,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="Length of the measurement, in seconds")] = 10.0,
    batch: Annotated[
        int,
        typer.Option("--batch", min=0, max=5000, help="Batch interval in milliseconds; 0: no batches"),
    ] = 0,
    stalled: Annotated[int, typer.Option("--stalled", min=0, help="Number of additional watchers that never read")] = 0,
    processes: Annotated[int, typer.Option("--processes", min=1, help="Number of client processes")] = 1,
    store: Annotated[str, typer.Option("--store", help="Event store, as for serve; empty: a temporary file")] = "",
    bus: Annotated[str, typer.Option("--bus", help="Event bus, as for serve")] = "",
    as_json: Json = False,
) -> None:
    """Measure the live server under load: a real server, a publisher over HTTP, watchers in their own processes."""
    from kibitz.bench.live import Load

    with output.progress("watching", 1, quiet=as_json):
        found = Load(watchers, rate, seconds, batch, stalled, processes, store, bus).run()
    output.facts(found, as_json)


@store_app.command("backup")
def back_up_store(file: BackupFile, store: StoreUrl = "kibitz.db", as_json: Json = False) -> None:
    """Copy a store, as of now, to a new file. Servers may keep using it. `serve --store FILE` opens the copy."""
    from kibitz.live.store.backup import back_up

    with output.progress("copying rows", None, quiet=as_json) as advance:
        found = back_up(store, file, advance)
    output.facts(found, as_json)


@store_app.command("restore")
def restore_store(file: BackupFile, store: StoreUrl = "kibitz.db", as_json: Json = False) -> None:
    """Fill a new store, or an empty PostgreSQL database, from a backup."""
    from kibitz.live.store.backup import restore

    with output.progress("copying rows", None, quiet=as_json) as advance:
        found = restore(file, store, advance)
    output.facts(found, as_json)


@store_app.command("migrate")
def migrate_store(store: StoreUrl = "kibitz.db", as_json: Json = False) -> None:
    """Bring a store to the schema of this version, as opening it does. Stop the servers that use it first."""
    from kibitz.live.store.backup import migrate

    output.facts(migrate(store), as_json)


def add_to(app: typer.Typer, bench: typer.Typer) -> None:
    # every option of the server can also be a variable: KIBITZ_STORE, KIBITZ_MAX_EPISODES, ...
    app.command(context_settings={"auto_envvar_prefix": "KIBITZ"})(serve)
    app.command(cls=WithPlayers)(watch)
    app.add_typer(store_app, name="store")
    bench.command("live")(bench_live)
