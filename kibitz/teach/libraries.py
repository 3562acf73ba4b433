"""The libraries of the extra `teach`, imported when a command needs them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kibitz.core.errors import BadInput
from kibitz.core.system.paths import named
from kibitz.llm.providers import weights

NEEDED = ("torch", "transformers", "peft", "accelerate", "gguf")
EMBEDDED, TAUGHT = "embedded", "taught"  # the models in the box


def require(*names: str) -> list[Any]:
    """The modules of these names; BadInput says what to install."""
    missing = [name for name in dict.fromkeys((*NEEDED, *names)) if find_spec(name) is None]
    if missing:
        raise BadInput(f"{', '.join(missing)} not installed; run `pip install 'kibitz[teach]'`.")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # rows are prepared in processes of their own
    return [import_module(name) for name in names]


def find_device(name: str) -> str:
    """A device of PyTorch that this machine has; `auto` prefers a GPU."""
    (torch,) = require("torch")
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError, NotImplementedError):  # an unknown word, a missing driver, too high a number
        gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        raise BadInput(f"There is no device {name!r} here; choose {' or '.join(['cpu', *gpus])}.") from None
    return name


def taught_folder(base: str) -> tuple[str, Path] | None:
    """The base and the adapter of a folder that an earlier `kibitz teach` trained; None for any other model."""
    folder = named(base)
    if base in (EMBEDDED, TAUGHT) or not (folder / "adapter" / "adapter_config.json").is_file():
        return None
    try:
        return str(json.loads((folder / "job.json").read_text(encoding="utf-8"))["base"]), folder / "adapter"
    except (OSError, ValueError, KeyError):
        raise BadInput(f"{folder}/job.json does not name the adapter's base; name that model as --base.") from None


def model_path(base: str) -> Path:
    """The file of a model in the box, or what another base names."""
    own = {EMBEDDED: weights.SMOLLM2, TAUGHT: weights.TAUGHT}
    return weights.locate(own[base]) if base in own else named(base)


def _base_source(base: str) -> dict[str, str]:
    """Where transformers finds a base model: the embedded weights, a GGUF file, or a folder."""
    if (taught := taught_folder(base)) is not None:
        return _base_source(taught[0])
    path = model_path(base)
    if (path / "model" / "config.json").is_file():  # all weights, trained by `kibitz teach`
        path /= "model"
    if path.suffix == ".gguf" and path.is_file():
        return {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    if (path / "config.json").is_file():
        return {"pretrained_model_name_or_path": str(path)}
    known = f"{EMBEDDED}, {TAUGHT}, a GGUF file, or a folder of transformers or of `kibitz teach`"
    raise BadInput(f"{base!r} is not a model; name {known}.")


def load_tokenizer(base: str) -> Any:
    (transformers,) = require("transformers")
    source = _base_source(base)
    with _readable(base):
        return transformers.AutoTokenizer.from_pretrained(**source)


def load_model(base: str, dtype: Any) -> Any:
    """With the adapters of earlier trainings merged into it."""
    transformers, peft = require("transformers", "peft")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if (taught := taught_folder(base)) is not None:
        with _readable(base):
            return peft.PeftModel.from_pretrained(load_model(taught[0], dtype), taught[1]).merge_and_unload()
    source = _base_source(base)
    with _readable(base):
        model = transformers.AutoModelForCausalLM.from_pretrained(**source, dtype=dtype)
    if "gguf_file" in source:  # these are ordinary weights now, which transformers would still refuse to train
        model.is_quantized, model.hf_quantizer = False, None
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
    return model


def with_adapter(model: Any, base: str, rank: int, further: str) -> Any:
    """The model of this base with a new adapter, or with one to train further: of `kibitz teach` or of peft."""
    (peft,) = require("peft")
    if not further:
        config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
        return peft.get_peft_model(model, config, autocast_adapter_dtype=False)
    below, folder = taught_folder(further) or (base, named(further))
    if not (folder / "adapter_config.json").is_file():
        raise BadInput(f"{further!r} holds no adapter; name a folder of `kibitz teach` or of peft.")
    if below != base:
        raise BadInput(f"The adapter {further} belongs to {below}; name that model as --base.")
    with _readable(further):
        model = peft.PeftModel.from_pretrained(model, folder, is_trainable=True, autocast_adapter_dtype=False)
    if (own := model.peft_config["default"].r) != rank:
        raise BadInput(f"The adapter {further} has rank {own}; add --rank {own}.")
    return model


def fuse(model: Any) -> None:
    """Lets a small model train faster on a GPU, where memory traffic takes most of the time; results stay the same.

    An adapter's matrices are added to the frozen weights once per step instead of to every layer's output, and a norm
    becomes one kernel instead of six.
    """
    torch, peft = require("torch", "peft")
    functional = torch.nn.functional
    for module in model.modules():
        if isinstance(module, peft.tuners.lora.Linear):
            module.forward = partial(_merged, functional.linear, module)
        elif type(module).__name__.endswith("RMSNorm") and hasattr(module, "variance_epsilon"):
            module.forward = partial(_norm, functional.rms_norm, module)


def _merged(linear: Any, layer: Any, x: Any) -> Any:
    if layer.disable_adapters:
        return layer.base_layer(x)
    (name,) = layer.active_adapters
    change = layer.lora_B[name].weight @ layer.lora_A[name].weight
    return linear(x, layer.base_layer.weight + layer.scaling[name] * change, layer.base_layer.bias)


def _norm(rms_norm: Any, layer: Any, x: Any) -> Any:
    return rms_norm(x, layer.weight.shape, layer.weight, layer.variance_epsilon)


@contextmanager
def _readable(base: str) -> Iterator[None]:
    """Turns what transformers raises for a damaged model into BadInput."""
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise BadInput(f"transformers cannot read {base!r} ({reason:.200}); name a complete model.") from None
