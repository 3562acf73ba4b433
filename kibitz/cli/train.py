"""`kibitz train`: the command, and a progress bar that draws the learning curve."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from kibitz.cli import output
from kibitz.cli.options import DEFAULT_GAME, JobOptions, Json

if TYPE_CHECKING:
    from kibitz.train.run.run import Run


def train(
    algo: Annotated[str | None, typer.Option("--algo", help="Algorithm: ppo, reinforce or supervised")] = None,
    hint: Annotated[
        str | None, typer.Option("--hint", help="Source of hints: none, random, llm, expert or shuffled")
    ] = None,
    config: Annotated[
        str | None,
        typer.Option("--config", help="Config file in YAML, as in `kibitz list configs`; default: ppo_fast.yaml"),
    ] = None,
    game: Annotated[
        str | None, typer.Option("--game", help="Game to train on; overrides env.id; see `kibitz list games`")
    ] = None,
    opponent: Annotated[
        str | None,
        typer.Option("--opponent", help="Opponent: a bot of `kibitz list players`, expert, self or policy:RUN"),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Seed of the first learner")] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help="Number of learners to train in one program")
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="Number of steps; overrides train.num_train_steps")
    ] = None,
    out: Annotated[str | None, typer.Option("--out", help="Folder of the run")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out")] = False,
    hosts: Annotated[
        str | None,
        typer.Option("--hosts", help="Hosts that train together, separated by commas; run the same command on each"),
    ] = None,
    options: JobOptions = None,
    as_json: Json = False,
) -> None:
    """Train a policy and write metrics, checkpoints and the learning curve to the run's folder."""
    from kibitz.core.xla.hosts import joined

    with joined(hosts):  # before anything else uses JAX
        from kibitz.train.run.folder import own_folder

        with own_folder(out, resume) as folder:
            found = _train(
                algo=algo,
                hint=hint,
                config=config,
                game=game or (None if config or resume or _names_game(options) else DEFAULT_GAME),
                opponent=opponent,
                seed=seed,
                seeds=seeds,
                steps=steps,
                out=folder,
                resume=resume,
                options=options or [],
                as_json=as_json,
            )
    if not found["finished"]:
        raise KeyboardInterrupt


def _train(*, resume: bool, as_json: bool, **arguments: Any) -> dict[str, Any]:
    """Trains, and prints the result in the first of several processes."""
    from kibitz.core.xla import hosts
    from kibitz.core.xla.stored import traced_programs_kept
    from kibitz.train.llm_hints.plan import announcement
    from kibitz.train.start import prepare

    with hosts.all_or_none():
        run = prepare(resume=resume, **arguments)
    if costs := announcement(run.phases):
        output.err.print(costs, markup=False, highlight=False, soft_wrap=True)
    with traced_programs_kept():
        found = train_with_progress(run, resume, quiet=as_json or not hosts.is_first())
    if hosts.is_first():
        output.result(found, as_json, output.training_table)
    return found


def _names_game(options: list[str] | None) -> bool:
    return any(option.startswith("env.id=") for option in options or [])


def train_with_progress(run: Run, resume: bool, quiet: bool) -> dict[str, Any]:
    """Trains the run and shows return, agreement, rate and the learning curve on standard error."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=12),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[summary]}"),
        TimeRemainingColumn(),
    )
    with CurveProgress(*columns, console=output.err, disable=quiet) as bar:
        total = run.job.train.num_train_steps
        task = bar.add_task("compiling", total=total, summary="")

        def report(metrics: dict[str, Any]) -> None:
            if metrics.get("eval_share_of_ceiling") is not None:  # a game may have no ceiling
                bar.points.append((metrics["step"] / total, metrics["eval_share_of_ceiling"]))
            done, doing = min(metrics["step"], total), "training"
            if "hints_wanted" in metrics:
                doing = f"asking {metrics['hints_answered']:,} of {metrics['hints_wanted']:,}"
            bar.update(task, completed=done, description=doing, summary=_summary(metrics))

        run.report = report
        return run.train(resume)


def _summary(metrics: dict[str, Any]) -> str:
    parts = [f"return {metrics['return']:.2f}" if "return" in metrics else "first steps"]
    if metrics.get("eval_share_of_ceiling") is not None:
        heard = "" if metrics.get("hints_from", "none") == "none" else " with hints"
        parts.append(f"{100 * metrics['eval_share_of_ceiling']:.1f} % of ceiling{heard}")
    if metrics.get("eval_agreement") is not None:
        parts.append(f"agreed {100 * metrics['eval_agreement']:.0f} %")
    if "steps_per_s" in metrics:
        parts.append(f"{metrics['steps_per_s']:,.0f} steps/s")
    if "hints_per_s" in metrics:
        parts.append(f"{metrics['hints_per_s']:,.0f} hints/s")
    if "judge_per_s" in metrics:
        parts.append(f"{metrics['judge_per_s']:,.0f} judged/s")
    return ", ".join(parts)


class CurveProgress(Progress):
    """A progress bar that draws the learning curve below itself."""

    def __init__(self, *columns: Any, **more: Any) -> None:
        self.points: list[tuple[float, float]] = []  # share of the steps, share of the ceiling
        super().__init__(*columns, **more)

    def get_renderables(self) -> Iterator[Any]:
        yield from super().get_renderables()
        if len(self.points) > 1 and self.console.is_terminal:
            yield Text(output.curve(self.points))
