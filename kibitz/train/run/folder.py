"""A run's folder: one training at a time, and the file system's errors as sentences."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kibitz.core.errors import BadInput
from kibitz.core.xla import hosts
from kibitz.train.run import checkpoint


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """Turns a file system error about a new folder into BadInput."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"{folder} cannot hold a run ({error.strerror}); choose another --out.") from None


@contextmanager
def written_by_us(folder: Path) -> Iterator[None]:
    """Locks the folder, at most until the process ends, and turns a full disk into BadInput."""
    with new_folder(folder):
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInput(f"Another training writes to {folder}; choose another --out, or wait for its end.") from None
        except OSError:  # a file system without locks
            pass
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise BadInput(
            f"{folder} can no longer be written ({reason}); solve this, then continue the run with --resume."
        ) from None
    finally:
        os.close(descriptor)


@contextmanager
def own_folder(out: str | None, resume: bool) -> Iterator[str | None]:
    """Where this process writes: `out` for the first of several hosts, a temporary folder for the others.

    So process 0 writes the run, and hosts need to share no file system.
    """
    if not hosts.several():
        yield out
        return
    files = hosts.broadcast(_to_resume(Path(str(out))) if resume and hosts.is_first() else {}) if resume else {}
    if hosts.is_first():
        yield out
        return
    folder = Path(tempfile.mkdtemp(prefix="kibitz-train-"))
    try:
        for name, content in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)
        yield str(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _to_resume(folder: Path) -> dict[str, bytes]:
    """The config and the newest checkpoint; nothing if there is no run, which process 0 then reports."""
    if not (folder / "config.yaml").is_file():
        return {}
    newest, _ = checkpoint.newest(folder / "checkpoints")
    paths = [folder / "config.yaml", *([newest.path] if newest else [])]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}
