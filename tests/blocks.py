"""The code blocks of the documentation, and the marks in front of them.

Comments in front of a block say how a test runs it; `; ` separates several entries of one:
- `<!-- not run: REASON -->`
- `<!-- run with: COMMAND: OPTIONS -->`: appends options, such as fewer steps than a reader wants; the last value of an
  option counts. COMMAND may contain other words that the line must have: `train --resume`.
- `<!-- with: WORDS = OTHERS -->`: replaces an example's name, such as that of a host or folder.
- `<!-- typed: TEXT -->`: what a person answers.
- `<!-- needs: NAME -->`: a server or a fixture of tests/block_needs.py. `{NAME}` in the marks above is its value.
A Python, YAML or TOML block whose first line is a comment with a file name is written there before the page runs.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
GENERATED = ("reference/", "results/")  # by commands, which have tests of their own
FENCE = re.compile(r"((?:^<!-- [^>]* -->\n)*)^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEED = re.compile(r"\{(\w+)\}")
PROGRAMS = {"kibitz", "export", "pip", "pytest", "python"}  # that tests/test_blocks.py runs
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
        named = re.match(r"# (?:~/[\w./]*/)?([\w-]+\.(?:py|yaml|toml))\n", self.code)
        return named[1] if named else ""

    @property
    def needs(self) -> list[str]:
        """Everything that the marks name."""
        named = [name for name in self.marks.get("needs", "").split("; ") if name]
        return named + NEED.findall(f"{self.marks.get('run with')} {self.marks.get('with')}")

    def filled(self, values: dict[str, object]) -> Block:
        """Runs here: with the values of its needs instead of an example's names."""
        marks = {kind: NEED.sub(lambda name: str(values[name[1]]), text) for kind, text in self.marks.items()}
        code = self.code
        for words, others in entries(marks.get("with", ""), " = "):
            assert words in code, f"{self.where}: no {words!r} to replace"
            code = code.replace(words, others)
        return self._replace(code=code, marks=marks)

    def commands(self) -> list[list[str]]:
        """The words of each line of a shell block, with the options that make it short."""
        marked = entries(self.marks.get("run with", ""), ": ")
        shorter = [(name.split(), shlex.split(options)) for name, options in marked]
        found, used = [], []
        for line in self.code.splitlines():
            if words := shlex.split(line, comments=True):
                fitting = [one for one in shorter if fits(one[0], words)]
                named, options = max(fitting, key=lambda one: len(one[0]), default=([], []))
                used.append(named)
                found.append([*words, *options])
        idle = [" ".join(name) for name, _ in shorter if name not in used]
        assert not idle, f"{self.where}: no line for {idle}"
        return found


def entries(mark: str, between: str) -> list[tuple[str, str]]:
    parts = [part.partition(between) for part in filter(None, mark.split("; "))]
    return [(name, text) for name, _, text in parts]


def fits(name: list[str], words: list[str]) -> bool:
    return name[0] == words[1] and set(name) <= set(words)


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
