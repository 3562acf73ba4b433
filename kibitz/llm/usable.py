"""Which presets work here, and what is missing for the others."""

from __future__ import annotations

import asyncio
import os
from importlib.util import find_spec
from pathlib import Path

from kibitz.core.errors import BadInput
from kibitz.llm.presets import GROQ_KEY, Preset
from kibitz.llm.providers import weights
from kibitz.llm.providers.http import Post, shown


def why_not(preset: Preset, probe: float = 0.0) -> str:
    """Empty when the preset is usable, else one sentence that says what to do.

    With `probe` seconds a remote address is also knocked at; no tokens are spent.
    """
    if preset.provider == "auto":
        groq = os.environ.get(GROQ_KEY, "").strip()
        return "" if groq else why_not(Preset(provider="embedded"))
    if preset.provider == "embedded":
        return _embedded(preset)
    if preset.provider == "local_hf":
        return _local_hf(preset)
    key_env = preset.key_env or (GROQ_KEY if preset.provider == "groq" else "")
    if key_env and not os.environ.get(key_env, "").strip():
        return f"{key_env} is not set."
    return asyncio.run(_knock(preset, key_env, probe)) if probe else ""


def _embedded(preset: Preset) -> str:
    if find_spec("xllamacpp") is None:
        return "xllamacpp is not installed; run `kibitz llm install`."
    try:
        weights.locate(preset.model)
    except BadInput as error:
        return str(error)
    return ""


def _local_hf(preset: Preset) -> str:
    missing = [name for name in ("torch", "transformers", "xgrammar") if find_spec(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed; run `pip install 'kibitz[hf]'`."
    looks_like_path = preset.model.startswith((".", "/", "~"))
    if looks_like_path and not (Path(preset.model).expanduser() / "config.json").is_file():
        return f"There is no model in the folder {preset.model!r}."
    return ""


async def _knock(preset: Preset, key_env: str, seconds: float) -> str:
    try:
        post = Post(preset.address)
    except BadInput as error:
        return str(error)
    try:
        async with asyncio.timeout(seconds):
            key = os.environ.get(key_env, "").strip() if key_env else ""
            safe = key.isascii() and key.isprintable() and " " not in key
            headers = {"Authorization": f"Bearer {key}"} if key and safe else {}
            response = await post.send("GET", "/models", headers)
    except TimeoutError:
        return f"Nothing answers at {shown(preset.address)}."
    except Exception as error:  # whatever it is, the preset is not usable
        return f"Nothing answers at {shown(preset.address)} ({type(error).__name__})."
    finally:
        await post.close()
    if response.status in (401, 403):
        return f"{shown(preset.address)} does not accept the key in {key_env or 'use'}."
    return ""
