"""The adapter that kibitz ships: what it adds to the embedded model, in 8 bits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from kibitz.llm.providers.gguf import LowRank

FILE = Path(__file__).parent / "taught.safetensors"


def read(file: Path = FILE) -> dict[str, LowRank]:
    """By the names of a GGUF file's tensors."""
    parts = load_file(file)
    return {
        name: LowRank(
            _numbers(parts, f"{name}.up"),
            _numbers(parts, f"{name}.down"),
        )
        for name in sorted({key.rsplit(".", 2)[0] for key in parts if key.endswith(".up.step")})
    }


def write(changes: Mapping[str, LowRank], file: Path) -> None:
    """Each row of `down` and each column of `up` has a step of its own."""
    parts: dict[str, NDArray[np.generic]] = {}
    for name, (up, down) in changes.items():
        for part, matrix in (("up", up), ("down", down.T)):
            step = (np.abs(matrix).max(0) / 127).astype(np.float16)
            whole = np.rint(matrix / np.where(step, step, 1).astype(np.float32))
            parts[f"{name}.{part}"] = np.ascontiguousarray(np.clip(whole, -127, 127).astype(np.int8))
            parts[f"{name}.{part}.step"] = step
    save_file(parts, file)


def _numbers(parts: Mapping[str, NDArray[np.generic]], name: str) -> NDArray[np.float32]:
    matrix: NDArray[np.float32] = parts[name].astype(np.float32) * parts[f"{name}.step"].astype(np.float32)
    return matrix if name.endswith(".up") else matrix.T
