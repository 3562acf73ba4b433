"""The prompt: a template file, checked before anything is asked, and capped where history grows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import jinja2
import jinja2.meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from kibitz.core.errors import BadInput
from kibitz.core.paths import find
from kibitz.llm.answers.answer import Answer

DEFAULT = "configs/llm_prompt.txt"
HISTORY = "history_str"  # one line for each past act, oldest first

_jinja = ImmutableSandboxedEnvironment(
    undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
)


class Prompt:
    """A template with strict names. Put what never changes first: models reuse a prefix they have read."""

    def __init__(
        self,
        text: str,
        where: str = "the prompt",
        *,
        max_history_turns: int | None = None,  # newest lines of the history that are kept
        max_prompt_chars: int | None = None,  # older lines go first until the prompt fits
    ) -> None:
        self.text, self.where = text, where
        self.max_history_turns, self.max_prompt_chars = max_history_turns, max_prompt_chars
        try:
            self.names = frozenset(jinja2.meta.find_undeclared_variables(_jinja.parse(text)))
            self.template = _jinja.from_string(text)
        except jinja2.TemplateError as error:
            raise BadInput(f"{where} is not a valid template: {error}.") from None
        if not text.strip():
            raise BadInput(f"{where} is empty; it should be a template that puts the state into words.")

    @classmethod
    def read(
        cls, path: str | Path = DEFAULT, *, max_history_turns: int | None = None, max_prompt_chars: int | None = None
    ) -> Prompt:
        """From a file; `configs/...` is also found where kibitz is installed."""
        file = find(path)
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"The prompt {file} cannot be read: {error}.") from None
        return cls(text, str(file), max_history_turns=max_history_turns, max_prompt_chars=max_prompt_chars)

    @property
    def version(self) -> str:
        """Changes with the template and its caps; part of every cache key."""
        whole = f"{self.text}\0{self.max_history_turns}\0{self.max_prompt_chars}"
        return hashlib.sha256(whole.encode()).hexdigest()[:16]

    def check(self, sample: Mapping[str, str]) -> None:
        """At start-up, with the variables of any state: BadInput when a name is missing or the caps leave no room."""
        if unknown := sorted(self.names - set(sample)):
            raise BadInput(f"{self.where} uses {', '.join(unknown)}; there are {', '.join(sorted(sample))}.")
        bare = self._fill({**sample, HISTORY: ""})
        if self.max_prompt_chars is not None and len(bare) > self.max_prompt_chars:
            raise BadInput(
                f"max_prompt_chars is {self.max_prompt_chars}; {self.where} needs {len(bare)} without any history."
            )

    def render(self, variables: Mapping[str, str]) -> str:
        """The whole prompt; the state itself is never cut, only history."""
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
        """What `Client.ask` takes; remote providers put their system message before it."""
        return [{"role": "user", "content": self.render(variables)}]

    def save(self, folder: Path, name: str = "prompt.txt") -> Path:
        """The prompt in use, beside a run's other files."""
        file = folder / name
        file.write_text(self.text, encoding="utf-8")
        return file

    def _fill(self, variables: Mapping[str, str]) -> str:
        try:
            return self.template.render(variables)
        except Exception as error:  # a template is a program: it may divide by zero
            raise BadInput(f"{self.where} cannot be filled in: {str(error) or type(error).__name__}.") from None


def system_message(answer: Answer, flat: bool = False) -> dict[str, str]:
    """Forces one line of JSON from chatty remote models; the same for every state of a game."""
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
