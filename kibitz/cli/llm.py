"""`kibitz llm`: install the embedded model, list the presets, and ask a model about one position."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from kibitz.cli import output
from kibitz.cli.options import DEFAULT_GAME, GameName, GameOptions, Json, Opponent, PromptPath, Seed, read_game

app = typer.Typer(help="Language models: install one, list them, ask one.", no_args_is_help=True)


@app.command("install")
def install(as_json: Json = False) -> None:
    """Install the embedded model: its engine, its weights and the taught ones (145 MB each), checked by hash."""
    from kibitz.llm.providers import weights

    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        if not as_json:
            print(line, file=sys.stderr)

    path = weights.install(say)
    found: dict[str, Any] = {"weights": str(path), "sha256": weights.SHA256}
    found |= {"taught": str(weights.install_taught(say)), "taught_sha256": weights.TAUGHT_SHA256}
    # without --json the lines are already on the terminal
    output.result(found | ({"said": lines} if as_json else {}), as_json, output.values_table("installed"))


@app.command("list")
def list_presets(
    probe: Annotated[
        float, typer.Option("--probe", min=0, help="Connect to each server, for at most this many seconds")
    ] = 0.0,
    as_json: Json = False,
) -> None:
    """List every preset, whether it can be used here and, if not, why."""
    from kibitz.llm.presets import read_presets, why_not

    found = []
    for name, preset in read_presets().items():
        reason = why_not(preset, probe)
        about = {"preset": name, "provider": preset.provider, "model": preset.model}
        found.append(about | {"usable": not reason, "why_not": reason, "note": preset.note})
    output.result({"presets": found}, as_json, _presets_table)


@app.command("ask")
def ask(
    preset: Annotated[str, typer.Option("--preset", help="Preset; see `kibitz list presets`")] = "auto",
    game: GameName = DEFAULT_GAME,
    opponent: Opponent = None,
    seed: Seed = 0,
    prompt: PromptPath = None,
    options: GameOptions = None,
    as_json: Json = False,
) -> None:
    """Ask a model about one random position and print the prompt, the answer and the latency."""
    from kibitz.advice.ask import PositionAsker
    from kibitz.advice.quality import draw_positions, position
    from kibitz.llm.answers.prompt import Prompt

    record, chosen = read_game(game, options)
    template = None if prompt is None else Prompt.read(prompt)
    with PositionAsker(record, preset, settings=chosen.settings(), prompt=template) as asker:
        preset = asker.preset.name
        other = opponent or record.default_players[1]
        settings, drawn = draw_positions(record, chosen, 1, other, seed, reference=record.bot(record.fallback))
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
    output.result(found, as_json, output.values_table(f"{preset} answers"))


def _presets_table(found: dict[str, Any]) -> Table:
    table = Table("preset", "provider", "model", "usable", "note")
    for row in found["presets"]:
        usable = "yes" if row["usable"] else f"no: {row['why_not']}"
        table.add_row(*(escape(text) for text in (row["preset"], row["provider"], row["model"], usable, row["note"])))
    return table
