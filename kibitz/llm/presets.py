"""Presets: a provider, a model, how it samples and what it costs, by name, from one YAML file."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, field_validator, model_validator

from kibitz.core.errors import BadInput
from kibitz.core.options import Options
from kibitz.llm.client.limits import Limits
from kibitz.llm.client.types import Usage
from kibitz.llm.files import find, own_folder

log = logging.getLogger("kibitz.llm")

SHIPPED = "configs/llm_presets.yaml"
GROQ = "https://api.groq.com/openai/v1"
GROQ_KEY = "GROQ_API_KEY"


class Sampling(Options):
    """None leaves the choice to the server."""

    temperature: float | None = Field(0.0, ge=0)
    top_p: float | None = Field(None, gt=0, le=1)
    max_tokens: int | None = Field(256, ge=1)
    seed: int | None = 0


class Price(Options):
    """For a million tokens."""

    prompt: float = Field(0.0, ge=0)
    completion: float = Field(0.0, ge=0)

    def of(self, prompt_tokens: int, completion_tokens: int) -> Usage:
        money = (self.prompt * prompt_tokens + self.completion * completion_tokens) / 1e6
        return Usage(prompt_tokens, completion_tokens, money)


class Preset(Options):
    """How to reach one model. Keys are never written here, only the name of the variable that holds one."""

    provider: Literal["auto", "groq", "openai", "local_hf", "embedded"]
    model: str = ""  # the server's name for it; a folder or hub name (local_hf); a GGUF file or smollm2-135m (embedded)
    base_url: str = ""  # openai: the address up to and with /v1
    key_env: str = ""  # the environment variable that holds the key
    structure: Literal["none", "json", "schema", "vllm", "llamacpp"] = "none"
    """How a remote server is told the answer's form: not at all, JSON mode, JSON schema, a grammar as vLLM or
    llama.cpp take it."""
    logprobs: bool = False  # remote: ask for log-probabilities and take the confidence from them
    sampling: Sampling = Sampling()
    price: Price = Price()
    limits: Limits = Limits()
    extra: dict[str, Any] = Field(default_factory=dict)  # further fields of the request body
    threads: int | None = Field(None, ge=1)  # embedded; otherwise all cores but one
    context: int = Field(4096, ge=256)  # embedded: tokens of prompt and answer together
    batch: int = Field(8, ge=1)  # local_hf: questions generated together
    note: str = ""

    @field_validator("key_env")
    @classmethod
    def _a_name(cls, value: str) -> str:
        if value and not re.fullmatch(r"[A-Z][A-Z0-9_]*", value):
            raise ValueError("key_env is the name of a variable, such as GROQ_API_KEY, never the key itself.")
        return value

    @field_validator("base_url")
    @classmethod
    def _no_secrets(cls, value: str) -> str:
        if "@" in value or "?" in value:
            raise ValueError("base_url is an address such as https://host/v1, without a password or a query.")
        return value

    @model_validator(mode="after")
    def _whole(self) -> Preset:
        if self.provider == "openai" and not self.base_url:
            raise ValueError("A preset with provider openai needs base_url, such as http://localhost:8000/v1.")
        if self.provider not in ("auto", "embedded") and not self.model:
            raise ValueError(f"A preset with provider {self.provider} needs model.")
        return self

    @property
    def address(self) -> str:
        return self.base_url or GROQ

    @property
    def remote(self) -> bool:
        return self.provider in ("groq", "openai")


def read_presets(path: str | Path | None = None) -> dict[str, Preset]:
    """The shipped presets with the user's own over them.

    The user's file is `path`, or what KIBITZ_LLM_PRESETS names, or ~/.config/kibitz/llm_presets.yaml.
    """
    files = [find(SHIPPED)]
    own = path or os.environ.get("KIBITZ_LLM_PRESETS")
    if own:
        files.append(find(own))
    elif (file := own_folder() / "llm_presets.yaml").is_file():
        files.append(file)
    return {name: preset for file in files for name, preset in _read(file).items()}


def get_preset(name: str, path: str | Path | None = None) -> Preset:
    """By name, with `auto` settled."""
    known = read_presets(path)
    if name not in known:
        raise BadInput(f"There is no preset {name!r}; there are {', '.join(sorted(known))}.")
    return settle(known[name], known)


_said: set[str] = set()


def settle(preset: Preset, known: Mapping[str, Preset]) -> Preset:
    """What `provider: auto` means here and now: Groq when its key is set, otherwise the embedded model."""
    if preset.provider == "groq" and not preset.key_env:
        return preset.model_copy(update={"key_env": GROQ_KEY})
    if preset.provider != "auto":
        return preset
    wanted = "groq" if os.environ.get(GROQ_KEY, "").strip() else "embedded"
    if wanted not in _said:
        _said.add(wanted)
        log.warning("provider auto: using %s (%s is %sset)", wanted, GROQ_KEY, "" if wanted == "groq" else "not ")
    if known[wanted].provider == "auto":  # the shipped file has both, but a user may replace them
        raise BadInput(f"The preset {wanted} has provider auto, which here means {wanted}; name another provider.")
    return settle(known[wanted], known)


def _read(file: Path) -> dict[str, Preset]:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadInput(f"The presets in {file} cannot be read: {str(error).splitlines()[0]}.") from None
    presets = content.get("presets") if isinstance(content, dict) else None
    if not isinstance(presets, dict) or not all(isinstance(values, dict) for values in presets.values()):
        raise BadInput(f"{file} should hold a table `presets:` with a table for each name.")
    return {str(name): Preset.read(values, f"setting of preset {name}") for name, values in presets.items()}
