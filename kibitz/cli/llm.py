"""`kibitz llm` and `kibitz hints`: which models work here, what they answer, and whether that is any good."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from kibitz.cli import output
from kibitz.cli.options import DEFAULT_GAME, GameName, GameOptions, Json, Opponent, Seed, read_game
from kibitz.core.errors import BadInput

llm = typer.Typer(help="Language models: install one, see which are usable, try one.", no_args_is_help=True)
hints = typer.Typer(help="Are an adviser's hints any good?", no_args_is_help=True)

PromptPath = Annotated[str | None, typer.Option("--prompt", help="a template; otherwise the game's own")]


@llm.command("install")
def install(as_json: Json = False) -> None:
    """Put the embedded model in place: its engine and its weights (145 MB), checked by hash."""
    from kibitz.llm.providers import weights

    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        if not as_json:
            print(line, file=sys.stderr)

    path = weights.install(say)
    found: dict[str, Any] = {"weights": str(path), "sha256": weights.SHA256}
    # people have read the lines already
    output.result(found | ({"said": lines} if as_json else {}), as_json, _plain_table("installed"))


@llm.command("list")
def list_presets(
    probe: Annotated[float, typer.Option("--probe", min=0, help="also knock at servers, so many seconds each")] = 0.0,
    as_json: Json = False,
) -> None:
    """Every preset, whether it is usable here, and if not, why."""
    from kibitz.llm.presets import read_presets, why_not

    found = []
    for name, preset in read_presets().items():
        reason = why_not(preset, probe)
        about = {"preset": name, "provider": preset.provider, "model": preset.model}
        found.append(about | {"usable": not reason, "why_not": reason, "note": preset.note})
    output.result({"presets": found}, as_json, _presets_table)


@llm.command("ask")
def ask(
    preset: Annotated[str, typer.Option("--preset", help="which model, as `kibitz llm list` names it")] = "auto",
    game: GameName = DEFAULT_GAME,
    opponent: Opponent = "heuristic",
    seed: Seed = 0,
    prompt: PromptPath = None,
    options: GameOptions = None,
    as_json: Json = False,
) -> None:
    """Ask a model about one random position; prints the prompt, the answer and how long it took."""
    from kibitz.advice.ask import Asker
    from kibitz.advice.quality import draw_positions, position
    from kibitz.llm.answers.prompt import Prompt

    record, chosen = read_game(game, options)
    with Asker(record, preset, prompt=Prompt.read(prompt or record.words.prompt)) as asker:
        settings, drawn = draw_positions(record, chosen, 1, opponent, seed, reference=record.bot("heuristic"))
        asked = position(record, settings, drawn, 0)
        question = asker.question(asked)
        advice = asker.ask([asked])[0]
    reply = advice.reply
    found: dict[str, Any] = {
        "preset": preset,
        "prompt": question.messages[-1]["content"],
        "answer": reply.text,
        "act": None if advice.act is None else list(advice.act),
        "says": None if advice.act is None else record.words.act_text(advice.act),
        "confidence": advice.confidence,
        "failure": None if reply.failure is None else str(reply.failure),
        "latency_s": round(reply.latency, 4),
        "attempts": reply.attempts,
        "tokens": reply.usage.tokens,
        "money": reply.usage.money,
    }
    if not as_json:
        output.out.print(found.pop("prompt"), markup=False, highlight=False)
        output.out.print()
    output.result(found, as_json, _plain_table(f"{preset} answers"))


@hints.command("evaluate")
def evaluate(
    source: Annotated[str, typer.Option("--source", help="random, expert, llm:PRESET or a rule of the game")],
    states: Annotated[int, typer.Option("--states", min=1, help="how many positions")] = 200,
    game: GameName = DEFAULT_GAME,
    opponent: Opponent = "heuristic",
    seed: Seed = 0,
    checkpoint: Annotated[str | None, typer.Option("--checkpoint", help="expert: a run's folder or file")] = None,
    prompt: PromptPath = None,
    options: GameOptions = None,
    as_json: Json = False,
) -> None:
    """Score a source of hints: legality, agreement, regret, distance, calibration, latency, cost."""
    from kibitz.advice.quality import evaluate_hints
    from kibitz.llm.answers.prompt import Prompt

    record, chosen = read_game(game, options)
    if prompt is not None and not source.startswith("llm:"):
        raise BadInput(f"--prompt is for llm:PRESET; {source} reads none.")
    template = None if prompt is None else Prompt.read(prompt)
    with output.progress(f"hints of {source}", states, quiet=as_json) as advance:
        found = evaluate_hints(
            record, chosen, source, states, opponent, seed, checkpoint=checkpoint, prompt=template, progress=advance
        )
    output.result(found, as_json, _plain_table(f"Hints of {found['source']} on {states:,} positions"))


def _presets_table(found: dict[str, Any]) -> Any:
    from rich.markup import escape
    from rich.table import Table

    table = Table("preset", "provider", "model", "usable", "note")
    for row in found["presets"]:
        usable = "yes" if row["usable"] else f"no: {row['why_not']}"
        table.add_row(*(escape(text) for text in (row["preset"], row["provider"], row["model"], usable, row["note"])))
    return table


def _plain_table(title: str) -> Any:
    from rich.markup import escape
    from rich.table import Table

    def make(found: dict[str, Any]) -> Table:
        table = Table(title=escape(title), show_header=False)
        for name, value in found.items():
            shown = "-" if value is None or value == {} else f"{value:.4g}" if isinstance(value, float) else str(value)
            table.add_row(name.replace("_", " "), escape(shown))
        return table

    return make
