"""`kibitz demo`: the whole product in a few minutes, for eyes or, with `--exit`, for machines."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from rich.table import Table

from kibitz.cli.output import half, number, out, progress, result, train
from kibitz.core.errors import BadInput
from kibitz.core.game import Game, seated
from kibitz.core.play.episode import play_episode
from kibitz.core.play.events import spoken
from kibitz.evaluate import match
from kibitz.games import get_game
from kibitz.players import player_named
from kibitz.train.run import Run
from kibitz.train.start import prepare

TOLD = 3  # the seed of the negotiation that is told: it takes a few rounds
PATIENCE = 120.0  # seconds for the server to come up, and for its episodes to end with `--exit`


def demo(steps: int, episodes: int, browser: bool, leave: bool, as_json: bool) -> None:
    """A negotiation told, a negotiator trained, players compared, then the cockpit on two live episodes."""
    if find_spec("uvicorn") is None:
        raise BadInput('The demo shows the cockpit, which needs the extra live: pip install "kibitz[live]".')
    game = get_game("deal_or_no_deal")
    if not as_json:
        _tell_one(game)
        out.print("[bold]A negotiator learns[/bold] by PPO, without hints, against that partner")
    often = [f"logging.eval_every={max(1, steps // 20)}"]  # a curve needs points
    run = prepare(None, None, "configs/ppo_fast.yaml", None, None, None, None, steps, None, False, often)
    found: dict[str, Any] = {"episodes": episodes, "training": train(run, False, as_json, show=False)}
    found["players"] = _compared(game, run, episodes, as_json)
    if not as_json:
        out.print(_table(found))
        out.print(f"Its run, with the learning curve: {run.folder}", markup=False, highlight=False)
    with ended_by_signals():
        found["live"] = _watch(run, browser, leave, as_json)
    if as_json:
        result(found, as_json, _table)


def _tell_one(game: Game) -> None:
    rules = {0: game.rule("bayes"), 1: game.rule("heuristic")}
    out.print("[bold]A negotiation[/bold]: the Bayesian player (seat 0) and the heuristic partner (seat 1)")
    with progress("dealing", 1, quiet=False):
        players = [player_named(game, rule.name) for rule in rules.values()]
        played = play_episode(game, seated(game.options().settings(), rules), players, seed=TOLD)
    for event in played.events:
        if event.type == "episode.started":
            for seat, secret in event.payload["private"].items():
                worth = ", ".join(map(str, secret["utilities"]))
                out.print(f"  to seat {seat} a book, a hat and a ball are worth {worth}", highlight=False)
        elif line := spoken(event):
            out.print(f"  {line}", markup=False, highlight=False)
    out.print()


def _compared(game: Game, run: Run, episodes: int, as_json: bool) -> dict[str, Any]:
    """The fresh policy beside those who need no training, against the partner it trained with."""
    found = {}
    for name in ("random", "heuristic", f"policy:{run.folder}", "bayes"):
        short = "trained" if name.startswith("policy:") else name
        runs = match.runs_of(game, name, "heuristic")
        with progress(f"{short} v heuristic", episodes * runs, quiet=as_json) as advance:
            found[short] = match.evaluate(game, game.options(), name, "heuristic", episodes, 0, advance)
    return found


def _table(found: dict[str, Any]) -> Table:
    table = Table(title=f"Against the heuristic partner, {found['episodes']:,} episodes each")
    for name in ("player", "return", "of ceiling", "agreed", "Pareto deals", "turns"):
        table.add_column(name, justify="left" if name == "player" else "right")
    for name, side in found["players"].items():
        table.add_row(
            name,
            f"{side['return_mean']:.2f} ± {half(side)}",
            number("share", side["share_of_ceiling"]),
            number("agreement", side["agreement"]),
            number("pareto", side["pareto"]),
            f"{side['turns']:.1f}",
        )
    return table


def _watch(run: Run, browser: bool, leave: bool, as_json: bool) -> dict[str, Any]:
    """A server, a cricket match and a negotiation of the fresh policy; until Ctrl-C, or until both have ended."""
    pace = {"cricket": 0.0, "deal_or_no_deal": 0.0} if leave else {"cricket": 1.2, "deal_or_no_deal": 2.5}
    wishes = (
        {"game": "cricket", "captain_preset": "balanced", "opponent_choice": "aggressive", "max_overs": 5},
        {
            "game": "deal_or_no_deal",
            "captain_preset": f"policy:{run.folder.name}",
            "opponent_choice": "heuristic",
            "open": True,
        },
    )
    with _server(run.folder.parent, as_json) as url, httpx.Client(base_url=url, timeout=PATIENCE) as http:
        started = [_begin(http, wish | {"pace": pace[str(wish["game"])]}) for wish in wishes]
        pages = [url + str(episode["url"]) for episode in started]
        if not as_json:
            out.print("[bold]Live[/bold]: a cricket match and a negotiation of the fresh policy")
            for page in [*pages, f"{url}/custom"]:
                out.print(f"  {page}", markup=False, highlight=False)
        if browser:
            for page in pages:
                webbrowser.open(page)
        if leave:
            ended = [_ended(http, str(episode["episode_id"])) for episode in started]
            if not as_json:
                for episode in ended:
                    out.print(f"  {episode['text']}", markup=False, highlight=False)
            return {"url": url, "episodes": ended}
        out.print("Start more from the page. Ctrl-C ends the demo.")
        try:
            while True:
                time.sleep(1)
        except KeyboardInterrupt:
            out.print("The demo ends.")
        return {"url": url}


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM, and a terminal that is closed, end what is inside as Ctrl-C does; once is enough."""
    kinds = (signal.SIGTERM, signal.SIGHUP)

    def end(number: int, frame: Any) -> None:
        for kind in kinds:
            signal.signal(kind, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {kind: signal.signal(kind, end) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


@contextmanager
def _server(runs: Path, quiet: bool) -> Iterator[str]:
    """`kibitz serve` on a free port with a store of its own that goes with it; its address."""
    with TemporaryDirectory(prefix="kibitz-demo-") as folder:
        command = [sys.executable, "-m", "kibitz", "serve", "--json", "--port", "0", "--max-episodes", "4"]
        command += ["--store", f"{folder}/episodes.db", "--runs", str(runs)]
        # a session of its own: Ctrl-C is for us, and we end it in our own time
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
        try:
            assert process.stdout is not None
            with progress("the server starts", 1, quiet):
                line = process.stdout.readline()
            if not line:
                raise BadInput("The live server did not start; `kibitz serve` says why.")
            yield str(json.loads(line)["url"])
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _begin(http: httpx.Client, wish: dict[str, Any]) -> dict[str, Any]:
    answer = http.post("/custom/start_episode", json=wish)
    found: dict[str, Any] = answer.json()
    if answer.status_code != 202:
        raise BadInput(f"The server did not start {wish['game']}: {found.get('error', answer.text)}")
    return found


def _ended(http: httpx.Client, episode_id: str) -> dict[str, Any]:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        found: dict[str, Any] = http.get(f"/episodes/{episode_id}").json()
        if found["status"] != "running":
            return {key: found[key] for key in ("episode_id", "game", "players", "status", "returns", "text")}
        time.sleep(0.2)
    raise BadInput(f"Episode {episode_id} did not end within {PATIENCE:.0f} seconds.")
