"""The extras of kibitz: what each is for, which packages it needs, and the sentence for one that is missing."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec

from kibitz.core.errors import BadInput
from kibitz.core.system.paths import PACKAGE

PURPOSES = {
    "data": "contexts in Parquet files",
    "logs": "TensorBoard files, learning curves as pictures",
    "embedded": "the language model that needs neither a key nor a network",
    "hf": "language models in transformers format, on your own machine",
    "teach": "fine-tuning language models",
    "pettingzoo": "environments with both seats free",
    "live": "the live server and its cockpit",
    "openenv": "OpenEnv's own client",
    "studies": "tournament ratings",
    "speech": "spoken commentary",
    "scale": "PostgreSQL as the store, Redis between servers, work on a Ray cluster",
    "torch": "PyTorch, for a training loop of your own",
    "sb3": "Stable-Baselines3 with MaskablePPO",
    "torchrl": "collectors and losses of TorchRL",
    "mcp": "an MCP client",
    "inspect": "Inspect AI tasks",
    "verifiers": "verifiers environments",
}
# distributions whose module has another name
MODULES = {"pillow": "PIL", "piper-tts": "piper", "tensorboardx": "tensorboardX"}
POSIX_MODULES = ("fcntl", "termios")


@cache
def packages() -> dict[str, tuple[str, ...]]:
    """The distributions that each extra for users installs, by extra. A wheel's metadata has normalised names."""
    found: dict[str, list[str]] = {name: [] for name in PURPOSES}
    for requirement, extra in declared():
        if extra in found:
            name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
            found[extra].append(re.sub(r"[-_.]+", "-", name).lower())
    return {extra: tuple(sorted(names)) for extra, names in found.items()}


def declared() -> list[tuple[str, str]]:
    """Requirements and their extras: a checkout's own, because its installed metadata may be older."""
    project = PACKAGE.parent / "pyproject.toml"
    if project.is_file():
        declared = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
        return [(requirement, extra) for extra, listed in declared.items() for requirement in listed]
    pairs = (re.fullmatch(r"(.+?); extra == ['\"]([\w-]+)['\"]", line) for line in requires("kibitz") or [])
    return [(pair[1], pair[2]) for pair in pairs if pair]


def module_of(package: str) -> str:
    return MODULES.get(package, package.replace("-", "_"))


def missing(extra: str) -> list[str]:
    """The packages of an extra that cannot be imported here."""
    return [package for package in packages()[extra] if find_spec(module_of(package)) is None]


def require(extra: str) -> None:
    """BadInput unless the extra is complete: a long command must not fail halfway."""
    if absent := missing(extra):
        raise BadInput(f"{', '.join(absent)} not installed; run `{install_command(extra)}`.")


def version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown version"


def install_command(extra: str) -> str:
    return f"pip install 'kibitz[{extra}]'"


def sentence(error: ModuleNotFoundError) -> str:
    """What to do about a module that cannot be imported; empty if no extra provides it."""
    module = (error.name or "").partition(".")[0]
    if module in POSIX_MODULES:
        return f"This command needs the module {module}, which Windows does not have; run kibitz in WSL."
    for extra, names in packages().items():
        for package in names:
            if module_of(package) == module:
                return f"{package} is not installed; run `{install_command(extra)}`."
    return ""
