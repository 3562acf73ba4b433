"""`kibitz study`: do hints help learning, and which settings learn best."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from kibitz.cli import output
from kibitz.cli.options import DEFAULT_GAME, JobOptions, Json, RayAddress, Workers
from kibitz.core.errors import BadInput

if TYPE_CHECKING:
    from kibitz.studies.reports.report import Report
    from kibitz.studies.study import Study

app = typer.Typer(help="Answer a question with many training runs.", no_args_is_help=True)

DEFAULTS: dict[str, Any] = {
    "algos": ["ppo", "reinforce"],
    "configs": [],
    "opponent": None,
    "seed": 0,
    "seeds": 5,
    "steps": None,
    "set": [],
}
HINT_DEFAULTS: dict[str, Any] = {
    "sources": ["none", "random", "shuffled", "expert"],
    "cadences": [1],
    "model_cadences": None,
    "model_seeds": None,
    "model_episodes": 64,
}

GameName = Annotated[
    str | None, typer.Option("--game", help=f"Game to play; default: the config's, else {DEFAULT_GAME}")
]
Out = Annotated[Path, typer.Option("--out", help="Folder of the study and its report")]
Algos = Annotated[str | None, typer.Option("--algos", help="Algorithms, separated by commas; default: ppo,reinforce")]
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", help="Config in YAML for an algorithm; repeatable; default: as in train"),
]
OpponentName = Annotated[str | None, typer.Option("--opponent", help="Opponent: a bot, expert, self or policy:RUN")]
FirstSeed = Annotated[int | None, typer.Option("--seed", min=0, help="First seed; default: 0")]
Seeds = Annotated[int | None, typer.Option("--seeds", min=1, help="Number of seeds of every cell; default: 5")]
Steps = Annotated[int | None, typer.Option("--steps", min=1, help="Steps of each learner; default: the config's")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the study in --out")]


@app.command("hints")
def hints(
    out: Out,
    game: GameName = None,
    algos: Algos = None,
    sources: Annotated[
        str | None,
        typer.Option("--sources", help="Sources of hints: none, random, shuffled, expert, llm:PRESET"),
    ] = None,
    cadences: Annotated[
        str | None, typer.Option("--cadences", help="A hint on reset and after every k steps, e.g. 1,4; default: 1")
    ] = None,
    model_cadences: Annotated[
        str | None, typer.Option("--model-cadences", help="The same for models; default: as --cadences")
    ] = None,
    model_seeds: Annotated[
        int | None, typer.Option("--model-seeds", min=1, help="Number of seeds for models; default: as --seeds")
    ] = None,
    model_episodes: Annotated[
        int | None,
        typer.Option("--model-episodes", min=0, help="Number of final episodes that hear a model; default: 64"),
    ] = None,
    config: Configs = None,
    opponent: OpponentName = None,
    seed: FirstSeed = None,
    seeds: Seeds = None,
    steps: Steps = None,
    options: JobOptions = None,
    resume: Resume = False,
    workers: Workers = None,
    ray: RayAddress = None,
    as_json: Json = False,
) -> None:
    """Train with every source of hints from the same seeds, and report which of them helped."""
    given = _given(game, algos, config, opponent, seed, seeds, steps, options) | {
        "sources": _names(sources),
        "cadences": _numbers("--cadences", cadences),
        "model_cadences": _numbers("--model-cadences", model_cadences),
        "model_seeds": model_seeds,
        "model_episodes": model_episodes,
    }
    _run("hints", out, given, DEFAULTS | HINT_DEFAULTS, resume, as_json, (workers, ray))


@app.command("sweep")
def sweep(
    out: Out,
    vary: Annotated[
        list[str] | None,
        typer.Option("--vary", help="Config key and its values: train.lr=1e-4,1e-3 or train.lr=1e-4..1e-2; repeatable"),
    ] = None,
    random: Annotated[
        int | None, typer.Option("--random", min=1, max=500, help="Number of random settings instead of the whole grid")
    ] = None,
    game: GameName = None,
    algos: Algos = None,
    config: Configs = None,
    opponent: OpponentName = None,
    seed: FirstSeed = None,
    seeds: Seeds = None,
    steps: Steps = None,
    options: JobOptions = None,
    resume: Resume = False,
    workers: Workers = None,
    ray: RayAddress = None,
    as_json: Json = False,
) -> None:
    """Train with many settings of config keys, and compare each with the config."""
    if not vary and not resume:
        raise BadInput("A sweep needs --vary, as in --vary train.lr=1e-4,1e-3.")
    given = _given(game, algos, config, opponent, seed, seeds, steps, options) | {"vary": vary, "random": random}
    defaults = DEFAULTS | {"algos": ["ppo"], "vary": [], "random": None}
    _run("sweep", out, given, defaults, resume, as_json, (workers, ray))


def _given(
    game: str | None, algos: str | None, config: list[str] | None, opponent: str | None, seed: int | None,
    seeds: int | None, steps: int | None, options: list[str] | None,
) -> dict[str, Any]:  # fmt: skip
    return {
        "game": game, "algos": _names(algos), "configs": config or None, "opponent": opponent, "seed": seed,
        "seeds": seeds, "steps": steps, "set": options or None,
    }  # fmt: skip


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _numbers(option: str, text: str | None) -> list[int] | None:
    names = _names(text)
    if names is not None and not (names and all(name.isdecimal() and 0 < int(name) < 10**6 for name in names)):
        raise BadInput(f"{option} is {text!r}; it should be whole numbers from 1, separated by commas.")
    return None if names is None else [int(name) for name in names]


def _run(
    kind: str, out: Path, given: dict[str, Any], defaults: dict[str, Any], resume: bool, as_json: bool,
    where: tuple[int | None, str | None],
) -> None:  # fmt: skip
    from kibitz.core.work.executor import executor_for
    from kibitz.studies.answers import study_report
    from kibitz.studies.cells import configured_game
    from kibitz.studies.study import Study

    known = {"kind": kind} | {name: value for name, value in given.items() if value is not None}
    if resume:
        study = Study.resumed(out, known)
    else:
        asked = defaults | known
        if "game" not in asked:
            asked["game"] = configured_game(asked["configs"], asked["set"]) or DEFAULT_GAME
        if kind == "hints" and asked["model_cadences"] is None:
            asked["model_cadences"] = asked["cadences"]
        study = Study.new(out, asked, sys.argv[1:])
    with executor_for(*where) as executor, _progress(study, quiet=as_json):
        finished = study.run(executor)
    if study.results():
        report = study_report(study)
        report.write(out)
        _print(report, out, as_json)
    if not finished:
        raise KeyboardInterrupt


def _print(report: Report, out: Path, as_json: bool) -> None:
    import json

    if as_json:
        print(json.dumps(json.loads(report.as_json())))
        return
    table = output.report_table(report, f"The whole report: {out / 'report.html'}")
    output.result({}, False, lambda _: table)
    for verdict in report.verdicts:
        output.out.print(Text(f"{'+' if verdict.shown else '-'} {verdict.text}"), soft_wrap=True)


@contextmanager
def _progress(study: Study, quiet: bool) -> Iterator[None]:
    """A bar over the steps of all cells, on standard error."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
               TimeRemainingColumn())  # fmt: skip
    steps = {cell.name: cell.job.train.num_train_steps for cell in study.cells}
    done = {result["name"]: steps[result["name"]] for result in study.results()}  # steps so far, by cell
    with Progress(*columns, console=output.err, transient=True, disable=quiet or not output.err.is_terminal) as bar:
        task = bar.add_task("compiling", total=sum(steps.values()), completed=sum(done.values()))

        def report(cell: Any, progress: dict[str, Any]) -> None:
            names = [other.name for other in study.cells]
            done[cell.name] = min(progress["step"], steps[cell.name])
            text = f"{cell.name} ({names.index(cell.name) + 1} of {len(names)})"
            bar.update(task, completed=sum(done.values()), description=text)

        study.report = report
        yield
