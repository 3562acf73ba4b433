"""`kibitz demo`: the whole product in a few minutes, for people or, with `--exit`, for machines."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from kibitz.cli.options import Json
from kibitz.cli.output import interval, number, out, progress, result
from kibitz.cli.setup import extras
from kibitz.cli.train import train_with_progress
from kibitz.core.errors import BadInput
from kibitz.core.system import interrupt

if TYPE_CHECKING:
    import httpx

    from kibitz.core.game import Game
    from kibitz.train.run.run import Run

SHOWN_SEED = 3  # a negotiation that takes a few rounds
TIMEOUT_SECONDS = 300.0  # limit for a server response and, with `--exit`, for the episodes to end
LIVE_EPISODES: tuple[dict[str, Any], ...] = (
    {
        "game": "cricket",
        "captain_preset": "balanced",
        "opponent_choice": "aggressive",
        "max_overs": 5,
        "pace": 1.2,
    },
    {"game": "deal_or_no_deal", "opponent_choice": "heuristic", "open": True, "pace": 2.5},
)


def demo(
    steps: Annotated[int, typer.Option("--steps", min=1, help="Number of training steps")] = 2_000_000,
    episodes: Annotated[
        int, typer.Option("--episodes", min=1, help="Number of episodes per player in the comparison")
    ] = 2000,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the cockpit in a browser")] = True,
    leave: Annotated[bool, typer.Option("--exit", help="Exit when both live episodes have ended")] = False,
    as_json: Json = False,
) -> None:
    """Train a negotiator, compare it with other players, then watch it and a cricket match in the cockpit."""
    extras.require("live")
    from kibitz.games import get_game
    from kibitz.train.start import prepare

    game = get_game("deal_or_no_deal")
    if not as_json:
        _show_negotiation(game)
        out.print("[bold]A negotiator learns[/bold] with PPO, without hints, against that partner")
    often = [f"logging.eval_every={max(1, steps // 20)}"]  # twenty points for the learning curve
    run = prepare(config="configs/ppo_fast.yaml", steps=steps, options=often)
    found: dict[str, Any] = {"episodes": episodes, "training": train_with_progress(run, False, quiet=as_json)}
    if not found["training"]["finished"]:
        raise KeyboardInterrupt
    found["players"] = _compare(game, run, episodes, as_json)
    if not as_json:
        out.print(_table(found))
        out.print(f"The run, with its learning curve: {run.folder}", markup=False, highlight=False)
    with interrupted_by_signals():
        found["live"] = _watch(run, browser, leave or as_json, as_json)
    if as_json:
        result(found, as_json, _table)


def _show_negotiation(game: Game) -> None:
    from kibitz.core.bots import seated
    from kibitz.core.play.episode import play_episode
    from kibitz.core.play.events import spoken
    from kibitz.players import player_named

    rules = {0: game.bot("bayes"), 1: game.bot("heuristic")}
    out.print("[bold]A negotiation[/bold]: the Bayesian player (seat 0) and the heuristic partner (seat 1)")
    with progress("dealing", 1, quiet=False):
        players = [player_named(game, bot.name) for bot in rules.values()]
        played = play_episode(game, seated(game.options().settings(), rules), players, seed=SHOWN_SEED)
    for event in played.events:
        if event.type == "episode.started":
            for seat, secret in event.payload["private"].items():
                worth = ", ".join(map(str, secret["utilities"]))
                out.print(f"  a book, a hat and a ball are worth {worth} to seat {seat}", highlight=False)
        elif line := spoken(event):
            out.print(f"  {line}", markup=False, highlight=False)
    out.print()


def _compare(game: Game, run: Run, episodes: int, as_json: bool) -> dict[str, Any]:
    """The new policy and three players that need no training, each against the partner it trained with."""
    from kibitz.evaluate import match

    found = {}
    for name in ("random", "heuristic", f"policy:{run.folder}", "bayes"):
        short = "trained" if name.startswith("policy:") else name
        player, opponent = match.side_of(game, name), match.side_of(game, "heuristic")
        runs = match.runs_of(game, player, opponent)
        with progress(f"{short} v heuristic", episodes * runs, quiet=as_json) as advance:
            found[short] = match.evaluate(game, game.options(), player, opponent, episodes, 0, advance)
        if found[short]["interrupted"]:
            raise KeyboardInterrupt
    return found


def _table(found: dict[str, Any]) -> Table:
    table = Table(title=f"Against the heuristic partner, {found['episodes']:,} episodes each")
    for name in ("player", "return", "of ceiling", "agreed", "Pareto deals", "turns"):
        table.add_column(name, justify="left" if name == "player" else "right")
    for name, side in found["players"].items():
        table.add_row(
            name,
            f"{side['return_mean']:.2f}{interval(side)}",
            number("share", side["share_of_ceiling"]),
            number("agreement", side["agreement"]),
            number("pareto", side["pareto"]),
            f"{side['turns']:.1f}",
        )
    return table


def _watch(run: Run, browser: bool, leave: bool, as_json: bool) -> dict[str, Any]:
    """Serves a cricket match and a negotiation of the new policy until Ctrl-C or, with `leave`, until both end."""
    import httpx

    cricket, negotiation = LIVE_EPISODES
    requests = (cricket, negotiation | {"captain_preset": f"policy:{run.folder.name}"})
    with live_server(run.folder.parent, as_json) as url, httpx.Client(base_url=url, timeout=TIMEOUT_SECONDS) as http:
        started = [_start(http, request | ({"pace": 0.0} if leave else {})) for request in requests]
        pages = [url + str(episode["url"]) for episode in started]
        if not as_json:
            out.print("[bold]Live[/bold]: a cricket match, and a negotiation of the new policy")
            for page in [*pages, f"{url}/"]:
                out.print(f"  {page}", markup=False, highlight=False)
        if browser:
            for page in pages:
                webbrowser.open(page)
        if leave:
            ended = [_wait_for_end(http, str(episode["episode_id"])) for episode in started]
            if not as_json:
                for episode in ended:
                    out.print(f"  {episode['text']}", markup=False, highlight=False)
            return {"url": url, "episodes": ended}
        out.print("Start more episodes from the page. Press Ctrl-C to end the demo.")
        while True:
            time.sleep(1)


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Treats the first SIGTERM or SIGHUP (a closed terminal) like Ctrl-C and ignores the next ones."""
    kinds = (signal.SIGTERM, signal.SIGHUP)

    def interrupt(number: int, frame: Any) -> None:
        for kind in kinds:
            signal.signal(kind, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {kind: signal.signal(kind, interrupt) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


@contextmanager
def live_server(runs: Path, quiet: bool) -> Iterator[str]:
    """Runs `kibitz serve` on a free port with a temporary store, and yields its address."""
    with TemporaryDirectory(prefix="kibitz-demo-") as folder:
        command = [sys.executable, "-m", "kibitz", "serve", "--json", "--port", "0", "--max-episodes", "4"]
        command += ["--store", f"{folder}/episodes.db", "--runs", str(runs)]
        # its own session: Ctrl-C must reach only this process, which then ends the server
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        ) as process:
            assert process.stdout is not None
            try:
                with progress("starting the server", 1, quiet):
                    line = process.stdout.readline()
                if not line:
                    raise BadInput("The live server did not start; run `kibitz serve` to see why.")
                yield str(json.loads(line)["url"])
            finally:
                interrupt.finishing()
                process.terminate()
                try:
                    process.wait(15)
                except subprocess.TimeoutExpired:
                    process.kill()


def _start(http: httpx.Client, request: dict[str, Any]) -> dict[str, Any]:
    answer = http.post("/custom/start_episode", json=request)
    found: dict[str, Any] = answer.json()
    if answer.status_code != 202:
        raise BadInput(f"The server did not start {request['game']}: {found.get('error', answer.text)}")
    return found


def _wait_for_end(http: httpx.Client, episode_id: str) -> dict[str, Any]:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        found: dict[str, Any] = http.get(f"/episodes/{episode_id}").json()
        if found["status"] != "running":
            return {key: found[key] for key in ("episode_id", "game", "players", "status", "returns", "text")}
        time.sleep(0.2)
    raise BadInput(f"Episode {episode_id} did not end within {TIMEOUT_SECONDS:.0f} seconds.")
