"""`kibitz hints`: measure the quality of a source of hints."""

from __future__ import annotations

from typing import Annotated

import typer

from kibitz.cli import output
from kibitz.cli.options import (
    DEFAULT_GAME,
    GameName,
    GameOptions,
    Json,
    Opponent,
    PromptPath,
    RayAddress,
    Seed,
    Workers,
    read_game,
)
from kibitz.core.errors import BadInput

app = typer.Typer(help="Measure how good an adviser's hints are.", no_args_is_help=True)


@app.command("evaluate")
def evaluate(
    source: Annotated[
        str, typer.Option("--source", help="Source of hints: random, expert, llm, llm:PRESET or a bot of the game")
    ],
    states: Annotated[int, typer.Option("--states", min=1, help="Number of positions")] = 200,
    game: GameName = DEFAULT_GAME,
    opponent: Opponent = None,
    seed: Seed = 0,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", help="Run folder or checkpoint file, for expert")
    ] = None,
    prompt: PromptPath = None,
    options: GameOptions = None,
    workers: Workers = None,
    ray: RayAddress = None,
    as_json: Json = False,
) -> None:
    """Score a source of hints: legality, agreement, regret, distance, calibration, latency, cost."""
    from kibitz.advice.hint_scores import evaluate_hints
    from kibitz.core.work.executor import executor_for
    from kibitz.llm.answers.prompt import Prompt

    record, chosen = read_game(game, options)
    if prompt is not None and source.split(":")[0] != "llm":
        raise BadInput(f"--prompt applies only to llm:PRESET; {source} reads no prompt.")
    template = None if prompt is None else Prompt.read(prompt)
    other = opponent or record.default_players[1]
    with (
        executor_for(workers, ray) as executor,
        output.progress(f"hints of {source}", states, quiet=as_json) as advance,
    ):
        found = evaluate_hints(
            record,
            chosen,
            source,
            states,
            other,
            seed,
            checkpoint=checkpoint,
            prompt=template,
            progress=advance,
            executor=executor,
        )
    title = f"Hints of {found['source']} on {found['states']:,} positions{output.early(found)}"
    output.result(found, as_json, output.values_table(title))
    if found["interrupted"]:
        raise KeyboardInterrupt
