"""The libraries of the extra `teach`, imported when a command needs them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from kibitz.core.errors import BadInput
from kibitz.core.paths import named
from kibitz.llm.providers import weights

NEEDED = ("torch", "transformers", "peft", "accelerate", "gguf")
EMBEDDED = "embedded"


def require(*names: str) -> list[Any]:
    """The modules of these names; BadInput says what to install."""
    missing = [name for name in (*NEEDED, *names) if find_spec(name) is None]
    if missing:
        raise BadInput(f"{', '.join(missing)} not installed; run `pip install 'kibitz[teach]'`.")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # rows are prepared in processes of their own
    return [import_module(name) for name in names]


def base_source(base: str) -> dict[str, str]:
    """Where transformers finds a base model: the embedded weights, a GGUF file, or a folder."""
    path = weights.locate() if base == EMBEDDED else named(base)
    if path.suffix == ".gguf" and path.is_file():
        return {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    if (path / "config.json").is_file():
        return {"pretrained_model_name_or_path": str(path)}
    raise BadInput(f"{base!r} is not a model; name {EMBEDDED}, a GGUF file or a folder of transformers.")


def load_tokenizer(base: str) -> Any:
    (transformers,) = require("transformers")
    source = base_source(base)
    with _readable(base):
        return transformers.AutoTokenizer.from_pretrained(**source)


def load_model(base: str, dtype: Any) -> Any:
    (transformers,) = require("transformers")
    transformers.logging.set_verbosity_error()
    source = base_source(base)
    with _readable(base):
        return transformers.AutoModelForCausalLM.from_pretrained(**source, dtype=dtype)


@contextmanager
def _readable(base: str) -> Iterator[None]:
    """Turns what transformers raises for a damaged model into BadInput."""
    try:
        yield
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise BadInput(f"transformers cannot read {base!r} ({reason:.200}); name a complete model.") from None
