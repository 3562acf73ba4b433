"""Prints the disk space that kibitz and each extra take here, as a table in Markdown: `python tools/extra_sizes.py`.

An extra counts the packages that it adds to kibitz alone, with everything that they depend on. Only what is installed
in this environment can be measured.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

from kibitz.cli.setup import extras


def closure(lines: list[str]) -> dict[str, int]:
    """The bytes of every distribution that these requirements lead to, by name."""
    sizes: dict[str, int] = {}
    waiting, seen = [Requirement(line) for line in lines], set[str]()
    while waiting:
        wanted = waiting.pop()
        if str(wanted) in seen:
            continue
        seen.add(str(wanted))
        name = re.sub(r"[-_.]+", "-", wanted.name).lower()
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        files = [Path(str(file.locate())) for file in found.files or [] if file.suffix != ".pyc"]
        sizes[name] = sum(file.stat().st_size for file in files if file.is_file())
        for line in found.requires or []:
            needed = Requirement(line)
            if needed.marker is None or any(needed.marker.evaluate({"extra": one}) for one in ("", *wanted.extras)):
                waiting.append(needed)
    return sizes


def main() -> None:
    base = closure(["kibitz"])
    print(f"| extra | for | adds (MB) |\n| --- | --- | --- |\n| none | kibitz alone | {sum(base.values()) / 1e6:.0f} |")
    for extra, purpose in extras.PURPOSES.items():
        requirements = [line for line, name in extras.declared() if name == extra]
        added = {name: size for name, size in closure(requirements).items() if name not in base}
        megabytes = sum(added.values()) / 1e6
        print(f"| `{extra}` | {purpose} | {megabytes:.{0 if megabytes >= 10 else 1}f} |")


if __name__ == "__main__":
    main()
