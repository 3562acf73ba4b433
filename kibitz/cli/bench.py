"""`kibitz bench`: how fast this machine is, next to the alternatives installed on it."""

from __future__ import annotations

from typing import Annotated

import typer

from kibitz.cli import output
from kibitz.cli.options import DEFAULT_GAME, GameName, GameOptions, JobOptions, Json, Opponent, Seed, read_game

app = typer.Typer(help="Measure speed on this machine, next to the alternatives.", no_args_is_help=True)

Seconds = Annotated[float, typer.Option("--seconds", min=0.1, help="Time per subject, in seconds")]


@app.command("env")
def bench_env(seconds: Seconds = 3.0, as_json: Json = False) -> None:
    """Measure steps per second: single environment, vector environment, batched rules and OpenSpiel."""
    from kibitz.bench import env

    with output.progress("timing", len(env.SUBJECTS), quiet=as_json) as advance:
        found = env.run(seconds, advance)
    output.result(found, as_json, output.bench_table)


@app.command("train")
def bench_train(
    seconds: Seconds = 10.0,
    config: Annotated[
        str, typer.Option("--config", help="Config of the job to train to 95 %")
    ] = "configs/ppo_fast.yaml",
    options: JobOptions = None,
    max_seconds: Annotated[
        float, typer.Option("--max-seconds", min=1, help="Stop training towards 95 % after this many seconds")
    ] = 300.0,
    as_json: Json = False,
) -> None:
    """Measure training steps per second and the time to 95 % of the reference, next to Stable-Baselines3."""
    from kibitz.bench import train
    from kibitz.core.options import parse_settings
    from kibitz.train.config import read_job

    job = read_job(config, parse_settings(options or []))
    with output.progress("timing", len(train.SUBJECTS), quiet=as_json) as advance:
        found = train.run(seconds, job, max_seconds, advance)
    output.result(found, as_json, output.train_bench_table)


@app.command("start")
def bench_start(
    config: Annotated[str, typer.Option("--config", help="Config of the job to start")] = "configs/ppo_fast.yaml",
    as_json: Json = False,
) -> None:
    """Measure seconds from a command to its first training step, with an empty and with a warm cache of programs."""
    from kibitz.bench import start

    with output.progress("timing", 1 + start.WARM_RUNS, quiet=as_json) as advance:
        found = start.run(config, advance)
    output.facts(found, as_json)


@app.command("gpu")
def bench_gpu(
    seconds: Seconds = 3.0,
    games: Annotated[
        list[int] | None, typer.Option("--games", min=1, help="Number of games; repeat it; default: 4096 and 65536")
    ] = None,
    config: Annotated[
        str, typer.Option("--config", help="Config of the job to train and to start")
    ] = "configs/ppo_gpu.yaml",
    as_json: Json = False,
) -> None:
    """Measure this device: environments, rollout, training with the plain and the fused learner, and starts."""
    from kibitz.bench import gpu

    counts = tuple(games or gpu.GAMES)
    with output.progress("timing", gpu.subjects(counts), quiet=as_json) as advance:
        found = gpu.run(seconds, counts, config, advance)
    output.result(found, as_json, output.gpu_bench_table)


@app.command("work")
def bench_work(
    workers: Annotated[int, typer.Option("--workers", min=2, max=64, help="Processes to compare with one")] = 2,
    as_json: Json = False,
) -> None:
    """Measure how much faster several workers play a tournament than one, and the overhead of an item."""
    from kibitz.bench import work

    with output.progress("timing", 3 * work.ROUNDS + 1, quiet=as_json) as advance:
        found = work.run(workers, progress=advance)
    output.facts(found, as_json)


@app.command("gap")
def bench_gap(
    player: Annotated[str, typer.Option("--player", help="Player to measure: a bot, or policy:RUN")],
    game: GameName = DEFAULT_GAME,
    opponent: Opponent = None,
    episodes: Annotated[int, typer.Option("--episodes", min=2, help="Number of contexts")] = 20_480,
    seed: Seed = 0,
    options: GameOptions = None,
    as_json: Json = False,
) -> None:
    """Measure on which turns a player falls behind the reference: it plays k turns, the reference the rest."""
    from kibitz.bench import gap
    from kibitz.core.envs.setup import default_opponent
    from kibitz.core.play.resolve import bot_for

    record, chosen = read_game(game, options)
    bots = bot_for(record, player), bot_for(record, opponent or default_opponent(record))
    with output.progress("playing", gap.series_of(record, chosen.settings()), quiet=as_json) as advance:
        found = gap.run(record, chosen.settings(), *bots, episodes, seed, advance)
    output.result(found, as_json, output.gap_table)


@app.command("hints")
def bench_hints(
    updates: Annotated[int, typer.Option("--updates", min=1, help="Number of updates in each timed run")] = 20,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Number of timed runs of each kind")] = 5,
    options: JobOptions = None,
    as_json: Json = False,
) -> None:
    """Measure training with hints from the host: random hints, cached LLM hints, and calls against their latency."""
    from kibitz.bench import hints
    from kibitz.core.options import parse_settings

    with output.progress("timing", 3 * repeats + 2, quiet=as_json) as advance:
        found = hints.run(updates, repeats, parse_settings(options or []), advance)
    output.facts(found, as_json)


@app.command("cricket")
def bench_cricket(as_json: Json = False) -> None:
    """Measure cricket: balls per second next to a plain NumPy batch, and milliseconds per win probability."""
    from kibitz.bench.cricket import bench

    with output.progress("timing", 1, quiet=as_json):
        found = bench()
    output.facts(found, as_json)
