"""The prompt: a template file, checked before the first question, with a limit on the history."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import jinja2
import jinja2.meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from kibitz.core.errors import BadInput
from kibitz.core.system.paths import find
from kibitz.llm.answers.answer import Answer

DEFAULT = "configs/llm_prompt.txt"
HISTORY = "history_str"  # one line per past act, oldest first
# Before the question to a taught model: otherwise its chat template may add a system text, which costs time to read.
NO_SYSTEM_TEXT = {"role": "system", "content": ""}

_jinja = ImmutableSandboxedEnvironment(
    undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
)


class Prompt:
    """A template with strict variable names. Put constant text first: models reuse a prefix they have read."""

    def __init__(
        self,
        text: str,
        where: str = "the prompt",
        *,
        max_history_turns: int | None = None,  # keeps the newest lines of the history
        max_prompt_chars: int | None = None,  # drops the oldest lines until the prompt fits
    ) -> None:
        self.text, self.where = text, where
        self.max_history_turns, self.max_prompt_chars = max_history_turns, max_prompt_chars
        try:
            self.names = frozenset(jinja2.meta.find_undeclared_variables(_jinja.parse(text)))
            self.template = _jinja.from_string(text)
        except jinja2.TemplateError as error:
            raise BadInput(f"{where} is not a valid template: {error}.") from None
        if not text.strip():
            raise BadInput(f"{where} is empty; it must be a template that describes the position.")

    @classmethod
    def read(
        cls, path: str | Path = DEFAULT, *, max_history_turns: int | None = None, max_prompt_chars: int | None = None
    ) -> Prompt:
        """From a file; `configs/...` falls back to the one that kibitz ships."""
        file = find(path)
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"Cannot read the prompt {file}: {error}.") from None
        return cls(text, str(file), max_history_turns=max_history_turns, max_prompt_chars=max_prompt_chars)

    @property
    def version(self) -> str:
        """Changes with the template and its limits; part of every cache key."""
        identity = f"{self.text}\0{self.max_history_turns}\0{self.max_prompt_chars}"
        return hashlib.sha256(identity.encode()).hexdigest()[:16]

    def check(self, sample: Mapping[str, str]) -> None:
        """At startup, with the variables of any position: BadInput for unknown names, no names, or limits too tight."""
        if unknown := sorted(self.names - set(sample)):
            known = ", ".join(sorted(sample))
            raise BadInput(f"{self.where} uses unknown variables: {', '.join(unknown)}; use only {known}.")
        bare = self._fill({**sample, HISTORY: ""})
        if self.max_prompt_chars is not None and len(bare) > self.max_prompt_chars:
            raise BadInput(
                f"max_prompt_chars is {self.max_prompt_chars}, but {self.where} needs {len(bare)} without any history."
            )
        if not self.names:
            known = ", ".join(sorted(sample))
            raise BadInput(f"{self.where} uses no variable, so every question would be the same; use some of {known}.")

    def render(self, variables: Mapping[str, str]) -> str:
        """The whole prompt. Only the history is shortened, never the position."""
        lines = variables.get(HISTORY, "").splitlines()
        kept = lines if self.max_history_turns is None else lines[max(0, len(lines) - self.max_history_turns) :]
        text = self._fill({**variables, HISTORY: "\n".join(kept)})
        while self.max_prompt_chars is not None and len(text) > self.max_prompt_chars and kept:
            excess = len(text) - self.max_prompt_chars
            while kept and excess > 0:
                excess -= len(kept[0]) + 1
                kept = kept[1:]
            text = self._fill({**variables, HISTORY: "\n".join(kept)})
        return text

    def messages(self, variables: Mapping[str, str]) -> list[dict[str, str]]:
        """For `Client.ask`; remote providers prepend a system message unless there is one."""
        return [{"role": "user", "content": self.render(variables)}]

    def _fill(self, variables: Mapping[str, str]) -> str:
        try:
            return self.template.render(variables)
        except Exception as error:  # a template can evaluate any expression, such as 1 / 0
            raise BadInput(f"Cannot fill in {self.where}: {str(error) or type(error).__name__}.") from None


def system_message(answer: Answer, flat: bool = False) -> dict[str, str]:
    """Demands one line of JSON from remote models; the same for every position of a game."""
    arrays = tuple(tuple(field.flat_names) if flat and field.array else () for field in answer.fields)
    return {"role": "system", "content": _demand(tuple(answer.names), arrays)}


@lru_cache(maxsize=256)
def _demand(names: tuple[str, ...], arrays: tuple[tuple[str, ...], ...]) -> str:
    pairs = list(zip(names, arrays, strict=True))
    keys = ", ".join(", ".join(entries) or name for name, entries in pairs)
    meaning = "".join(f" {', '.join(entries)} are the entries of {name}." for name, entries in pairs if entries)
    return (
        f"Reply with exactly one JSON object on a single line, with the keys {keys} and no others.{meaning} "
        "No prose, no code fences, no line breaks, nothing before or after the object."
    )
