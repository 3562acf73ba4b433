"""Checkpoints: one safetensors file each, written atomically, and refused if they do not fit."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.system.logs import log_once
from kibitz.core.system.paths import is_folder, write_whole

log = logging.getLogger("kibitz.train")

FORMAT = "1"
MAX_WEIGHTS = 1 << 28  # numbers of 4 bytes
NAME = "step_{:012d}.safetensors"


class Saved(NamedTuple):
    """The content of a checkpoint file."""

    path: Path
    step: int
    game: str
    version: int
    job: dict[str, Any]
    leaves: dict[str, np.ndarray[Any, Any]]
    digests: dict[str, str]  # SHA-256 of each leaf


def write(folder: Path, learner: Any, step: int, game: Game, job: dict[str, Any]) -> Path:
    """Saves the whole learner."""
    leaves = {f"leaf_{i:03d}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(learner))}
    leaves["weights"] = np.asarray(learner.weights)
    about = {
        "format": FORMAT,
        "step": str(step),
        "game": game.name,
        "version": str(game.version),
        "job": json.dumps(job),
        "sha256": json.dumps({name: _checksum(leaf) for name, leaf in leaves.items()}),
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME.format(step)
    content = save({name: np.ascontiguousarray(leaf) for name, leaf in leaves.items()}, about)
    write_whole(path, content, sync=True)
    return path


def read(path: Path, whole: bool = True) -> Saved:
    """Raises BadInput if the file is not a complete checkpoint. Without `whole` it loads only the weights, to play.

    The header is checked before anything is loaded.
    """
    if not path.is_file():
        raise BadInput(f"{path} is not a file; name one from a run's checkpoints folder.")
    try:
        with safe_open(path, "np") as file:
            saved, checksums = _header(path, file)
            for name in file.keys() if whole else ("weights",):
                saved.leaves[name] = leaf = file.get_tensor(name)
                saved.digests[name] = digest = _checksum(leaf)
                if checksums.get(name, digest) != digest:
                    raise BadInput(f"{path} is damaged (the checksum of {name} differs); use an earlier one.")
    except (SafetensorError, OSError, TypeError) as error:
        raise BadInput(f"{path} is not a complete checkpoint ({error}); use an earlier one.") from None
    if not np.isfinite(saved.leaves["weights"]).all():
        raise BadInput(f"{path} has weights that are not finite, because training diverged; use an earlier one.")
    return saved


def _header(path: Path, file: Any) -> tuple[Saved, dict[str, str]]:
    """What a file says about itself, without its arrays, and their checksums."""
    about = file.metadata() or {}
    try:
        weights = file.get_slice("weights")
        job, checksums = json.loads(about["job"]), json.loads(about.get("sha256", "{}"))
        saved = Saved(path, int(about["step"]), about["game"], int(about["version"]), job, {}, {})
        shape = weights.get_shape()
        valid = about["format"] == FORMAT and weights.get_dtype() == "F32" and len(shape) == 2 and saved.step >= 0
        if not valid or not isinstance(job, dict) or not isinstance(checksums, dict):
            raise ValueError
    except (KeyError, ValueError, RecursionError, SafetensorError):
        raise BadInput(f"{path} is not a kibitz checkpoint; name one from a run's checkpoints folder.") from None
    if math.prod(shape) > MAX_WEIGHTS:
        raise BadInput(f"{path} has {math.prod(shape):,} weights; kibitz reads at most {MAX_WEIGHTS:,}.")
    return saved, checksums


def _checksum(leaf: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(leaf.tobytes()).hexdigest()


def files_in(folder: Path) -> list[Path]:
    """The files of a run's checkpoints, newest first."""
    return sorted(folder.glob("step_*.safetensors"), reverse=True) if is_folder(folder) else []


def newest(folder: Path, whole: bool = True) -> tuple[Saved | None, list[str]]:
    """The newest complete checkpoint of a folder, and the errors of newer ones."""
    refused: list[str] = []
    for path in files_in(folder):
        try:
            return read(path, whole), refused
        except BadInput as error:
            refused.append(str(error))
    return None, refused


def find(name: str, notes: list[str] | None = None) -> Saved:
    """The weights in a run's folder or file. Logs and notes why newer checkpoints were not used."""
    path = Path(name)
    try:
        if path.is_file():
            return read(path, whole=False)
        saved, refused = newest(path / "checkpoints", whole=False)
    except OSError as error:  # a name that is too long, a folder without permission
        raise BadInput(f"{name!r:.80} cannot be read ({error.strerror}); name a run's folder or a file.") from None
    if saved is None and refused:
        raise BadInput(refused[0])
    if saved is None:
        raise BadInput(f"There is no checkpoint in {name!r}; name a run's folder or a .safetensors file.")
    for reason in refused:
        note = f"{saved.path} replaces a newer checkpoint: {reason}"
        log_once(log, note)
        if notes is not None:
            notes.append(note)
    return saved


def check_fits(saved: Saved, game: Game) -> None:
    """Raises BadInput unless the checkpoint was trained on this version of this game."""
    if (saved.game, saved.version) != (game.name, game.version):
        raise BadInput(
            f"{saved.path} was trained on {saved.game} version {saved.version}; "
            f"it does not fit {game.name} version {game.version}."
        )


def restore(saved: Saved, like: Any) -> Any:
    """The learner of a checkpoint; `like` has its shapes."""
    leaves, tree = jax.tree.flatten(like)
    loaded = [saved.leaves.get(f"leaf_{i:03d}") for i in range(len(leaves))]
    for old, new in zip(leaves, loaded, strict=True):
        if new is None or new.shape != old.shape or new.dtype != old.dtype:
            raise BadInput(f"{saved.path} was made with another configuration; resume with that one.")
    return jax.tree.unflatten(tree, [jnp.asarray(leaf) for leaf in loaded])
