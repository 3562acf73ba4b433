"""What a run keeps of its language models: their templates, and what they were asked and did cost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kibitz.core.errors import BadInput
from kibitz.core.paths import write_whole
from kibitz.train.llm_hints.loop import Hosted
from kibitz.train.program import Program

NOTE = "hints of a language model are for training; evaluations are played without them"


class Whispers:
    """The language models of a run's phases; none, and nothing here does anything."""

    def __init__(self, programs: Iterable[Program], folder: Path) -> None:
        self.hosts: list[Hosted] = [program.host for program in programs if program.host is not None]
        self.sources = [host.source for host in self.hosts]
        self.folder = folder
        self.earlier: Mapping[str, Any] = {}  # the book of the run's earlier lives
        texts = dict.fromkeys(source.prompt.text for source in self.sources)
        names = ["prompt.txt", *(f"prompt_{number}.txt" for number in range(2, len(texts) + 1))]
        self.prompts = dict(zip(names, texts, strict=False))

    def __bool__(self) -> bool:
        return bool(self.hosts)

    def check(self) -> None:
        """BadInput if the run in the folder was begun with other templates."""
        for name, text in self.prompts.items():
            file = self.folder / name
            if file.is_file() and file.read_text(encoding="utf-8") != text:
                where = next(source.prompt.where for source in self.sources if source.prompt.text == text)
                raise BadInput(f"{where} is not the prompt that the run was begun with, which is kept in {file}.")

    @contextmanager
    def at_work(self, record: Callable[[], None]) -> Iterator[None]:
        """Templates into the folder; in the end books are closed, however it ends, and `record` is called."""
        for name, text in self.prompts.items():
            if not (self.folder / name).exists():  # a later life has the same: see `check`
                write_whole(self.folder / name, text)
        try:
            yield
        finally:
            for host in self.hosts:
                host.close()
            if self.hosts:
                record()

    def remember(self) -> None:
        """A run that goes on has its earlier lives' costs in run.json."""
        with suppress(OSError, ValueError):
            self.earlier = json.loads((self.folder / "run.json").read_text(encoding="utf-8")).get("hints", {})

    def book(self) -> dict[str, Any]:
        """What was asked in all phases and lives, by outcome, and what it cost."""
        whole = dict(self.earlier)
        for source in self.sources:
            whole = added(whole, source.book())
        return whole


def added(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Two tables of counts, tables within them too."""
    whole: dict[str, Any] = {}
    for name in {**one, **other}:
        if isinstance(one.get(name, other.get(name)), Mapping):
            whole[name] = added(one.get(name, {}), other.get(name, {}))
        else:
            whole[name] = one.get(name, 0) + other.get(name, 0)
    return whole
