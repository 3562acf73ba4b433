"""`kibitz llm` and `kibitz hints`: which models work here, what they answer, and whether that is any good."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from kibitz.core.errors import BadInput
from kibitz.core.seed import LAST_SEED

llm = typer.Typer(help="Language models: install one, see which are usable, try one.", no_args_is_help=True)
hints = typer.Typer(help="Are an adviser's hints any good?", no_args_is_help=True)

GameName = Annotated[str, typer.Option("--game", help="which game")]
Opponent = Annotated[str, typer.Option("--opponent", help="who sits in the other seat")]
Seed = Annotated[int, typer.Option("--seed", min=0, max=LAST_SEED, help="the same seed gives the same positions")]
PromptPath = Annotated[str | None, typer.Option("--prompt", help="a template; otherwise the game's own")]
Set = Annotated[list[str] | None, typer.Option("--set", help="a game option as name=value; may be repeated")]
Json = Annotated[bool, typer.Option("--json", help="one JSON object on standard output, nothing else")]


@llm.command("install")
def install(as_json: Json = False) -> None:
    """Put the embedded model in place: its engine and its weights (145 MB), checked by hash."""
    from kibitz.cli import output as show
    from kibitz.llm.providers import weights

    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        if not as_json:
            print(line, file=sys.stderr)

    path = weights.install(say)
    found: dict[str, Any] = {"weights": str(path), "sha256": weights.SHA256}
    # people have read the lines already
    show.result(found | ({"said": lines} if as_json else {}), as_json, _plain_table("installed"))


@llm.command("list")
def list_presets(
    probe: Annotated[float, typer.Option("--probe", min=0, help="also knock at servers, so many seconds each")] = 0.0,
    as_json: Json = False,
) -> None:
    """Every preset, whether it is usable here, and if not, why."""
    from kibitz.cli import output as show
    from kibitz.llm.presets import read_presets
    from kibitz.llm.usable import why_not

    found = []
    for name, preset in read_presets().items():
        reason = why_not(preset, probe)
        about = {"preset": name, "provider": preset.provider, "model": preset.model}
        found.append(about | {"usable": not reason, "why_not": reason, "note": preset.note})
    show.result({"presets": found}, as_json, _presets_table)


@llm.command("ask")
def ask(
    preset: Annotated[str, typer.Option("--preset", help="which model, as `kibitz llm list` names it")] = "auto",
    game: GameName = "deal_or_no_deal",
    opponent: Opponent = "heuristic",
    seed: Seed = 0,
    prompt: PromptPath = None,
    options: Set = None,
    as_json: Json = False,
) -> None:
    """Ask a model about one random position; prints the prompt, the answer and how long it took."""
    from kibitz.advice.ask import Asker, prompt_path
    from kibitz.advice.quality import draw_positions, position
    from kibitz.cli import output as show
    from kibitz.llm.answers.prompt import Prompt

    record, chosen = _game(game, options)
    with Asker(record, preset, prompt=Prompt.read(prompt or prompt_path(record))) as asker:
        settings, drawn = draw_positions(record, chosen, 1, opponent, seed, reference=record.rule("heuristic"))
        asked = position(record, settings, drawn, 0)
        question = asker.question(asked)
        advice = asker.ask([asked])[0]
    reply = advice.reply
    found: dict[str, Any] = {
        "preset": preset,
        "prompt": question.messages[-1]["content"],
        "answer": reply.text,
        "act": None if advice.act is None else list(advice.act),
        "says": None if advice.act is None else record.say(advice.act),
        "confidence": advice.confidence,
        "failure": None if reply.failure is None else str(reply.failure),
        "latency_s": round(reply.latency, 4),
        "attempts": reply.attempts,
        "tokens": reply.usage.tokens,
        "money": reply.usage.money,
    }
    if not as_json:
        show.out.print(found.pop("prompt"), markup=False, highlight=False)
        show.out.print()
    show.result(found, as_json, _plain_table(f"{preset} answers"))


@hints.command("evaluate")
def evaluate(
    source: Annotated[str, typer.Option("--source", help="random, expert, llm:PRESET or a rule of the game")],
    states: Annotated[int, typer.Option("--states", min=1, help="how many positions")] = 200,
    game: GameName = "deal_or_no_deal",
    opponent: Opponent = "heuristic",
    seed: Seed = 0,
    checkpoint: Annotated[str | None, typer.Option("--checkpoint", help="expert: a run's folder or file")] = None,
    prompt: PromptPath = None,
    options: Set = None,
    as_json: Json = False,
) -> None:
    """Score a source of hints: legality, agreement, regret, distance, calibration, latency, cost."""
    from kibitz.advice.quality import evaluate_hints
    from kibitz.cli import output as show
    from kibitz.llm.answers.prompt import Prompt

    record, chosen = _game(game, options)
    if prompt is not None and not source.startswith("llm:"):
        raise BadInput(f"--prompt is for llm:PRESET; {source} reads none.")
    template = None if prompt is None else Prompt.read(prompt)
    with show.progress(f"hints of {source}", states, quiet=as_json) as advance:
        found = evaluate_hints(
            record, chosen, source, states, opponent, seed, checkpoint=checkpoint, prompt=template, progress=advance
        )
    show.result(found, as_json, _plain_table(f"Hints of {found['source']} on {states:,} positions"))


def _game(name: str, options: list[str] | None) -> tuple[Any, Any]:
    from kibitz.core.options import parse_settings
    from kibitz.games import get_game

    plain = get_game(name)
    chosen = plain.options.read(parse_settings(options or []), f"option of {name}")
    return get_game(name, chosen), chosen


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
