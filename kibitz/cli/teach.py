"""`kibitz teach`: examples for a language model, training on them, and export."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from kibitz.cli import output
from kibitz.cli.options import (
    DEFAULT_GAME,
    Contexts,
    GameName,
    GameOptions,
    Json,
    Opponent,
    PromptPath,
    RayAddress,
    Seed,
    read_game,
)
from kibitz.cli.options import Workers as SharedBy
from kibitz.core.errors import BadInput

app = typer.Typer(help="Teach a language model to play a game and to advise.", no_args_is_help=True)


@app.command("data")
def data(
    out: Annotated[str, typer.Option("--out", help="File of JSON Lines to write")],
    rows: Annotated[int, typer.Option("--rows", min=1, help="Number of rows")] = 10_000,
    game: GameName = DEFAULT_GAME,
    expert: Annotated[
        list[str] | None, typer.Option("--expert", help="Expert, or NAME=WEIGHT for each of a mix; default: reference")
    ] = None,
    opponent: Annotated[
        list[str] | None, typer.Option("--opponent", help="Opponent, or NAME=WEIGHT for each of several")
    ] = None,
    student: Annotated[
        str | None, typer.Option("--student", help="Player that plays instead of the expert, which only answers")
    ] = None,
    random_share: Annotated[
        float, typer.Option("--random-share", min=0, max=1, help="Share of random acts in every second episode")
    ] = 0.5,
    min_return: Annotated[
        float | None, typer.Option("--min-return", help="Keep only episodes that earn at least this")
    ] = None,
    pairs: Annotated[bool, typer.Option("--pairs", help="Write pairs of chosen and rejected answers")] = False,
    min_margin: Annotated[
        float, typer.Option("--min-margin", min=0, help="Points that a rejected answer must cost, for --pairs")
    ] = 0.0,
    style: Annotated[
        list[str] | None,
        typer.Option(
            "--style", help="Write judgements of this style instead: whole episodes with yes or no; repeatable"
        ),
    ] = None,
    from_store: Annotated[
        str | None,
        typer.Option("--from-store", help="Read stored episodes instead: SQLite file, postgresql://..., or events"),
    ] = None,
    contexts: Contexts = "uniform",
    seed: Seed = 0,
    prompt: PromptPath = None,
    options: GameOptions = None,
    workers: SharedBy = None,
    ray: RayAddress = None,
    as_json: Json = False,
) -> None:
    """Write positions and an expert's answers, or episodes and their styles, as chat messages for training."""
    from kibitz.advice.judge import judge_prompt
    from kibitz.core.work.executor import executor_for
    from kibitz.llm.answers.prompt import Prompt
    from kibitz.teach.examples.data import Lesson, write_rows

    record, chosen = read_game(game, options, contexts)
    lesson = Lesson(
        expert=_one_or_mix(expert, "--expert"),
        opponents=_weights(opponent, "--opponent") or None,
        student=student or "",
        random_share=random_share,
        min_return=min_return,
        pairs=pairs,
        styles=tuple(record.styles.names(style, record.name)) if style else (),
        min_margin=min_margin,
        stored=from_store or "",
        seed=seed,
    )
    if style and (pairs or student or expert or from_store or min_return is not None):
        raise BadInput("--style cannot be combined with --pairs, --student, --expert, --from-store or --min-return.")
    template = None if prompt is None else judge_prompt(prompt) if style else Prompt.read(prompt)
    with (
        executor_for(workers, ray) as executor,
        output.progress("rows", rows, quiet=as_json) as advance,
        _writing(out),
    ):
        found = write_rows(Path(out), record, chosen, lesson, rows, template, advance, executor)
    output.result(found, as_json, output.values_table("Rows"))


def _one_or_mix(given: list[str] | None, flag: str) -> str | dict[str, float]:
    """A name, or several by weight."""
    found = _weights(given, flag)
    return found if len(found) > 1 else next(iter(found), "")


def _weights(given: list[str] | None, flag: str) -> dict[str, float]:
    """`NAME` or `NAME=WEIGHT`, several times."""
    found: dict[str, float] = {}
    for one in given or []:
        name, equals, text = one.rpartition("=")
        try:
            found[name if equals else one] = float(text) if equals else 1.0
        except ValueError:
            raise BadInput(f"{flag} {one!r} should be NAME or NAME=WEIGHT, with a number as the weight.") from None
    return found


Base = Annotated[
    str,
    typer.Option(
        "--base",
        help="Model to train: embedded, taught, a GGUF file, or a folder of transformers or of `kibitz teach`",
    ),
]
Out = Annotated[str, typer.Option("--out", help="Folder of the training")]
Rank = Annotated[int, typer.Option("--rank", min=1, help="Rank of the LoRA adapter")]
Adapter = Annotated[
    str | None, typer.Option("--adapter", help="Adapter to train further: a folder of `kibitz teach` or of peft")
]
Full = Annotated[bool, typer.Option("--full", help="Train all weights instead of an adapter")]
Rate = Annotated[float, typer.Option("--lr", help="Highest learning rate")]
Device = Annotated[str, typer.Option("--device", help="Device of PyTorch: auto, cpu, cuda, cuda:1")]
CheckpointSteps = Annotated[int, typer.Option("--checkpoint-steps", min=1, help="Steps between two checkpoints")]
Minutes = Annotated[
    float | None, typer.Option("--minutes", min=0, help="Stop with a checkpoint after this many minutes")
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the training in --out")]
RowFiles = Annotated[list[str], typer.Option("--data", help="File of JSON Lines of `kibitz teach data`; repeatable")]
BatchRows = Annotated[int, typer.Option("--batch", min=1, help="Rows per step")]
Epochs = Annotated[int, typer.Option("--epochs", min=1, help="Passes over the rows")]
MaxTokens = Annotated[int, typer.Option("--max-tokens", min=16, help="Omit longer rows")]
Workers = Annotated[int, typer.Option("--workers", min=0, help="Processes that prepare batches")]


@app.command("sft")
def sft(
    data: RowFiles,
    out: Out,
    base: Base = "embedded",
    rank: Rank = 16,
    full: Full = False,
    adapter: Adapter = None,
    lr: Rate = 1e-3,
    batch: BatchRows = 64,
    epochs: Epochs = 1,
    max_tokens: MaxTokens = 512,
    workers: Workers = 0,
    device: Device = "auto",
    checkpoint_steps: CheckpointSteps = 500,
    minutes: Minutes = None,
    seed: Seed = 0,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Train a language model on rows of `kibitz teach data`. Ctrl-C saves a checkpoint and stops."""
    from kibitz.teach.batches import RowOptions
    from kibitz.teach.sft import train

    values = {"data": tuple(data), **_weights_of(base, rank, full, adapter), "lr": lr, "batch": batch}
    values |= {"epochs": epochs, "max_tokens": max_tokens, "seed": seed, "workers": workers, "device": device}
    options = RowOptions.read(values | {"checkpoint_steps": checkpoint_steps})
    _run(lambda *more: train(options, Path(out), resume, minutes, *more), out, as_json)


@app.command("dpo")
def dpo(
    data: RowFiles,
    out: Out,
    base: Base = "embedded",
    beta: Annotated[float, typer.Option("--beta", help="How closely the model stays to its base")] = 0.1,
    rank: Rank = 16,
    full: Full = False,
    adapter: Adapter = None,
    lr: Rate = 1e-4,
    batch: BatchRows = 64,
    epochs: Epochs = 1,
    max_tokens: MaxTokens = 512,
    workers: Workers = 0,
    device: Device = "auto",
    checkpoint_steps: CheckpointSteps = 500,
    minutes: Minutes = None,
    seed: Seed = 0,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Train a language model on pairs of `kibitz teach data --pairs`. Ctrl-C saves a checkpoint and stops."""
    from kibitz.teach.dpo import DpoOptions, train

    values = {"data": tuple(data), **_weights_of(base, rank, full, adapter), "lr": lr, "batch": batch}
    values |= {"epochs": epochs, "max_tokens": max_tokens, "seed": seed, "workers": workers, "device": device}
    options = DpoOptions.read(values | {"checkpoint_steps": checkpoint_steps, "beta": beta})
    _run(lambda *more: train(options, Path(out), resume, minutes, *more), out, as_json)


@app.command("grpo")
def grpo(
    out: Out,
    base: Base = "embedded",
    game: GameName = DEFAULT_GAME,
    opponent: Annotated[
        list[str] | None,
        typer.Option("--opponent", help="Bot, policy:RUN, NAME=WEIGHT for each of several, or self: a frozen copy"),
    ] = None,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Gradient steps")] = 200,
    groups: Annotated[int, typer.Option("--groups", min=1, help="Deals per step")] = 16,
    group_size: Annotated[int, typer.Option("--group-size", min=2, help="Episodes per deal")] = 8,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Positions per forward pass")] = 64,
    rank: Rank = 16,
    full: Full = False,
    adapter: Adapter = None,
    lr: Rate = 1e-4,
    device: Device = "auto",
    checkpoint_steps: Annotated[
        int, typer.Option("--checkpoint-steps", min=1, help="Steps between two checkpoints, and two copies of self")
    ] = 20,
    minutes: Minutes = None,
    contexts: Contexts = "uniform",
    seed: Seed = 0,
    prompt: PromptPath = None,
    options: GameOptions = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Train a language model on the returns of its own games. Ctrl-C saves a checkpoint and stops."""
    from kibitz.llm.answers.prompt import Prompt
    from kibitz.teach.grpo import GrpoOptions, train

    record, chosen = read_game(game, options, contexts)
    values: dict[str, Any] = {**_weights_of(base, rank, full, adapter), "lr": lr, "seed": seed, "device": device}
    values |= {
        "batch": batch,
        "game": game,
        "options": chosen.model_dump(mode="json"),
        "opponent": _one_or_mix(opponent, "--opponent"),
    }
    values |= {"steps": steps, "groups": groups, "group_size": group_size, "checkpoint_steps": checkpoint_steps}
    job = GrpoOptions.read(values | {"prompt": "" if prompt is None else Prompt.read(prompt).text})
    _run(lambda *more: train(job, record, chosen, Path(out), resume, minutes, *more), out, as_json)


def _weights_of(base: str, rank: int, full: bool, adapter: str | None) -> dict[str, Any]:
    """What is trained."""
    if full and adapter:
        raise BadInput("--adapter cannot be combined with --full, which trains all weights.")
    return {"base": base, "rank": None if full else rank, "adapter": adapter or ""}


def _run(train: Callable[..., dict[str, Any]], out: str, as_json: bool) -> None:
    from kibitz.train.run.progress import stoppable

    with _writing(out), _training_bar(quiet=as_json) as report, stoppable() as stop:
        found = train(report, lambda: stop.asked)
    output.result(found, as_json, output.values_table("Taught" if found["finished"] else "Stopped; --resume continues"))
    if stop.asked and not found["finished"]:
        raise KeyboardInterrupt


@app.command("calibrate")
def calibrate(
    model: Annotated[str, typer.Option("--model", help="Taught model: a preset or a GGUF file")] = "taught",
    states: Annotated[int, typer.Option("--states", min=10, help="Number of positions")] = 400,
    game: GameName = DEFAULT_GAME,
    opponent: Opponent = None,
    seed: Seed = 0,
    options: GameOptions = None,
    as_json: Json = False,
) -> None:
    """Fit the two numbers that turn a taught model's likelihoods into the probability that its act is right."""
    from kibitz.teach.calibrate import calibrate

    record, chosen = read_game(game, options)
    with output.progress(f"answers of {model}", states, quiet=as_json) as advance:
        found = calibrate(record, chosen, model, states, opponent or record.default_players[1], seed, advance)
    output.result(found, as_json, output.values_table(f"Confidence of {model} in {record.name}"))


@app.command("export")
def export(
    adapter: Annotated[str, typer.Option("--adapter", help="Folder of `kibitz teach`, or of a peft adapter")],
    out: Annotated[str, typer.Option("--out", help="File or folder to write")],
    form: Annotated[str, typer.Option("--format", help="What to write: gguf, transformers or peft")] = "gguf",
    base: Annotated[
        str | None, typer.Option("--base", help="Model to merge into; default: the one that was trained, or embedded")
    ] = None,
    as_json: Json = False,
) -> None:
    """Merge an adapter into its model: a GGUF file for `llm:FILE`, or a folder for vLLM; or copy it for peft."""
    from kibitz.teach import export as exports

    target, folder = Path(out), exports.adapter_folder(Path(adapter))
    if target.exists():
        raise BadInput(f"{out} exists; name another place or delete it.")
    read = exports.read_adapter(folder)
    base = base or exports.base_of(Path(adapter))
    if form not in ("gguf", "transformers", "peft"):
        raise BadInput(f"There is no format {form!r}; choose gguf, transformers or peft.")
    with _writing(out):
        target.parent.mkdir(parents=True, exist_ok=True)
        if form == "gguf":
            exports.to_gguf(read, base, target)
        elif form == "transformers":
            exports.to_transformers(folder, base, target)
        else:
            exports.to_peft(folder, target)
    output.result({"out": out, "format": form, "matrices": len(read.pairs())}, as_json, output.values_table("Exported"))


@contextmanager
def _writing(out: str) -> Iterator[None]:
    """Turns a file system's error into BadInput."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"{out} cannot be written ({error.strerror}); solve this or name another --out.") from None


@contextmanager
def _training_bar(quiet: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    """The newest row of metrics, on standard error."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[summary]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=output.err, disable=quiet) as bar:
        task = bar.add_task("loading", total=None, summary="")

        def report(metrics: dict[str, Any]) -> None:
            shown = {name: value for name, value in metrics.items() if name not in ("step", "steps")}
            summary = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in shown.items())
            done, total = metrics["step"], metrics["steps"]
            bar.update(task, completed=done, total=total, description="teaching", summary=summary)

        yield report
