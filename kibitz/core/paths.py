"""Where things are: shipped files, and what can be made again."""

from __future__ import annotations

import os
from pathlib import Path

from kibitz.core.errors import BadInput

PACKAGE = Path(__file__).parent.parent
SHIPPED = (PACKAGE / "configs", PACKAGE.parent / "configs")  # in a wheel, in a checkout


def named(path: str | Path) -> Path:
    """What the user named, with `~` written out; BadInput where that cannot be so much as looked at."""
    try:
        given = Path(path).expanduser()
        given.exists()
    except RuntimeError:
        raise BadInput(f"{str(path)!r} begins with a user who is not known here; write the folder out.") from None
    except OSError as error:
        raise BadInput(f"{str(path)!r} cannot be a file ({error.strerror}); name another.") from None
    return given


def find(path: str | Path) -> Path:
    """A file as the user named it; `configs/...` falls back to the one kibitz ships."""
    given = named(path)
    if given.is_file():
        return given
    if given.parts[:1] == ("configs",):
        for folder in SHIPPED:
            if (shipped := folder.joinpath(*given.parts[1:])).is_file():
                return shipped
    if given.is_dir():
        raise BadInput(f"{str(path)!r} is a folder; name a file in it.")
    raise BadInput(f"There is no file {str(path)!r}.")


def cache_folder() -> Path:
    """Where kibitz keeps what can be made or fetched again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kibitz"


def config_folder() -> Path:
    """The user's own settings."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "kibitz"
