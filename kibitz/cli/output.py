"""What people see at the terminal: progress, tables, a game played by hand."""

from __future__ import annotations

import json
import math
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from kibitz.core.errors import BadInput
from kibitz.core.game import Game, seated
from kibitz.core.play.episode import play_episode
from kibitz.core.play.events import Event, spoken
from kibitz.core.play.resolve import rule_named
from kibitz.evaluate.packs import evaluate_pack
from kibitz.games import get_game, get_pack
from kibitz.players import player_named
from kibitz.players.human import HumanPlayer
from kibitz.train.run import Run

out = Console()
err = Console(stderr=True)

NAMES = {
    "return_mean": "return",
    "share_of_ceiling": "share of ceiling",
    "nash_product": "Nash product",
    "nash_share": "share of Nash product",
    "pareto": "Pareto-optimal deals",
}
HIDDEN = {"game", "player", "episodes", "seed", "seconds", "episodes_per_s", "opponent", "contexts", "return_ci95"}
HIDDEN |= {"pack", "pairs"}
UNFOLDED = 1000  # columns, where nobody has a window that says how many there are
SHARES = ("share", "agreement", "pareto")


@contextmanager
def progress(what: str, total: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, where that is a window; says that the first seconds go into compiling."""
    named = TextColumn("{task.description}", markup=False)
    columns = (named, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=quiet or not err.is_terminal) as bar:
        task = bar.add_task(f"{what} (compiling first)", total=total)

        def advance(count: int) -> None:
            bar.update(task, advance=count, description=what)

        yield advance


def result(found: dict[str, Any], as_json: bool, table: Callable[[dict[str, Any]], Table]) -> None:
    if as_json:
        print(json.dumps(found, allow_nan=False))
    else:
        (out if out.is_terminal else Console(width=UNFOLDED)).print(table(found), crop=False)


def titled(title: str, caption: str = "") -> Table:
    """A table whose title, which may name a file, is shown as it is: no markup, on one line."""
    return Table(title=Text(title, no_wrap=True, overflow="ignore"), caption=Text(caption) if caption else None)


def add_sides(table: Table, sides: tuple[dict[str, Any], ...]) -> None:
    """A column for each player, under its name as it is."""
    for side in sides:
        table.add_column(Text(str(side["player"])), justify="right")


def facts(found: dict[str, Any], as_json: bool) -> None:
    """A few numbers, one to a line."""
    if as_json:
        print(json.dumps(found, allow_nan=False))
        return
    for name, value in found.items():
        print(f"{name.replace('_', ' ')}: {value if isinstance(value, str) else number(name, value)}")


def number(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(number(name, part) for part in value)
    if name.startswith(SHARES) or name.endswith("_share"):
        return f"{100 * value:.1f} %"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"


def evaluation_table(found: dict[str, Any]) -> Table:
    title = f"{found['game']}: {found['episodes']:,} episodes, {found['contexts']} contexts, seed {found['seed']}"
    table = titled(title, f"{found['episodes_per_s']:,.0f} episodes a second")
    table.add_column("")
    other = found["opponent"]
    add_sides(table, (found, other))
    for name in (key for key in found if key not in HIDDEN):
        shown = [number(name, side[name]) for side in (found, other)]
        if name == "return_mean":
            shown = [f"{text} ± {half(side)}" for text, side in zip(shown, (found, other), strict=True)]
        table.add_row(NAMES.get(name, name.replace("_", " ")), *shown)
    return table


def pack_evaluation(
    name: str, pack_name: str, player: str, opponent: str, episodes: int | None, seed: int, as_json: bool
) -> None:
    """Evaluates on a pack with a bar, and prints what came of it."""
    game, pack = get_game(name), get_pack(name, pack_name)
    for one in (player, opponent):
        player_named(game, one)  # complains before anything is shown or played
    with progress(f"{player} v {opponent}, {pack.name}", episodes or pack.matches, quiet=as_json) as advance:
        found = evaluate_pack(game, pack, player, opponent, episodes, seed, advance)
    result(found, as_json, pack_table)


def pack_table(found: dict[str, Any]) -> Table:
    title = f"{found['game']}, pack {found['pack']}: {found['pairs']:,} scenarios, each from both sides"
    table = titled(title, f"{found['episodes']:,} matches, {found['episodes_per_s']:,.0f} a second")
    table.add_column("")
    sides = (found, found["opponent"])
    add_sides(table, sides)
    for name in (key for key in found if key not in HIDDEN and not key.endswith("_ci95")):
        shown = [f"{side[name]:.4f}" if name.startswith("regret") else number(name, side[name]) for side in sides]
        if name == "win_share":
            shown = [f"{text} ± {half(side, 'win_share', 100)}" for text, side in zip(shown, sides, strict=True)]
        table.add_row(NAMES.get(name, name.replace("_", " ")), *shown)
    return table


def half(side: dict[str, Any], name: str = "return", times: float = 1.0) -> str:
    low, high = side[f"{name}_ci95"]
    return "?" if low is None else f"{times * (high - low) / 2:.{1 if times > 1 else 2}f}"


def bench_table(found: dict[str, Any]) -> Table:
    table = Table(title="Steps a second", caption=f"single step: median {found['single_step_us']:.0f} us")
    table.add_column("what")
    table.add_column("steps/s", justify="right")
    for name, rate in found["steps_per_s"].items():
        table.add_row(name, "not installed" if rate is None else f"{rate:,.0f}")
    table.add_row("batched / single", f"{found['ratio_batched_to_single']:,.0f} x")
    return table


def train_bench_table(found: dict[str, Any]) -> Table:
    table = Table(title="Training: steps a second, rollout and update together")
    table.add_column("what")
    table.add_column("", justify="right")
    for name, rate in found["steps_per_s"].items():
        table.add_row(name, "not installed" if rate is None else f"{rate:,.0f}")
    for name in ("ratio_to_sb3_best", "ratio_to_sb3_seed_default"):
        table.add_row(name.replace("_", " "), "-" if found[name] is None else f"{found[name]:,.0f} x")
    goal = found["time_to_95_percent"]
    reached = "not reached" if goal["seconds"] is None else f"{goal['seconds']:,.1f} s"
    table.add_row("to 95 % of the reference", f"{reached}, {goal['steps']:,} steps")
    return table


def play_at_terminal(game: Game, options: Any, opponent: str, seed: int | None, as_json: bool) -> None:
    """A person in seat 0. With `--json` the talk goes to standard error and the result to standard output."""
    if opponent == "human":
        raise BadInput("The opponent cannot be human too: one terminal has one keyboard.")
    console = err if as_json else out

    def ask(prompt: str) -> str:
        console.print(prompt, end="", markup=False)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line

    def tell(text: str) -> None:
        console.print(text, markup=False, highlight=False)

    me, other = HumanPlayer(game, ask, tell), player_named(game, opponent)
    rule = rule_named(game, opponent)
    settings = seated(options.settings(), {1: rule} if rule else {})

    def watch(event: Event) -> None:
        if event.type == "episode.started":
            tell(f"You are seat 0, {other.name} is seat 1.")
        elif line := spoken(event):
            tell(line)

    tell("Setting up the table ...")
    try:
        drawn = secrets.randbelow(2**31) if seed is None else seed
        played = play_episode(game, settings, [me, other], seed=drawn, observers=(watch,))
    except EOFError:
        raise BadInput("The input ended before the game did; answer every question to finish it.") from None
    if as_json:
        print(json.dumps(dict(played.events[-1].payload) | {"players": ["human", opponent]}, allow_nan=False))
    else:
        ceiling = played.scores["ceiling"][0]
        tell(f"You made {played.returns[0]:g} of the {ceiling:g} that were possible (seed {drawn}).")


class WithCurve(Progress):
    """A progress bar that draws under itself what it has been told."""

    def __init__(self, *columns: Any, **more: Any) -> None:
        self.points: list[tuple[float, float]] = []  # share of the way, share of the ceiling
        super().__init__(*columns, **more)

    def get_renderables(self) -> Iterator[Any]:
        yield from super().get_renderables()
        if len(self.points) > 1 and self.console.is_terminal:
            yield Text(curve(self.points))


def curve(points: list[tuple[float, float]], width: int = 60, height: int = 8) -> str:
    """Shares in 0..1 as columns of eighths, from the lowest one up to 100 %, so far as it has come."""
    blocks = " ▁▂▃▄▅▆▇█"
    floor = max(0.0, math.floor(10 * min(value for _, value in points) - 0.5) / 10)
    tall = []
    for column in range(width):
        past = [value for way, value in points if way <= (column + 1) / width]
        reached = bool(past) and points[-1][0] > column / width
        tall.append(round(8 * height * (past[-1] - floor) / (1 - floor)) if reached else 0)
    rows = []
    for row in reversed(range(height)):
        label = f"{100 * (floor + (row + 1) / height * (1 - floor)):4.0f} % " if row % 4 == 3 else " " * 7
        rows.append(label + "".join(blocks[min(8, max(0, top - 8 * row))] for top in tall))
    return "\n".join(
        [*rows, f"{100 * floor:4.0f} % " + "─" * width, "share of the ceiling, greedy acts on fresh games"]
    )


def train(run: Run, resume: bool, as_json: bool, show: bool = True) -> dict[str, Any]:
    """A bar with return, agreement and rate and the curve while it trains; then where the run lies and how it did."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=12),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[told]}"),
        TimeRemainingColumn(),
    )
    with WithCurve(*columns, console=err, disable=as_json) as bar:
        total = run.job.train.num_train_steps
        task = bar.add_task("compiling", total=total, told="")

        def report(told: dict[str, Any]) -> None:
            text = f"return {told['return']:.2f}" if "return" in told else "first steps"
            if "eval_share_of_ceiling" in told:
                text += f", {100 * told['eval_share_of_ceiling']:.1f} % of ceiling"
                bar.points.append((told["step"] / total, told["eval_share_of_ceiling"]))
            if "eval_agreement" in told:
                text += f", agreed {100 * told['eval_agreement']:.0f} %"
            text += f", {told['steps_per_s']:,.0f} steps/s" if "steps_per_s" in told else ""
            text += f", {told['hints_per_s']:,.0f} hints/s" if "hints_per_s" in told else ""
            bar.update(task, completed=min(told["step"], total), description="training", told=text)

        run.report = report
        found = run.train(resume)
    if show:
        result(found, as_json, training_table)
    return found


def training_table(found: dict[str, Any]) -> Table:
    ended = "finished" if found["finished"] else "stopped; go on with --resume"
    table = titled(f"{found['run']}: {ended}", "; ".join(found["notes"]))
    table.add_column("")
    table.add_column("mean of seeds" if found["seeds"] > 1 else "value", justify="right")
    table.add_row("adviser", Text(found["adviser"]))
    for name in ("steps", "seconds", "compile_seconds", "train_seconds", "steps_per_s"):
        table.add_row(name.replace("_", " "), number(name, found[name]))
    for name, values in found.items():
        known = [value for value in values if isinstance(value, float)] if isinstance(values, list) else []
        if known:
            table.add_row(NAMES.get(name, name.replace("_", " ")), number(name, sum(known) / len(known)))
    return table
