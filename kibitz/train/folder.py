"""A run's folder: one training at a time, and the file system's errors as sentences."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kibitz.core.errors import BadInput


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
