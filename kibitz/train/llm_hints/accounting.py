"""What a run records about its language models: their prompts, and what they were asked and cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kibitz.advice.batch import columns
from kibitz.core.errors import BadInput
from kibitz.core.system.paths import read_json, write_whole
from kibitz.llm.client.usage import UsageLedger
from kibitz.train.llm_hints.loop import HostHintLoop
from kibitz.train.llm_judge.loop import HostJudgeLoop

NOTE = "evaluations within the run hear no hints of the language model; `kibitz evaluate --hint own` asks for them"


class ModelAccounting:
    """The language models of a run's phases, which either all advise or all judge. Without any it does nothing."""

    def __init__(self, hosts: Iterable[HostHintLoop | HostJudgeLoop], folder: Path) -> None:
        self.hosts = list(hosts)
        self.sources = [host.source for host in self.hosts]
        self.folder = folder
        self.earlier = UsageLedger()  # of the run before it was resumed
        texts = dict.fromkeys(source.prompt.text for source in self.sources)
        names = ["prompt.txt", *(f"prompt_{number}.txt" for number in range(2, len(texts) + 1))]
        self.prompts = dict(zip(names, texts, strict=False))

    def __bool__(self) -> bool:
        return bool(self.hosts)

    @property
    def about(self) -> str:
        """`hints` or `judge`: the key in the run's record and the prefix of the columns."""
        return next((source.about for source in self.sources), "hints")

    @property
    def columns(self) -> tuple[str, ...]:
        """Of metrics.csv."""
        return columns(self.about) if self else ()

    def record(self) -> dict[str, Any]:
        return {self.about: self.usage()} if self else {}

    def check(self) -> None:
        """Raises BadInput if the run in the folder was started with other prompts."""
        for name, text in self.prompts.items():
            file = self.folder / name
            if file.is_file() and file.read_text(encoding="utf-8") != text:
                where = next(source.prompt.where for source in self.sources if source.prompt.text == text)
                raise BadInput(
                    f"{where} differs from the prompt that the run was started with; restore it from {file}."
                )

    @contextmanager
    def recording(self, record: Callable[[], None]) -> Iterator[None]:
        """Writes the prompts into the folder; at the end, also after an error, closes the models and calls `record`."""
        for name, text in self.prompts.items():
            if not (self.folder / name).exists():  # a resumed run has the same ones, see `check`
                write_whole(self.folder / name, text)
        try:
            yield
        finally:
            for host in self.hosts:
                host.close()
            if self.hosts:
                record()

    def resume(self) -> None:
        """Continues the counts of the run before it was stopped, from its run.json."""
        record = read_json(self.folder / "run.json")
        with suppress(AttributeError, TypeError, ValueError):  # a damaged record counts from zero
            self.earlier = UsageLedger.from_dict(record.get(self.about, {}))

    def usage(self) -> dict[str, Any]:
        """What was asked in all phases, by outcome, and what it cost; includes the run before it was resumed."""
        ledgers = [ledger for source in self.sources for ledger in source.ledgers]
        return UsageLedger.total([self.earlier, *ledgers]).as_dict()
