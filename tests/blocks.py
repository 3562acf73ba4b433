"""The code blocks of the documentation, and the marks in front of them.

A comment in front of a block says how a test runs it: `<!-- not run: REASON -->`, `<!-- run with: COMMAND: OPTIONS -->`
(fewer steps or episodes than a reader wants; several with `; `), `<!-- typed: TEXT -->` (what a person answers),
`<!-- needs: weights -->` or `<!-- needs: server -->`. A Python or YAML block whose first line is a comment with a file
name is written to that file.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
GENERATED = ("reference/", "results/")  # by commands, which have tests of their own
FENCE = re.compile(r"((?:^<!-- [^>]* -->\n)*)^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"", "python", "yaml", "toml", "text", "mermaid"}  # "" is a shell


class Block(NamedTuple):
    page: str
    line: int
    language: str
    code: str
    marks: dict[str, str]

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def not_run(self) -> str:
        return self.marks.get("not run", "")

    @property
    def file(self) -> str:
        """The file that the first line names."""
        named = re.match(r"# ([\w-]+\.(?:py|yaml))\n", self.code)
        return named[1] if named else ""

    def commands(self) -> list[list[str]]:
        """The words of each line of a shell block, with the options that make it short."""
        shorter: dict[str, list[str]] = {}
        for part in filter(None, self.marks.get("run with", "").split("; ")):
            command, _, options = part.partition(": ")
            shorter[command] = shlex.split(options)
        found = []
        for line in self.code.splitlines():
            if words := shlex.split(line, comments=True):
                named = next((name for name in (" ".join(words[1:3]), " ".join(words[1:2])) if name in shorter), None)
                found.append([*words, *(shorter[named] if named else [])])
        return found


def pages() -> dict[str, Path]:
    """Every page that people write, by its name in docs/, or its path."""
    found = {name: ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")}
    docs = ROOT / "docs"
    every = {path.relative_to(docs).as_posix(): path for path in sorted(docs.rglob("*.md"))}
    return found | {name: path for name, path in every.items() if not name.startswith(GENERATED)}


def blocks_of(page: str, text: str) -> list[Block]:
    found = []
    for match in FENCE.finditer(text):
        marks = dict(re.findall(r"<!-- ([\w ]+): (.*?) -->", match[1]))
        line = text[: match.start(2)].count("\n") + 1
        found.append(Block(page, line, match[2], match[3], marks))
    return found


def all_blocks() -> dict[str, list[Block]]:
    return {name: blocks_of(name, path.read_text(encoding="utf-8")) for name, path in pages().items()}
