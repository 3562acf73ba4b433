"""Presets: provider, model, sampling and price by name, from YAML; and whether a preset works on this machine."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import numpy as np
import yaml
from pydantic import Field, field_validator, model_validator

from kibitz.core.errors import BadInput
from kibitz.core.options import Options
from kibitz.core.system.logs import log_once
from kibitz.core.system.paths import config_folder, find
from kibitz.llm.client.limits import Limits
from kibitz.llm.client.types import Usage
from kibitz.llm.providers import weights
from kibitz.llm.providers.http import HttpClient, redacted

log = logging.getLogger("kibitz.llm")

SHIPPED = "configs/llm_presets.yaml"
GROQ = "https://api.groq.com/openai/v1"
GROQ_KEY = "GROQ_API_KEY"
PLAIN, TAUGHT = "embedded", "taught"  # the presets of the model in this process
LOOPBACK = ("localhost", "127.0.0.1", "::1")
LISTENING_SECONDS = 1.0  # for a server on this machine to name its models
LOCAL_LIMITS = Limits(deadline=60, timeout=60, attempts=1)  # for a model in this process


class Sampling(Options):
    """None leaves the choice to the server."""

    temperature: float | None = Field(0.0, ge=0)
    top_p: float | None = Field(None, gt=0, le=1)
    max_tokens: int | None = Field(256, ge=1)
    seed: int | None = 0


class Price(Options):
    """Per million tokens."""

    prompt: float = Field(0.0, ge=0)
    completion: float = Field(0.0, ge=0)

    def of(self, prompt_tokens: int, completion_tokens: int) -> Usage:
        money = (self.prompt * prompt_tokens + self.completion * completion_tokens) / 1e6
        return Usage(prompt_tokens, completion_tokens, money)


Pair = Annotated[list[float], Field(min_length=2, max_length=2)]


class TaughtGame(Options):
    """What a taught model knows about one game."""

    settings: dict[str, Pair] = Field(default_factory=dict)
    """The smallest and the largest value that it was taught, by field of the game's settings."""
    calibration: Pair | None = None  # of its confidence; `kibitz teach calibrate` fits these


class Preset(Options):
    """How to reach one model. It never contains a key, only the name of the environment variable that does."""

    name: str = ""  # set when the presets are read
    provider: Literal["auto", "groq", "openai", "local_hf", "embedded"]
    model: str = ""  # the server's name for it; a folder or hub name (local_hf); a GGUF file or smollm2-135m (embedded)
    base_url: str = ""  # openai: the address up to and including /v1
    key_env: str = ""  # the environment variable that holds the key
    structure: Literal["none", "json", "schema", "vllm", "llamacpp"] = "none"
    """How a remote server learns the answer's format: not at all, JSON mode, JSON schema, or a grammar for vLLM or
    llama.cpp."""
    logprobs: bool = False  # remote: request log-probabilities and derive the confidence from them
    sampling: Sampling = Sampling()
    price: Price = Price()
    limits: Limits = Limits()
    extra: dict[str, Any] = Field(default_factory=dict)  # additional fields of the request body
    threads: int | None = Field(None, ge=1)  # embedded; default: all cores, or one less on a busy machine; at most 8
    context: int = Field(4096, ge=256)  # embedded: tokens of prompt and answer together
    batch: int = Field(8, ge=1)  # local_hf: questions per generation
    lenient: bool = False  # also accept the last JSON object in other text: prose, code fences, lists
    taught: bool = False  # the model was taught the game: it reads the game's short template
    games: dict[str, TaughtGame] = Field(default_factory=dict)  # taught: the games it knows; empty: not declared
    note: str = ""

    @field_validator("key_env")
    @classmethod
    def _names_a_variable(cls, value: str) -> str:
        if value and not re.fullmatch(r"[A-Z][A-Z0-9_]*", value):
            raise ValueError("key_env must be the name of a variable, such as GROQ_API_KEY, not the key itself.")
        return value

    @field_validator("base_url")
    @classmethod
    def _holds_no_secret(cls, value: str) -> str:
        if "@" in value or "?" in value:
            raise ValueError("base_url must be an address such as https://host/v1, without a password or a query.")
        return value

    @model_validator(mode="after")
    def _is_complete(self) -> Preset:
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


def read_presets() -> dict[str, Preset]:
    """The shipped presets, overridden by those in KIBITZ_LLM_PRESETS or in ~/.config/kibitz/llm_presets.yaml."""
    files = [find(SHIPPED)]
    if own := os.environ.get("KIBITZ_LLM_PRESETS"):
        files.append(find(own))
    elif (file := config_folder() / "llm_presets.yaml").is_file():
        files.append(file)
    found = {name: preset for file in files for name, preset in _read(file).items()}
    return {name: preset.model_copy(update={"name": name}) for name, preset in found.items()}


def _read(file: Path) -> dict[str, Preset]:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadInput(f"Cannot read the presets in {file}: {str(error).splitlines()[0]}.") from None
    presets = content.get("presets") if isinstance(content, dict) else None
    if not isinstance(presets, dict) or not all(isinstance(values, dict) for values in presets.values()):
        raise BadInput(f"{file} must contain a table `presets:` with one table per preset.")
    return {str(name): Preset.read(values, f"setting of preset {name}") for name, values in presets.items()}


def get_preset(name: str, *, game: str = "", settings: Any = None) -> Preset:
    """By name, with `provider: auto` resolved; a GGUF file is a preset of its own.

    `game` and `settings` say what the model will be asked about. A taught model that was not taught that, or that is
    not installed, gives way to the plain one, which is logged once.
    """
    if name.endswith(".gguf"):
        file = weights.locate(name)
        taught = weights.is_taught(file)
        return Preset(name=name, provider="embedded", model=str(file), limits=LOCAL_LIMITS, taught=taught)
    known = read_presets()
    if name not in known:
        raise BadInput(f"There is no preset {name!r}; choose one of {', '.join(sorted(known))}.")
    chosen = _resolve_auto(known[name], known, TAUGHT if game else PLAIN)
    if game and (reason := why_plain(chosen, game, settings)):
        log_once(log, f"llm:{chosen.name} {reason}; using llm:{PLAIN}")
        return _resolve_auto(known[PLAIN], known)
    return chosen


def why_plain(preset: Preset, game: str, settings: Any = None) -> str:
    """Why a taught model cannot answer about this game and its settings; empty when it can, or was not taught."""
    if not preset.taught:
        return ""
    if preset.model == weights.TAUGHT and (reason := why_not(preset)):
        return f"cannot be used ({reason.rstrip('.')})"
    if preset.games and game not in preset.games:
        return f"was not taught {game}"
    for name, (low, high) in preset.games[game].settings.items() if preset.games and settings is not None else ():
        if not hasattr(settings, name):
            raise BadInput(f"The preset {preset.name} gives a range for {name!r}, which is no setting of {game}.")
        values = np.asarray(getattr(settings, name))
        if values.min() < low or values.max() > high:
            span = f"{low:g}" if low == high else f"{low:g} to {high:g}"
            return f"was taught {game} only with {name} {span}"
    return ""


def _resolve_auto(preset: Preset, known: Mapping[str, Preset], local: str = PLAIN) -> Preset:
    """`provider: auto` means Groq when its key is set, otherwise the preset `local`."""
    if preset.provider == "groq" and not preset.key_env:
        return preset.model_copy(update={"key_env": GROQ_KEY})
    if preset.provider != "auto":
        return preset
    chosen = "groq" if os.environ.get(GROQ_KEY, "").strip() else local
    log_once(log, f"provider auto: using {chosen} ({GROQ_KEY} is {'' if chosen == 'groq' else 'not '}set)")
    if known[chosen].provider == "auto":  # the shipped file has all of them, but a user may override them
        raise BadInput(f"The preset {chosen} has provider auto, which resolves to itself; name another provider.")
    return _resolve_auto(known[chosen], known)


def why_not(preset: Preset, probe: float = 0.0) -> str:
    """Why the preset cannot be used on this machine and what to do about it; empty when it can.

    With `probe` seconds, also contact a remote address; this uses no tokens.
    """
    if preset.provider == "auto":
        return "" if os.environ.get(GROQ_KEY, "").strip() else why_not(Preset(provider="embedded"))
    if preset.provider == "embedded":
        return _why_not_embedded(preset)
    if preset.provider == "local_hf":
        return _why_not_local_hf(preset)
    key_env = preset.key_env or (GROQ_KEY if preset.provider == "groq" else "")
    if key_env and not os.environ.get(key_env, "").strip():
        return f"{key_env} is not set."
    return _probed(preset, key_env, probe) if probe else ""


def not_listening(preset: Preset) -> str:
    """Why a preset whose server belongs on this machine cannot be used: it is not there. Empty for other presets."""
    if not preset.remote or urlsplit(preset.base_url).hostname not in LOOPBACK:
        return ""
    return _probed(preset, preset.key_env, LISTENING_SECONDS)


def _why_not_embedded(preset: Preset) -> str:
    if find_spec("xllamacpp") is None:
        return "xllamacpp is not installed; run `kibitz llm install`."
    return _why_not_file(preset)


def _why_not_file(preset: Preset) -> str:
    try:
        weights.locate(preset.model)
    except BadInput as error:
        return str(error)
    return ""


def _why_not_local_hf(preset: Preset) -> str:
    missing = [name for name in ("torch", "transformers", "gguf", "accelerate") if find_spec(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed; run `pip install 'kibitz[hf]'`."
    if preset.model in (weights.SMOLLM2, weights.TAUGHT) or preset.model.endswith(".gguf"):
        return _why_not_file(preset)
    is_path = preset.model.startswith((".", "/", "~"))
    if is_path and not (Path(preset.model).expanduser() / "config.json").is_file():
        return f"There is no model in the folder {preset.model!r}."
    return ""


def _probed(preset: Preset, key_env: str, seconds: float) -> str:
    """In a thread of its own, because the caller may run in an event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, _probe(preset, key_env, seconds)).result()


async def _probe(preset: Preset, key_env: str, seconds: float) -> str:
    try:
        post = HttpClient(preset.address)
    except BadInput as error:
        return str(error)
    try:
        async with asyncio.timeout(seconds):
            key = os.environ.get(key_env, "").strip() if key_env else ""
            valid = key.isascii() and key.isprintable() and " " not in key
            headers = {"Authorization": f"Bearer {key}"} if key and valid else {}
            response = await post.send("GET", "/models", headers)
    except TimeoutError:
        return f"{redacted(preset.address)} does not respond."
    except Exception as error:  # any error makes the preset unusable
        return f"{redacted(preset.address)} does not respond ({type(error).__name__})."
    finally:
        await post.close()
    if response.status in (401, 403):
        return f"{redacted(preset.address)} does not accept the key in {key_env or 'use'}."
    if response.status == 404 and post.host in LOOPBACK:  # kibitz itself, for example, listens on vLLM's port
        return f"{redacted(preset.address)} is another server: it lists no models."
    return ""
