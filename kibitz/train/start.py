"""From a command line to a run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import yaml

from kibitz.core.errors import BadInput
from kibitz.core.options import parse_settings
from kibitz.games import ENV_IDS
from kibitz.train.config import Job, read_job
from kibitz.train.run import Run


def prepare(
    algo: str | None,
    hint: str | None,
    config: str | None,
    game: str | None,
    opponent: str | None,
    seed: int | None,
    seeds: int | None,
    steps: int | None,
    out: str | None,
    resume: bool,
    options: list[str],
) -> Run:
    """A run that is checked and has written nothing yet."""
    if resume:
        if out is None:
            raise BadInput("--resume needs --out, the folder of the run to go on with.")
        return _old(Path(out))
    changes: dict[str, Any] = parse_settings(options)
    flags = {"algo": algo, "opponent": opponent, "seed": seed, "seeds": seeds}
    changes |= {name: value for name, value in flags.items() if value is not None}
    for group, name, value in (("hints", "mode", hint), ("train", "num_train_steps", steps), ("env", "id", _id(game))):
        if value is not None:
            changes.setdefault(group, {})[name] = value
    job = read_job(config, changes)
    return Run(job, Path(out) if out else _folder(job))


def _old(folder: Path) -> Run:
    path = folder / "config.yaml"
    if not path.is_file():
        raise BadInput(f"There is no run to resume in {folder}; start it without --resume.")
    return Run(Job.read(yaml.safe_load(path.read_text(encoding="utf-8")), "key of the run's config"), folder)


def _id(game: str | None) -> str | None:
    if game is None:
        return None
    for env_id, name in ENV_IDS.items():
        if name == game:
            return env_id
    raise BadInput(f"There is no game {game!r}; there are {', '.join(ENV_IDS.values())}.")


def _folder(job: Job) -> Path:
    """A folder nobody has used, named after what is trained."""
    base = Path(job.logging.output_dir)
    name = f"{job.env.game}-{job.algo}-{job.hints.mode}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder, number = base / name, 1
    while folder.exists():
        number += 1
        folder = base / f"{name}-{number}"
    return folder
