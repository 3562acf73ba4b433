"""How a report was made: its command, versions and machine. No host names, and no paths."""

from __future__ import annotations

import platform
import re
import shlex
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from kibitz.core.work.cores import machine_cores

# also within --out=/a/b and policy:/a/b,llm:/c.gguf
ABSOLUTE = re.compile(r"(?<![^=:,])(?:~[^/,]*)?/(?!/)(?:[^/,]+/)*?([^/,]+)/?(?=,|$)")
PACKAGES = ("kibitz", "jax", "numpy")


def provenance(seeds: str, seconds: float, argv: Sequence[str] | None = None) -> dict[str, str]:
    """The facts that every report states; `argv` is the command without its program."""
    return {
        "command": command_line(sys.argv[1:] if argv is None else argv),
        "seeds": seeds,
        "versions": ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
        + f", Python {platform.python_version()}",
        "machine": machine(),
        "time": f"{_duration(seconds)}, finished {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}",
    }


def seed_range(first: int, count: int) -> str:
    return f"{first} to {first + count - 1}" if count > 1 else str(first)


def command_line(argv: Sequence[str]) -> str:
    """The command as one could type it, with absolute paths reduced to their last part."""
    return shlex.join(["kibitz", *(ABSOLUTE.sub(r"\1", word) for word in argv)])


def machine() -> str:
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    except OSError:
        pass  # not Linux
    cores = machine_cores()
    return (
        f"{model}, {cores} core{'s' if cores != 1 else ''}, {platform.system()} {platform.machine()}{_accelerators()}"
    )


def _accelerators() -> str:
    """Devices of JAX other than the processor; does not load JAX."""
    jax = sys.modules.get("jax")
    kinds = [] if jax is None else sorted({d.device_kind for d in jax.local_devices() if d.platform != "cpu"})
    return "".join(f", {kind}" for kind in kinds)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
