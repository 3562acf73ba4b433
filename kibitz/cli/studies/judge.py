"""`kibitz judge`: how often judges of style are right, and the supervised one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from kibitz.cli import output
from kibitz.cli.options import (
    DEFAULT_GAME,
    GameName,
    GameOptions,
    JobOptions,
    Json,
    Opponent,
    PromptPath,
    Seed,
    read_game,
)
from kibitz.core.errors import BadInput

app = typer.Typer(help="Measure and train judges of a player's style.", no_args_is_help=True)

Episodes = Annotated[int, typer.Option("--episodes", min=1, help="Number of episodes")]
Styles = Annotated[list[str] | None, typer.Option("--style", help="Style; repeatable; default: all of the game")]
Players = Annotated[
    list[str] | None,
    typer.Option("--player", help="Player whose episodes are judged; repeatable; default: all bots but the reference"),
]


@app.command("evaluate")
def evaluate(
    judge: Annotated[str, typer.Option("--judge", help="Judge: llm:PRESET or classifier:FILE")],
    style: Styles = None,
    game: GameName = DEFAULT_GAME,
    episodes: Episodes = 200,
    player: Players = None,
    opponent: Opponent = None,
    folder: Annotated[
        str | None,
        typer.Option("--folder", help="Judge episodes of a folder of `kibitz evaluate --out`, or of a server's store"),
    ] = None,
    prompt: PromptPath = None,
    money: Annotated[
        float | None, typer.Option("--budget-money", min=0, help="Stop asking when a style has cost this much")
    ] = None,
    seed: Seed = 0,
    options: GameOptions = None,
    as_json: Json = False,
) -> None:
    """Report how often a judge's yes or no agrees with the true style, with 95 % intervals."""
    from kibitz.advice.judge import judge_prompt
    from kibitz.core.system.paths import cache_folder, named
    from kibitz.evaluate.judges.accuracy import evaluate_judge, judge_named
    from kibitz.evaluate.judges.episodes import draw
    from kibitz.llm.client.limits import Budget
    from kibitz.teach.records.judged import is_store, labelled_folder, labelled_store

    if prompt is not None and not judge.startswith("llm:"):
        raise BadInput(f"--prompt applies only to llm:PRESET; {judge} reads no prompt.")
    if folder is not None and (player or opponent or options):
        raise BadInput("--folder cannot be combined with --player, --opponent or --set; its evaluation names them.")
    judge_named(judge)
    if folder is None:
        record, chosen = read_game(game, options)
        styles = record.styles.names(style or [], record.name)
        drawn = None
    else:
        if is_store(folder):
            record, drawn, skipped = labelled_store(folder, read_game(game, None)[0], episodes)
        else:
            (record, drawn), skipped = labelled_folder(named(folder), episodes), 0
        if game not in (DEFAULT_GAME, record.name):
            raise BadInput(f"{folder} holds episodes of {record.name}; omit --game {game}.")
        styles = record.styles.names(style or [], record.name)
        episodes = len(drawn)
    with output.progress(f"{judge} on {record.name}", episodes * len(styles), quiet=as_json) as advance:
        if drawn is None:
            drawn = draw(record, chosen, episodes, player or [], opponent or record.default_players[1], seed)
        found = evaluate_judge(
            record,
            drawn,
            judge,
            styles,
            prompt=None if prompt is None else judge_prompt(prompt),
            cache=cache_folder() / "answers.sqlite",
            budget=Budget(money=money),
            progress=advance,
        )
    more = {"seed": seed} if folder is None else {"skipped_episodes": skipped}
    output.result(found | more, as_json, _accuracy_table)
    if found["interrupted"]:
        raise KeyboardInterrupt


@app.command("train")
def train(
    out: Annotated[str, typer.Option("--out", help="File of the classifier to write")],
    game: GameName = DEFAULT_GAME,
    episodes: Episodes = 4000,
    player: Players = None,
    opponent: Opponent = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed; use a different one from the evaluation")] = 1,
    options: GameOptions = None,
    as_json: Json = False,
) -> None:
    """Train a classifier for all styles of a game on episodes with known styles."""
    from kibitz.evaluate.judges.classifier import Classifier
    from kibitz.evaluate.judges.episodes import draw

    target = Path(out)
    if target.exists():
        raise BadInput(f"{out} exists; name another file or delete it.")
    record, chosen = read_game(game, options)
    record.styles.names(game=record.name)
    with output.progress(f"classifier for {record.name}", 2, quiet=as_json) as advance:
        drawn = draw(record, chosen, episodes, player or [], opponent or record.default_players[1], seed)
        advance(1)
        learnt = Classifier.learn(record, drawn, seed)
        advance(1)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        learnt.write(target)
    except OSError as error:
        raise BadInput(f"{out} cannot be written ({error.strerror}); solve this or name another --out.") from None
    found = {"file": out, "game": record.name, "styles": list(learnt.styles), "episodes": episodes, "seed": seed}
    output.result(found, as_json, output.values_table("Classifier"))


@app.command("styles")
def styles(
    out: Annotated[str, typer.Option("--out", help="Folder of the runs and the report")],
    config: Annotated[str, typer.Option("--config", help="Config file in YAML; names the game and the opponent")] = (
        "configs/ppo_style.yaml"
    ),
    style: Styles = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="First seed; default: the config's")] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Number of learners for each style")] = 5,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Steps of each learner")] = None,
    options: JobOptions = None,
    as_json: Json = False,
) -> None:
    """Train agents for every style and compare them, next to a paper's figures. The same command resumes."""
    from kibitz.cli.train import train_with_progress
    from kibitz.core.options import parse_settings
    from kibitz.studies.styles import study_styles
    from kibitz.train.config import read_job
    from kibitz.train.opponents import game_of

    record, _ = game_of(read_job(config, parse_settings(options or [])))
    report = study_styles(
        record,
        Path(out),
        style or [],
        options or [],
        lambda run, resume: train_with_progress(run, resume, quiet=as_json),
        config=config,
        seed=seed,
        seeds=seeds,
        steps=steps,
    )
    if report is None:
        raise KeyboardInterrupt
    table = output.report_table(report, report.summary)
    output.result(report.data | {"report": str(Path(out) / "report.html")}, as_json, lambda _: table)


def _accuracy_table(found: dict[str, Any]) -> Table:
    title = f"{found['judge']} on {found['episodes']:,} episodes of {found['game']}{output.early(found)}"
    table = output.titled(title, "")
    table.add_column("style")
    for name in ("accuracy", "95 % interval", "shown in", "always the majority", "answered"):
        table.add_column(name, justify="right")
    for row in found["styles"]:
        low, high = row["accuracy_ci95"]
        between = "-" if low is None else f"{100 * low:.1f} to {100 * high:.1f} %"
        shares = [_percent(row[name]) for name in ("base_rate", "majority")]
        table.add_row(Text(row["style"]), _percent(row["accuracy"]), between, *shares, f"{row['answered']:,}")
    return table


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
