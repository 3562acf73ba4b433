"""Conversion to Q8_0 keeps the numbers to eight bits and everything else unchanged."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kibitz.llm.providers import gguf
from kibitz.llm.providers.gguf import Q4_1, Q8_0, Header

F32 = 0


def text(words: bytes) -> bytes:
    return struct.pack("<Q", len(words)) + words


def pair(key: bytes, kind: int, form: str, *values: Any) -> bytes:
    return text(key) + struct.pack(f"<I{form}", kind, *values)


def q4_1(rows: int, seed: int) -> tuple[bytes, np.ndarray[Any, Any]]:
    """Blocks in llama.cpp's format, and the numbers they encode."""
    random, blocks, numbers = np.random.default_rng(seed), b"", []
    for _ in range(rows):
        step, lowest = np.float16(random.random()), np.float16(-random.random() * 8)
        nibbles = random.integers(0, 16, 32)
        packed = bytes(int(low | high << 4) for low, high in zip(nibbles[:16], nibbles[16:], strict=True))
        blocks += step.tobytes() + lowest.tobytes() + packed
        numbers.append(np.float32(step) * nibbles + np.float32(lowest))
    return blocks, np.array(numbers)


def written(folder: Path, align: int) -> tuple[Path, bytes, np.ndarray[Any, Any], bytes]:
    pairs = [
        pair(b"general.alignment", 4, "I", align),
        pair(b"some.strings", 9, "IQ", gguf.STRING, 2) + text(b"one") + text("zwölf".encode()),
        pair(b"general.file_type", 4, "I", 3),
        pair(b"some.numbers", 9, "IQ3h", 3, 3, -1, 0, 1),
        pair(b"some.truth", 7, "?", True),
    ]
    blocks, numbers = q4_1(6, seed=1)
    plain = np.arange(5, dtype=np.float32).tobytes()
    data = [(b"plain", (5,), F32, plain), (b"packed", (96, 2), Q4_1, blocks), (b"last", (5,), F32, plain)]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(data), len(pairs)) + b"".join(pairs)
    body = b""
    for name, shape, kind, content in data:
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(body))
        body += content + b"\0" * (-len(content) % align)
    path = folder / "a.gguf"
    path.write_bytes(head + b"\0" * (-len(head) % align) + body)
    return path, b"".join(pairs), numbers, plain


@pytest.mark.parametrize("align", [32, 64])
def test_conversion_keeps_numbers_within_half_a_step_and_everything_else_unchanged(tmp_path: Path, align: int) -> None:
    source, pairs, numbers, plain = written(tmp_path, align)
    gguf.convert(source, tmp_path / "b.gguf")
    converted = (tmp_path / "b.gguf").read_bytes()
    header = Header(converted)
    assert (header.align, header.data % align, len(converted) % align) == (align, 0, 0)
    changed = pairs.replace(pair(b"general.file_type", 4, "I", 3), pair(b"general.file_type", 4, "I", 7))
    assert converted[24 : header.listed_at] == changed != pairs
    shapes = [(tensor.name, tensor.shape, tensor.kind) for tensor in header.tensors]
    assert shapes == [(b"plain", (5,), F32), (b"packed", (96, 2), Q8_0), (b"last", (5,), F32)]
    first, packed, last = (header.data + tensor.offset for tensor in header.tensors)
    assert converted[first : first + len(plain)] == plain == converted[last : last + len(plain)]
    blocks = np.frombuffer(converted[packed : packed + 6 * 34], np.uint8).reshape(6, 34)
    steps = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    read = steps * blocks[:, 2:].copy().view(np.int8)
    assert (np.abs(read - numbers) <= 0.5 * steps + 127 * steps * 2**-11 + 1e-6).all()  # the step itself is a float16


def test_a_block_of_zeros_stays_zero() -> None:
    assert gguf.q8(bytes(20)) == bytes(34)


def test_a_file_that_is_not_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"GGML" + bytes(40))
    with pytest.raises(ValueError, match="not a GGUF file"):
        gguf.convert(tmp_path / "a", tmp_path / "b")
    assert not (tmp_path / "b").exists()
