"""Paths: files as users name them, files that kibitz ships, the cache folder, and atomic writes."""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from kibitz.core.errors import BadInput

SMALL_BYTES = 1 << 20
PACKAGE = Path(__file__).parents[2]
SHIPPED = (PACKAGE / "configs", PACKAGE.parent / "configs")  # in a wheel, in a checkout


def named(path: str | Path) -> Path:
    """The path that the user named, with `~` expanded; BadInput if the system rejects it."""
    try:
        given = Path(path).expanduser()
        given.exists()
    except RuntimeError:
        raise BadInput(f"{str(path)!r} begins with an unknown user; write the whole path.") from None
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
        # a game keeps its own prompt: `configs/llm_prompt_GAME.txt` names it
        game = given.name.removeprefix("llm_prompt_").removesuffix(".txt")
        prompt = PACKAGE / "games" / game / "prompt.txt"
        if given.name == f"llm_prompt_{game}.txt" and prompt.is_file():
            return prompt
    if given.is_dir():
        raise BadInput(f"{str(path)!r} is a folder; name a file in it.")
    raise BadInput(f"There is no file {str(path)!r}.")


def read_small(path: Path, max_bytes: int = SMALL_BYTES) -> bytes:
    """A file from another process or user. OSError for a pipe, which could block, and for a huge file."""
    if not path.is_file():
        raise FileNotFoundError(errno.ENOENT, "not a regular file", str(path))
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"larger than {max_bytes:,} bytes", str(path))
    return content


def read_json(path: Path) -> Any:
    """The value in a small JSON file from another process or user; None if there is none."""
    try:
        return json.loads(read_small(path))
    except (OSError, ValueError, RecursionError):
        return None


def folders_in(folder: Path) -> list[Path]:
    """The folders in a folder, by name; leaves out what the system cannot follow, such as a link to an endless name."""
    try:
        return [path for path in sorted(folder.iterdir()) if is_folder(path)]
    except OSError:
        return []


def is_folder(path: Path) -> bool:
    """As `Path.is_dir`, which raises for a link whose target the system rejects."""
    return os.path.isdir(path)


def cache_folder() -> Path:
    """Where kibitz keeps files that it can make or fetch again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kibitz"


def config_folder() -> Path:
    """The user's own settings."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "kibitz"


def write_whole(path: Path, content: str | bytes | Callable[[IO[bytes]], object], *, sync: bool = False) -> None:
    """Replaces a file atomically: a reader sees the old content or the new one, never half of it, even after a crash.

    A callable writes into the open file. `sync` waits for the disk, so that even a power cut keeps one of the two.
    A link stays a link, and a replaced file keeps its mode.
    """
    path = path.resolve()
    part = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with part.open("xb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        if path.is_file():
            shutil.copymode(path, part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
