"""Where things are: shipped files, and what can be made again."""

from __future__ import annotations

import os
from pathlib import Path

from kibitz.core.errors import BadInput

PACKAGE = Path(__file__).parent.parent
SHIPPED = (PACKAGE / "configs", PACKAGE.parent / "configs")  # in a wheel, in a checkout


def find(path: str | Path) -> Path:
    """A file as the user named it; `configs/...` falls back to the one kibitz ships."""
    given = Path(path).expanduser()
    if given.is_file():
        return given
    if given.parts[:1] == ("configs",):
        for folder in SHIPPED:
            if (shipped := folder.joinpath(*given.parts[1:])).is_file():
                return shipped
    raise BadInput(f"There is no file {str(path)!r}.")


def cache_folder() -> Path:
    """Where kibitz keeps what can be made or fetched again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kibitz"
