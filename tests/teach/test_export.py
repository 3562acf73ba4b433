"""An exported model computes what the adapter taught it; what does not fit is refused in one sentence."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from kibitz.core.errors import BadInput
from kibitz.core.play.resolve import Resolver
from kibitz.games import get_game
from kibitz.llm.presets import get_preset
from kibitz.llm.providers import gguf, weights
from kibitz.teach.export import read_adapter, to_gguf
from kibitz.teach.libraries import model_path

HEADS, ROWS, COLUMNS = 2, 64, 32


def text_value(key: str, value: str) -> bytes:
    return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<IQ", 8, len(value)) + value.encode()


def number_value(key: str, value: int) -> bytes:
    return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<II", 4, value)


def write_gguf(path: Path, matrix: Any) -> Path:
    """A file with one matrix, `blk.0.attn_q.weight`."""
    name = b"blk.0.attn_q.weight"
    counts = {"llama.attention.head_count": HEADS, "llama.attention.head_count_kv": HEADS}
    pairs = [text_value("general.architecture", "llama"), *(number_value(*pair) for pair in counts.items())]
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, len(pairs)) + b"".join(pairs)
    head += struct.pack("<Q", len(name)) + name + struct.pack("<IQQIQ", 2, COLUMNS, ROWS, gguf.Q8_0, 0)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + gguf.to_q8(matrix))
    return path


def read_gguf(path: Path) -> Any:
    content = path.read_bytes()
    return gguf.from_q8(content[gguf.Header(content).data :]).reshape(ROWS, COLUMNS)


def write_adapter(folder: Path, up: Any, down: Any, module: str = "self_attn.q_proj") -> Path:
    folder.mkdir()
    place = f"base_model.model.model.layers.0.{module}"
    save_file({f"{place}.lora_A.weight": down, f"{place}.lora_B.weight": up}, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"r": len(down), "lora_alpha": 2 * len(down)}))
    return folder


@pytest.fixture
def parts(tmp_path: Path) -> tuple[Any, Any, Any, Path, Path]:
    chance = np.random.default_rng(0)
    matrix, up, down = (
        chance.normal(size=shape).astype(np.float32) for shape in ((ROWS, COLUMNS), (ROWS, 4), (4, COLUMNS))
    )
    return matrix, up, down, write_gguf(tmp_path / "base.gguf", matrix), write_adapter(tmp_path / "a", up, down)


def test_the_adapter_is_added_in_llama_cpps_order_of_rows(parts: Any, tmp_path: Path) -> None:
    matrix, up, down, base, folder = parts
    to_gguf(read_adapter(folder), str(base), tmp_path / "out.gguf")
    added = 2 * up @ down
    # a head of 32 rows: llama.cpp has rows 0, 16, 1, 17... of transformers
    order = [head * 32 + half * 16 + i for head in range(HEADS) for i in range(16) for half in (0, 1)]
    wanted = matrix + added[order]
    assert np.abs(read_gguf(tmp_path / "out.gguf") - wanted).max() < 0.02 * np.abs(wanted).max()


def test_the_exported_file_is_a_preset_that_reads_the_short_template(parts: Any, tmp_path: Path) -> None:
    *_, base, folder = parts
    to_gguf(read_adapter(folder), str(base), tmp_path / "out.gguf")
    assert get_preset(str(tmp_path / "out.gguf")).taught and not get_preset(str(base)).taught


def test_a_taught_model_that_was_taught_again_is_marked_once(parts: Any, tmp_path: Path) -> None:
    *_, base, folder = parts
    adapter = read_adapter(folder)
    to_gguf(adapter, str(base), tmp_path / "once.gguf")
    to_gguf(adapter, str(tmp_path / "once.gguf"), tmp_path / "twice.gguf")
    once, twice = ((tmp_path / f"{name}.gguf").read_bytes() for name in ("once", "twice"))
    assert once.count(gguf.TAUGHT_KEY.encode()) == twice.count(gguf.TAUGHT_KEY.encode()) == 1
    assert gguf.Header(once).pairs == gguf.Header(twice).pairs


def test_an_adapter_of_another_model_is_refused(parts: Any, tmp_path: Path) -> None:
    _, up, down, base, _ = parts
    wide = write_adapter(tmp_path / "wide", np.vstack([up, up]), down)
    with pytest.raises(BadInput, match="another model"):
        to_gguf(read_adapter(wide), str(base), tmp_path / "out.gguf")
    elsewhere = write_adapter(tmp_path / "elsewhere", up, down, "mlp.up_proj")
    with pytest.raises(BadInput, match=r"no tensor blk\.0\.ffn_up"):
        to_gguf(read_adapter(elsewhere), str(base), tmp_path / "out.gguf")
    assert not (tmp_path / "out.gguf").exists()


def test_a_damaged_adapter_is_refused(parts: Any) -> None:
    *_, folder = parts
    (folder / "adapter_model.safetensors").write_bytes(b"half")
    with pytest.raises(BadInput, match="no complete LoRA adapter"):
        read_adapter(folder)


def test_an_adapter_in_bfloat16_is_read_without_jax(parts: Any) -> None:
    """A training on a GPU writes such an adapter, and NumPy alone does not know its type."""
    _, up, down, _, adapter = parts
    place = "base_model.model.model.layers.0.self_attn.q_proj"
    short = {f"{place}.lora_{name}.weight": x.astype(ml_dtypes.bfloat16) for name, x in (("A", down), ("B", up))}
    save_file(short, adapter / "adapter_model.safetensors")
    code = f"""
import sys
from pathlib import Path
from kibitz.teach.export import read_adapter
((up, down),) = read_adapter(Path({str(adapter)!r})).pairs().values()
assert "jax" not in sys.modules and up.shape == {up.shape} and down.dtype == "float32"
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    with pytest.raises(BadInput, match="not a complete GGUF file"):
        get_preset(str(tmp_path / "x.gguf"))


def test_the_models_in_the_box_are_bases_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(weights, "locate", lambda model: tmp_path / f"{model}.gguf")
    assert model_path("embedded") == tmp_path / f"{weights.SMOLLM2}.gguf"
    assert model_path("taught") == tmp_path / f"{weights.TAUGHT}.gguf"
    assert model_path("other.gguf") == Path("other.gguf")


def test_a_servers_clients_cannot_name_a_model_file(parts: Any, tmp_path: Path) -> None:
    *_, base, _ = parts
    with pytest.raises(BadInput, match="cannot name files"):
        Resolver(runs=tmp_path).find(get_game("deal_or_no_deal"), f"llm:{base}")


def test_a_damaged_base_is_one_sentence(parts: Any, tmp_path: Path) -> None:
    *_, base, folder = parts
    base.write_bytes(base.read_bytes()[:40])
    with pytest.raises(BadInput, match="is not a complete GGUF file"):
        to_gguf(read_adapter(folder), str(base), tmp_path / "out.gguf")


def test_an_adapter_of_another_family_is_one_sentence(parts: Any, tmp_path: Path) -> None:
    _, up, down, base, _ = parts
    place = "base_model.model.transformer.h.0.attn.c_attn"
    folder = write_adapter(tmp_path / "other", up, down)
    save_file({f"{place}.lora_A.weight": down, f"{place}.lora_B.weight": up}, folder / "adapter_model.safetensors")
    with pytest.raises(BadInput, match=r"The adapter changes transformer\.h\.0\.attn\.c_attn"):
        to_gguf(read_adapter(folder), str(base), tmp_path / "out.gguf")


def test_two_trainings_on_top_of_each_other_are_merged_together(parts: tuple[Any, Any, Any, Path, Path]) -> None:
    """The second adapter's base is the folder of the first training."""
    _, up, down, base, adapter = parts
    first = adapter.parent / "first"
    first.mkdir()
    adapter.rename(first / "adapter")
    (first / "job.json").write_text(json.dumps({"base": str(base)}))
    second = write_adapter(adapter.parent / "second", 0.5 * up, down)
    to_gguf(read_adapter(second), str(first), adapter.parent / "both.gguf")
    to_gguf(
        read_adapter(write_adapter(adapter.parent / "once", 1.5 * up, down)), str(base), adapter.parent / "once.gguf"
    )
    assert (adapter.parent / "both.gguf").read_bytes() == (adapter.parent / "once.gguf").read_bytes()
