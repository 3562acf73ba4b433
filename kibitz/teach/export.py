"""`kibitz teach export`: a trained adapter merged into a GGUF file, or into a folder of transformers, or on its own."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes  # noqa: F401  (numpy reads bfloat16 with it, as a training on a GPU writes an adapter)
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from kibitz.core.errors import BadInput
from kibitz.llm.providers import gguf
from kibitz.llm.providers.gguf import LowRank
from kibitz.teach.libraries import EMBEDDED, load_model, load_tokenizer, model_path, require, taught_folder

# matrices of a layer, as transformers and llama.cpp name them
MATRICES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


class Adapter(NamedTuple):
    """A peft adapter."""

    tensors: dict[str, NDArray[Any]]
    scale: float

    def pairs(self) -> dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """`layers.3.self_attn.q_proj` -> the matrices up and down, scaled."""
        found = {}
        for name, down in self.tensors.items():
            if name.endswith("lora_A.weight"):
                up = self.tensors[name.replace("lora_A", "lora_B")]
                place = name.removesuffix(".lora_A.weight").split("model.")[-1]
                found[place] = (self.scale * up.astype(np.float32), down.astype(np.float32))
        return found


def adapter_folder(folder: Path) -> Path:
    """Where peft reads the adapter: inside a folder of `kibitz teach sft`, or the folder itself."""
    return folder / "adapter" if (folder / "adapter").is_dir() else folder


def read_adapter(folder: Path) -> Adapter:
    try:
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        tensors = load_file(folder / "adapter_model.safetensors")
        scale = float(config["lora_alpha"]) / int(config["r"])
        names = [name for name in tensors if name.endswith("lora_A.weight")]
        if not names or any(name.replace("lora_A", "lora_B") not in tensors for name in names):
            raise ValueError
    except Exception as error:  # a damaged file raises whatever its reader meets first
        reason = f"{folder} holds no complete LoRA adapter ({type(error).__name__}); train one with `kibitz teach sft`."
        raise BadInput(reason) from None
    return Adapter(tensors, scale)


def to_gguf(adapter: Adapter, base: str, target: Path) -> None:
    """Merged into a copy of a Q8_0 file of the Llama family, such as the embedded model."""
    source = _gguf_file(base)
    changes = changes_of(adapter, base)
    part = target.with_name(f".{target.name}.part")
    try:
        gguf.merge(source, part, changes, {gguf.TAUGHT_KEY: "yes"})
        part.replace(target)
    except ValueError as error:
        raise BadInput(f"The adapter was trained on another model than {base!r}: {error}.") from None
    finally:
        part.unlink(missing_ok=True)


def base_of(folder: Path) -> str:
    """The base that a folder of `kibitz teach` names; any other adapter is taken for one of the embedded model."""
    taught = taught_folder(str(folder)) if (folder / "job.json").is_file() else None
    return EMBEDDED if taught is None else taught[0]


def _gguf_file(base: str) -> Path:
    if (taught := taught_folder(base)) is not None:
        return _gguf_file(taught[0])
    source = model_path(base)
    if not source.is_file() or source.suffix != ".gguf":
        raise BadInput(f"{base!r} is no GGUF file; --base must name the one to merge into, or {EMBEDDED}.")
    return source


def changes_of(adapter: Adapter, base: str) -> dict[str, LowRank]:
    """What the adapter adds to the tensors of a GGUF file of the Llama family, by their names.

    Together with the adapters of earlier trainings, if the base is a folder of one.
    """
    if (taught := taught_folder(base)) is not None:
        return _both(changes_of(read_adapter(taught[1]), taught[0]), changes_of(adapter, taught[0]))
    source = _gguf_file(base)
    try:
        about = gguf.read_header(source)
    except (ValueError, IndexError, KeyError, struct.error):
        raise BadInput(f"{base!r} is not a complete GGUF file.") from None
    heads = {
        "attn_q": about.numbers.get("llama.attention.head_count"),
        "attn_k": about.numbers.get("llama.attention.head_count_kv"),
    }
    if None in heads.values():
        raise BadInput(f"{base!r} is not a model of the Llama family; export --format transformers and convert that.")
    changes = {}
    for place, (up, down) in adapter.pairs().items():
        _, layer, matrix = [*place.split(".", 2), "", ""][:3]
        if matrix not in MATRICES:
            raise BadInput(f"The adapter changes {place}, which a GGUF file of the Llama family does not have.")
        name = MATRICES[matrix]
        changes[f"blk.{layer}.{name}.weight"] = LowRank(_interleaved(up, heads[name]) if name in heads else up, down)
    return changes


def _both(first: dict[str, LowRank], second: dict[str, LowRank]) -> dict[str, LowRank]:
    """The sum of two changes, as one of the sum of their ranks."""
    shared = {
        name: LowRank(np.hstack([first[name].up, second[name].up]), np.vstack([first[name].down, second[name].down]))
        for name in first.keys() & second.keys()
    }
    return {**first, **second, **shared}


def _interleaved(up: NDArray[np.float32], heads: int | None) -> NDArray[np.float32]:
    """llama.cpp rotates neighbouring rows of a head, transformers rows that are half a head apart."""
    rows, rank = up.shape
    assert heads is not None
    return up.reshape(heads, 2, rows // heads // 2, rank).swapaxes(1, 2).reshape(rows, rank)


def to_transformers(folder: Path, base: str, target: Path) -> None:
    """A folder that vLLM and transformers load without peft."""
    torch, peft = require("torch", "peft")
    model = load_model(base, torch.float32)
    merged = peft.PeftModel.from_pretrained(model, folder).merge_and_unload()
    merged.to(torch.bfloat16).save_pretrained(target)
    load_tokenizer(base).save_pretrained(target)


def to_peft(folder: Path, target: Path) -> None:
    shutil.copytree(folder, target)
