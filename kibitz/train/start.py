"""Makes a run from the arguments of `kibitz train`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kibitz.core.errors import BadInput
from kibitz.core.options import parse_settings
from kibitz.core.registry import env_ids, game_names
from kibitz.core.system.paths import SHIPPED
from kibitz.train.config import Job, read_job
from kibitz.train.llm_hints.plan import fitted
from kibitz.train.run.run import Report, Run

DEFAULT_CONFIG = "configs/ppo_fast.yaml"


def train(
    config: str | Path | None = None,
    *,
    game: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    report: Report = lambda progress: None,
    options: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> dict[str, Any]:
    """Trains a policy and returns what `kibitz train --json` prints; `run` is its folder.

    Without `config` and `game` it trains on Deal or No Deal with `configs/ppo_fast.yaml`. Others are `algo`,
    `hint`, `opponent`, `seed`, `seeds` and `steps`, as on the command line. `options` sets keys of the config, as in
    `{"train.lr": 1e-3}`. `report` is called with the metrics of every row.
    """
    if config is None and game is None and not resume and "env.id" not in (options or {}):
        config = DEFAULT_CONFIG
    settings = [f"{name}={json.dumps(value)}" for name, value in (options or {}).items()]
    places = {"config": None if config is None else str(config), "out": None if out is None else str(out)}
    run = prepare(**places, game=game, resume=resume, options=settings, **arguments)
    run.report = report
    return run.train(resume)


def prepare(*, config: str | None = None, out: str | None = None, resume: bool = False, **arguments: Any) -> Run:
    """A checked run with its folder, into which nothing has been written yet; `changes_of` has the other arguments."""
    if resume and out is None:
        raise BadInput("--resume needs --out, the folder of the run to continue.")
    changes = changes_of(**arguments)
    if resume:
        return _resumed(Path(str(out)), config, changes)
    job = read_job(config or default_config(changes), changes)
    run = Run(job, Path(out) if out else _folder(job))
    run.check(resume=False)
    return run


def default_config(changes: Mapping[str, Any]) -> str | None:
    """The config kibitz ships for a job that names none: its game's own, or else one whose values suit any game."""
    env = changes.get("env")
    env_id = env.get("id") if isinstance(env, dict) else None
    algo = changes.get("algo", Job.model_fields["algo"].default)
    for name in (f"configs/{algo}_{env_ids().get(str(env_id), '')}.yaml", f"configs/{algo}_fast.yaml"):
        if any((folder.parent / name).is_file() for folder in SHIPPED):
            return name
    return None


def changes_of(
    *,
    algo: str | None = None,
    hint: str | None = None,
    game: str | None = None,
    opponent: str | None = None,
    seed: int | None = None,
    seeds: int | None = None,
    steps: int | None = None,
    options: Sequence[str] = (),  # `name=value`
) -> dict[str, Any]:
    """What these arguments change in a config."""
    changes: dict[str, Any] = parse_settings(list(options))
    flags = {"algo": algo, "opponent": opponent, "seed": seed, "seeds": seeds}
    changes |= {name: value for name, value in flags.items() if value is not None}
    for group, name, value in (("hints", "mode", hint), ("train", "num_train_steps", steps), ("env", "id", _id(game))):
        if value is not None:
            if not isinstance(changes.setdefault(group, {}), dict):
                raise BadInput(f"{group!r} is a table of keys, not {changes[group]!r}; set {group}.{name}.")
            changes[group][name] = value
    return changes


def _resumed(folder: Path, config: str | None, changes: dict[str, Any]) -> Run:
    """The run in a folder. Arguments may repeat what it was started with, or add steps, but change nothing else."""
    path = folder / "config.yaml"
    if not path.is_file() or not path.stat().st_size:
        raise BadInput(f"There is no run to resume in {folder}; start it without --resume.")
    run = Run(read_job(path, {}), folder)
    asked, _ = fitted(read_job(config or path, changes))
    if asked.train.fused is None:  # no preference; a run from before this was the default has one
        train = asked.train.model_copy(update={"fused": run.job.train.fused})
        asked = asked.model_copy(update={"train": train})
    if asked != run.job:
        longer = run.job.with_steps(asked.train.num_train_steps)
        if asked != longer:
            raise BadInput(f"{_difference(longer, asked)} in {path}; --resume can only add steps.")
        if asked.train.num_train_steps < run.job.train.num_train_steps:
            raise BadInput(f"{_difference(run.job, asked)} in {path}; --resume can add steps, not remove them.")
        run = Run(asked, folder)
    run.check(resume=True)
    return run


def _difference(old: Job, new: Job) -> str:
    """The first key that differs."""
    was, now = (_flat(job.model_dump(mode="json")) for job in (old, new))
    name = next(name for name in {**was, **now} if was.get(name) != now.get(name))
    return f"{name} is {now.get(name)!r} here but {was.get(name)!r}"


def _flat(values: dict[str, Any], outer: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= _flat(value, f"{outer}{name}.") if isinstance(value, dict) else {f"{outer}{name}": value}
    return found


def _id(game: str | None) -> str | None:
    if game is None:
        return None
    for env_id, name in env_ids().items():
        if name == game:
            return env_id
    raise BadInput(f"There is no game {game!r}; choose one of {', '.join(game_names())}.")


def _folder(job: Job) -> Path:
    """An unused folder, named after what is trained."""
    base = Path(job.logging.output_dir)
    name = f"{job.env.game}-{job.algo}-{job.hints.mode}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder, number = base / name, 1
    while folder.exists():
        number += 1
        folder = base / f"{name}-{number}"
    return folder
