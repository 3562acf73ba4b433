"""What people see at the terminal: progress bars, tables and the learning curve. Imports nothing heavy."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from kibitz.studies.reports.report import Report

out = Console()
err = Console(stderr=True)

LABELS = {
    "return_mean": "return",
    "share_of_ceiling": "share of ceiling",
    "ceiling_gap": "gap to the ceiling",
    "nash_product": "Nash product",
    "nash_share": "share of Nash product",
    "pareto": "Pareto-optimal deals",
}
# keys of a result that a table shows in its title or caption, or not at all
NOT_ROWS = {"game", "player", "episodes", "seed", "seconds", "episodes_per_s", "opponent", "contexts", "return_ci95"}
NOT_ROWS |= {"pack", "pairs", "interrupted"}
# what asking players on the host cost and how it failed; no rows if all of it is zero
COST_ROWS = ("fallbacks", "fallback_share", "failures", "answered_by", "prompt_tokens", "completion_tokens", "money")
WITHOUT_HINTS = "without_hints_"  # prefix of measures that were played without hints
PIPE_COLUMNS = 1000  # table width without a terminal, so that no line wraps
PERCENT_PREFIXES = ("share", "agreement", "pareto")


@contextmanager
def progress(what: str, total: int | None, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error if that is a terminal; its label mentions compiling until the first advance.

    Without a total, which is for work that compiles nothing, it shows the count alone.
    """
    label = TextColumn("{task.description}", markup=False)
    columns = (label, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=quiet or not err.is_terminal) as bar:
        task = bar.add_task(what if total is None else f"{what} (compiling first)", total=total)

        def advance(count: int) -> None:
            bar.update(task, advance=count, description=what)

        yield advance


def result(found: dict[str, Any], as_json: bool, table: Callable[[dict[str, Any]], Table]) -> None:
    """Prints a result as one JSON object or as a table."""
    if as_json:
        print(json.dumps(found, allow_nan=False))
    else:
        (out if out.is_terminal else Console(width=PIPE_COLUMNS)).print(table(found), crop=False)


def titled(title: str, caption: str = "") -> Table:
    """A table whose title, which may contain a file name, is printed verbatim on one line."""
    return Table(title=Text(title, no_wrap=True, overflow="ignore"), caption=Text(caption) if caption else None)


def add_sides(table: Table, sides: tuple[dict[str, Any], ...]) -> None:
    """One column per player, headed by its verbatim name."""
    for side in sides:
        table.add_column(Text(str(side["player"])), justify="right")


def facts(found: dict[str, Any], as_json: bool) -> None:
    """Prints a few values, one per line, or as one JSON object."""
    if as_json:
        print(json.dumps(found, allow_nan=False))
        return
    for name, value in found.items():
        print(f"{name.replace('_', ' ')}: {value if isinstance(value, str) else number(name, value)}")


def values_table(title: str) -> Callable[[dict[str, Any]], Table]:
    """A function that makes a table of two columns, names and values, under a verbatim title."""

    def make(found: dict[str, Any]) -> Table:
        table = Table(title=Text(title), show_header=False)
        for name, value in found.items():
            if isinstance(value, dict):
                shown = kinds(value)
            else:
                shown = "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
            table.add_row(name.replace("_", " "), Text(shown))
        return table

    return make


def report_table(report: Report, caption: str) -> Table:
    """The first table of a report."""
    part, table = report.tables[0], titled(report.title, caption)
    for column in part.columns:
        table.add_column(column.name, justify="left" if column.kind == "text" else "right")
    for row in part.shown():
        table.add_row(*map(Text, row))
    return table


def number(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(number(name, part) for part in value)
    if isinstance(value, dict):
        return kinds(value)
    if isinstance(value, str):
        return value
    if name == "money":
        return f"{value:.6f}"
    if name.startswith(PERCENT_PREFIXES) or name.endswith("_share"):
        return f"{100 * value:.1f} %"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"


def kinds(counts: dict[str, int]) -> str:
    """Counts by kind of failure."""
    return ", ".join(f"{kind} {count:,}" for kind, count in counts.items()) or "-"


def spent(found: dict[str, Any]) -> str:
    """What asking a player cost and how often it failed, as a sentence; empty if it cost nothing and never failed."""
    tokens = found["prompt_tokens"] + found["completion_tokens"]
    parts = [f"used {tokens:,} tokens ({number('money', found['money'])} in money)"] if tokens else []
    if found["fallbacks"]:
        parts.append(f"failed on {found['fallbacks']:,} turns ({kinds(found['failures'])}), which the fallback played")
    return " and ".join(parts)


def measure_rows(sides: tuple[dict[str, Any], ...]) -> list[str]:
    """The keys that a table shows, in their order."""
    free = not any(side.get(name) for side in sides for name in COST_ROWS)
    return [
        key for key in sides[0] if key not in NOT_ROWS and not key.endswith("_ci95") and not (free and key in COST_ROWS)
    ]


def early(found: dict[str, Any]) -> str:
    return " before Ctrl-C" if found.get("interrupted") else ""


def evaluation_table(found: dict[str, Any]) -> Table:
    episodes = f"{found['episodes']:,} episodes{early(found)}"
    title = f"{found['game']}: {episodes}, {found['contexts']} contexts, seed {found['seed']}"
    rate = found["episodes_per_s"]
    table = titled(title, f"{rate:,.{1 if rate < 10 else 0}f} episodes per second")
    table.add_column("")
    other = found["opponent"]
    add_sides(table, (found, other))
    for name in measure_rows((found, other)):
        shown = [number(name, side.get(name)) for side in (found, other)]
        if name == "return_mean":
            shown = [text + interval(side) for text, side in zip(shown, (found, other), strict=True)]
        table.add_row(LABELS.get(name, name.replace("_", " ")), *map(Text, shown))
    return table


def pack_table(found: dict[str, Any]) -> Table:
    title = f"{found['game']}, pack {found['pack']}: {found['pairs']:,} scenarios, each from both sides"
    table = titled(title, f"{found['episodes']:,} matches{early(found)}, {found['episodes_per_s']:,.0f} per second")
    table.add_column("")
    sides = (found, found["opponent"])
    add_sides(table, sides)
    for name in measure_rows(sides):
        shown = [f"{side[name]:.4f}" if name.startswith("regret") else number(name, side.get(name)) for side in sides]
        if name == "win_share":
            shown = [text + interval(side, name, 100) for text, side in zip(shown, sides, strict=True)]
        table.add_row(LABELS.get(name, name.replace("_", " ")), *map(Text, shown))
    return table


def interval(side: dict[str, Any], name: str = "return", times: float = 1.0) -> str:
    """A measure's 95 % interval; empty if one episode or pair gives none."""
    low, high = side[f"{name}_ci95"]
    digits = 1 if times > 1 else 2
    return "" if low is None else f" ({times * low:.{digits}f} to {times * high:.{digits}f})"


def bench_table(found: dict[str, Any]) -> Table:
    table = Table(title="Steps per second", caption=f"single step: median {found['single_step_us']:.0f} us")
    table.add_column("subject")
    table.add_column("steps/s", justify="right")
    for name, rate in found["steps_per_s"].items():
        table.add_row(name, "not installed" if rate is None else f"{rate:,.0f}")
    table.add_row("batched / single", f"{found['ratio_batched_to_single']:,.0f} x")
    return table


def train_bench_table(found: dict[str, Any]) -> Table:
    table = Table(title="Training: steps per second, rollout and update together")
    table.add_column("subject")
    table.add_column("", justify="right")
    for name, rate in found["steps_per_s"].items():
        table.add_row(name, "not installed" if rate is None else f"{rate:,.0f}")
    for name in ("ratio_to_sb3_best", "ratio_to_torch_ppo", "ratio_to_torchrl", "ratio_to_sb3_seed_default"):
        table.add_row(name.replace("_", " "), "-" if found[name] is None else f"{found[name]:,.0f} x")
    goal = found["time_to_95_percent"]
    reached = "not reached" if goal["seconds"] is None else f"{goal['seconds']:,.1f} s"
    table.add_row("to 95 % of the reference", f"{reached}, {goal['steps']:,} steps")
    return table


def gpu_bench_table(found: dict[str, Any]) -> Table:
    begun = found["start_s"]
    caption = f"start: {begun['first']:.1f} s, with cached programs {begun['warm']:.1f} s"
    if found["fused_unsupported"]:
        caption += f"\n{found['fused_unsupported']}"
    table = Table(title=Text(f"Steps per second on {found['device']}"), caption=Text(caption))
    rows = found["steps_per_s"]
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    table.add_column("")
    for name in columns:
        table.add_column(name.replace("_", " "), justify="right")
    for name, row in rows.items():
        table.add_row(name, *("-" if row.get(column) is None else f"{row[column]:,.0f}" for column in columns))
    return table


def gap_table(found: dict[str, Any]) -> Table:
    means = found["mean_return"]
    title = f"Mean return: {found['reference']} {means['reference']:.3f}, player {means['player']:.3f}"
    table = Table(title=Text(title), caption=f"{found['episodes']:,} episodes; 95 % intervals")
    table.add_column("the player loses")
    table.add_column("points", justify="right")
    rows = [(f"with act {number}", loss) for number, loss in enumerate(found["loss_by_act"], 1)]
    quarters = enumerate(found.get("loss_by_quarter_of_ceilings", ()), 1)
    rows += [(f"in quarter {number} of the ceilings", loss) for number, loss in quarters]
    for name, loss in [*rows, ("in all", found["loss"])]:
        low, high = loss["ci95"]
        table.add_row(name, f"{loss['mean']:.3f} ({low:.3f} to {high:.3f})")
    return table


def curve(points: list[tuple[float, float]], width: int = 60, height: int = 8) -> str:
    """Shares in 0..1 as block characters, from just below the lowest up to 100 %, as far as training has come."""
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
    return "\n".join([*rows, f"{100 * floor:4.0f} % " + "─" * width, "share of the ceiling, greedy acts in new games"])


def training_table(found: dict[str, Any]) -> Table:
    ended = "finished" if found["finished"] else "stopped; continue with --resume"
    table = titled(f"{found['run']}: {ended}", "; ".join(found["notes"]))
    table.add_column("")
    table.add_column("mean of seeds" if found["seeds"] > 1 else "value", justify="right")
    both = any(name.startswith(WITHOUT_HINTS) for name in found)
    if both:
        table.add_column("without hints", justify="right")
    table.add_row("adviser", Text(found["adviser"]))
    table.add_row("hints in evaluations from", Text(found["hints_from"]))
    for name in ("steps", "seconds", "compile_seconds", "train_seconds", "steps_per_s"):
        table.add_row(name.replace("_", " "), number(name, found[name]))
    for name, value in _hint_costs(found.get("hints")).items():
        table.add_row(name.replace("_", " "), Text(number(name, value)))
    for name, values in found.items():
        if isinstance(values, list) and not name.startswith(WITHOUT_HINTS) and (shown := _mean(name, values)):
            alone = [_mean(name, found[WITHOUT_HINTS + name])] if both else []
            table.add_row(LABELS.get(name, name.replace("_", " ")), shown, *alone)
    return table


def _mean(name: str, values: list[Any]) -> str:
    """The mean over seeds; empty where no seed has a number."""
    known = [value for value in values if isinstance(value, float)]
    return number(name, sum(known) / len(known)) if known else ""


def _hint_costs(usage: dict[str, Any] | None) -> dict[str, Any]:
    """What a run's questions to a language model cost and how they failed."""
    if usage is None:
        return {}
    failures = {kind: count for kind, count in usage["failures"].items() if count}
    counts = {"hints_given": usage["asked"] - usage["failed"], "hints_from_the_cache": usage["hits"]}
    counts |= {"hints_failed": usage["failed"], "failures": failures, "requests_sent": usage["calls"]}
    return counts | {name: usage[name] for name in ("prompt_tokens", "completion_tokens", "money")}
