"""The `kibitz` command: every command has `--json` for machines and a table for people."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from kibitz.cli import live as cli_live
from kibitz.cli import llm as cli_llm
from kibitz.cli.cricket import app as cricket
from kibitz.core.errors import BadInput
from kibitz.core.seed import LAST_SEED

app = typer.Typer(
    name="kibitz",
    help="Strategy games in which agents learn with an adviser in their ear and anybody can watch.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
bench = typer.Typer(help="Rates of this machine, beside what one would use instead.", no_args_is_help=True)
app.add_typer(bench, name="bench")
app.add_typer(cricket, name="cricket")
app.add_typer(cli_llm.llm, name="llm")
app.add_typer(cli_llm.hints, name="hints")
cli_live.add_to(app, bench)

GameName = Annotated[str, typer.Option("--game", help="which game")]
Opponent = Annotated[str, typer.Option("--opponent", help="who sits in the other seat")]
Contexts = Annotated[str, typer.Option("--contexts", help="what is dealt: uniform, or a file")]
Seed = Annotated[int, typer.Option("--seed", min=0, max=LAST_SEED, help="the same seed gives the same episodes")]
Json = Annotated[bool, typer.Option("--json", help="one JSON object on standard output, nothing else")]
Set = Annotated[list[str] | None, typer.Option("--set", help="a game option as name=value; may be repeated")]
STOPPED = 130  # exit code


@app.command()
def evaluate(
    player: Annotated[str, typer.Option("--player", help="whom to judge")],
    game: GameName = "deal_or_no_deal",
    opponent: Opponent = "heuristic",
    episodes: Annotated[
        int | None, typer.Option("--episodes", min=1, help="how many; 1000, or all of the pack", show_default=False)
    ] = None,
    pack: Annotated[
        str | None, typer.Option("--pack", help="fixed scenarios, each from both sides: a name or a file")
    ] = None,
    contexts: Contexts = "uniform",
    seed: Seed = 0,
    options: Set = None,
    as_json: Json = False,
) -> None:
    """How good is a player? Plays many episodes and prints its measures with an interval."""
    from kibitz.cli import output as show
    from kibitz.evaluate import match
    from kibitz.players import player_named

    if pack is not None:
        if contexts != "uniform" or options:
            raise BadInput("A pack says what is played; leave --contexts and --set away.")
        show.pack_evaluation(game, pack, player, opponent, episodes, seed, as_json)
        return
    episodes = 1000 if episodes is None else episodes
    record, chosen = _game(game, contexts, options)
    for name in (player, opponent):
        player_named(record, name)  # complains before anything is shown or played
    runs = match.runs_of(record, player, opponent)
    with show.progress(f"{player} v {opponent}", episodes * runs, quiet=as_json) as advance:
        result = match.evaluate(record, chosen, player, opponent, episodes, seed, advance)
    result["contexts"] = contexts
    show.result(result, as_json, show.evaluation_table)


@app.command()
def play(
    game: GameName = "deal_or_no_deal",
    opponent: Opponent = "heuristic",
    contexts: Contexts = "uniform",
    seed: Annotated[int | None, typer.Option("--seed", min=0, max=LAST_SEED, help="play this very episode")] = None,
    options: Set = None,
    as_json: Json = False,
) -> None:
    """Play an episode yourself, at the terminal, against any player."""
    from kibitz.cli import output as show

    record, chosen = _game(game, contexts, options)
    show.play_at_terminal(record, chosen, opponent, seed, as_json)


@app.command()
def train(
    algo: Annotated[str | None, typer.Option("--algo", help="ppo, reinforce or supervised")] = None,
    hint: Annotated[str | None, typer.Option("--hint", help="none, random, llm or expert")] = None,
    config: Annotated[str | None, typer.Option("--config", help="a YAML file, as in configs/")] = None,
    game: Annotated[str | None, typer.Option("--game", help="which game, in place of the config's env.id")] = None,
    opponent: Annotated[str | None, typer.Option("--opponent", help="heuristic, expert, self, policy:RUN")] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="of the first learner")] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="so many learners in one program")] = None,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="in place of num_train_steps")] = None,
    out: Annotated[str | None, typer.Option("--out", help="the run's folder")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with the run in --out")] = False,
    options: Annotated[list[str] | None, typer.Option("--set", help="any key, as in train.lr=1e-3")] = None,
    as_json: Json = False,
) -> None:
    """Train a policy; the run's folder gets metrics, checkpoints and the learning curve."""
    from kibitz.cli import output as show
    from kibitz.train.start import prepare

    run = prepare(algo, hint, config, game, opponent, seed, seeds, steps, out, resume, options or [])
    show.train(run, resume, as_json)


@app.command()
def demo(
    steps: Annotated[int, typer.Option("--steps", min=1, help="of training")] = 2_000_000,
    episodes: Annotated[int, typer.Option("--episodes", min=1, help="how many for each player")] = 2000,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="open the cockpit")] = True,
    leave: Annotated[bool, typer.Option("--exit", help="end when both live episodes have")] = False,
    as_json: Json = False,
) -> None:
    """Train a negotiator, compare it with others, then watch it and a cricket match in the cockpit."""
    from kibitz.cli.demo import demo as run

    run(steps, episodes, browser, leave or as_json, as_json)


@bench.command("env")
def bench_env(
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="how long to time each")] = 3.0,
    as_json: Json = False,
) -> None:
    """Steps a second: the single environment, the vector one, the batched rules, and OpenSpiel."""
    from kibitz.bench import env
    from kibitz.cli import output as show

    with show.progress("timing", len(env.SUBJECTS), quiet=as_json) as advance:
        result = env.run(seconds, advance)
    show.result(result, as_json, show.bench_table)


@bench.command("train")
def bench_train(
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="how long to time each")] = 10.0,
    config: Annotated[str, typer.Option("--config", help="the job that runs to 95 %")] = "configs/ppo_fast.yaml",
    options: Annotated[list[str] | None, typer.Option("--set", help="a key of it, as in train.lr=1e-3")] = None,
    most_seconds: Annotated[float, typer.Option("--most-seconds", min=1, help="give up on 95 % after this")] = 300.0,
    as_json: Json = False,
) -> None:
    """Training: steps a second and time to 95 % of the reference, beside Stable-Baselines3."""
    from kibitz.bench import train as subject
    from kibitz.cli import output as show
    from kibitz.core.options import parse_settings
    from kibitz.train.config import read_job

    job = read_job(config, parse_settings(options or []))
    with show.progress("timing", len(subject.SUBJECTS), quiet=as_json) as advance:
        result = subject.run(seconds, job, most_seconds, advance)
    show.result(result, as_json, show.train_bench_table)


@bench.command("hints")
def bench_hints(
    updates: Annotated[int, typer.Option("--updates", min=1, help="in each timed run")] = 20,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="timed runs of each kind")] = 5,
    options: Annotated[
        list[str] | None, typer.Option("--set", help="a key of the job, as in hints.cadence_k=4")
    ] = None,
    as_json: Json = False,
) -> None:
    """Host-stepped training with random hints and with an LLM's from a warm cache; calls against their latency."""
    from kibitz.bench import hints as subject
    from kibitz.cli import output as show
    from kibitz.core.options import parse_settings

    with show.progress("timing", 3 * repeats + 2, quiet=as_json) as advance:
        result = subject.run(updates, repeats, parse_settings(options or []), advance)
    show.facts(result, as_json)


@bench.command("cricket")
def bench_cricket(as_json: Json = False) -> None:
    """Cricket: balls a second, beside a plain NumPy batch; milliseconds of a win probability."""
    from kibitz.bench.cricket import bench as subject
    from kibitz.cli import output as show

    with show.progress("timing", 1, quiet=as_json):
        result = subject()
    show.facts(result, as_json)


def _game(name: str, contexts: str, options: list[str] | None) -> tuple[Any, Any]:
    """The game's record and its checked options."""
    from kibitz.core.options import parse_settings
    from kibitz.games import get_game

    plain = get_game(name)
    given = {**plain.contexts(contexts), **parse_settings(options or [])}
    chosen = plain.options.read(given, f"option of {name}")
    return get_game(name, chosen), chosen


def main() -> None:
    """Runs the command; a user's mistake is one sentence and exit code 2."""
    try:
        code = app(standalone_mode=False)
    except BadInput as wrong:
        print(f"kibitz: {wrong}", file=sys.stderr)
        sys.exit(2)
    except typer.TyperException as wrong:
        if text := wrong.format_message().strip():  # nothing when the help itself was the answer
            print(f"kibitz: {text}{'' if text.endswith(('.', '?', '!')) else '.'} Try --help.", file=sys.stderr)
        sys.exit(2)
    except (typer.Abort, KeyboardInterrupt):
        code = STOPPED
    if code == STOPPED:  # Typer makes it of Ctrl-C
        print("kibitz: stopped.", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)
