"""Converts the Q4_1 tensors of a GGUF file to Q8_0, and merges a LoRA adapter into a Q8_0 file.

llama.cpp has no fast kernel for Q4_1: it reads a prompt nearly twice as fast from Q8_0, which holds the same
numbers to 1 part in 250. The output is deterministic, so its hash can be checked.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Q4_1, Q8_0 = 3, 8  # tensor types
FILE_TYPE_Q8_0 = 7
BLOCK_BYTES = {Q4_1: 20, Q8_0: 34}  # per 32 numbers
VALUE_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # by metadata type
UINT32, STRING, ARRAY = 4, 8, 9
TAUGHT_KEY = "kibitz.taught"  # metadata: the model was taught a game and answers its short template
HEADER_BYTES = 1 << 24  # more than any header


class Tensor(NamedTuple):
    name: bytes
    shape: tuple[int, ...]
    kind: int
    offset: int


class Header:
    """Everything before the data. The part before the tensor list stays unchanged."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 4
        if content[:4] != b"GGUF" or self._number("I") != 3:
            raise ValueError("This is not a GGUF file of version 3.")
        tensors, self.pairs = self._number("Q"), self._number("Q")
        self.align, self.file_type_at = 32, 0
        self.numbers: dict[str, int] = {}  # metadata of type u32
        self.text: dict[str, str] = {}  # metadata of type string
        for _ in range(self.pairs):
            key, kind = self._string(), self._number("I")
            if kind == STRING:
                at = self._at
                self.text[key.decode()] = self._string().decode("utf-8", "replace")
                self._at = at
            elif kind == UINT32:
                self.numbers[key.decode()] = struct.unpack_from("<I", content, self._at)[0]
            if key == b"general.file_type":
                self.file_type_at = self._at
            if key == b"general.alignment":
                self.align = struct.unpack_from("<I", content, self._at)[0]
            self._skip(kind)
        self.listed_at = self._at
        self.tensors = [self._tensor() for _ in range(tensors)]
        self.data = self._at + -self._at % self.align

    def _number(self, form: str) -> int:
        (found,) = struct.unpack_from(f"<{form}", self._content, self._at)
        self._at += struct.calcsize(form)
        return int(found)

    def _string(self) -> bytes:
        length = self._number("Q")
        self._at += length
        return self._content[self._at - length : self._at]

    def _skip(self, kind: int) -> None:
        if kind == STRING:
            self._string()
        elif kind == ARRAY:
            inner, count = self._number("I"), self._number("Q")
            for _ in range(count):
                self._skip(inner)
        else:
            self._at += VALUE_BYTES[kind]

    def _tensor(self) -> Tensor:
        name = self._string()
        shape = tuple(self._number("Q") for _ in range(self._number("I")))
        return Tensor(name, shape, self._number("I"), self._number("Q"))


def read_header(file: Path) -> Header:
    with file.open("rb") as stream:
        return Header(stream.read(HEADER_BYTES))


def convert(source: Path, target: Path) -> None:
    def q4_to_q8(tensor: Tensor, data: bytes) -> tuple[int, bytes]:
        return (Q8_0, q8(data)) if tensor.kind == Q4_1 else (tensor.kind, data)

    _rewrite(source, target, q4_to_q8)


class LowRank(NamedTuple):
    """What an adapter adds to a matrix: `up @ down`."""

    up: NDArray[np.float32]  # f32[out, rank]
    down: NDArray[np.float32]  # f32[rank, in]


def merge(source: Path, target: Path, changes: Mapping[str, LowRank], text: Mapping[str, str]) -> None:
    """Adds changes to the Q8_0 tensors of these names, and `text` to the metadata; ValueError if they do not fit."""
    left = dict(changes)

    def change(tensor: Tensor, data: bytes) -> tuple[int, bytes]:
        added = left.pop(tensor.name.decode(), None)
        if added is None:
            return tensor.kind, data
        shape = (len(added.up), added.down.shape[1])
        if tensor.kind != Q8_0 or tensor.shape != shape[::-1]:
            raise ValueError(f"{tensor.name.decode()} has another shape or type than the adapter expects")
        # in double precision, so that the order of the sums, which differs between machines, never shows
        change = added.up.astype(np.float64) @ added.down.astype(np.float64)
        return Q8_0, to_q8(from_q8(data).reshape(shape) + change)

    _rewrite(source, target, change, text)
    if left:
        raise ValueError(f"the model has no tensor {min(left)}")


def _rewrite(
    source: Path,
    target: Path,
    change: Callable[[Tensor, bytes], tuple[int, bytes]],
    text: Mapping[str, str] | None = None,
) -> None:
    """Writes the file again with each tensor's kind and data changed."""
    content = source.read_bytes()
    header = Header(content)
    listed, offset, parts = bytearray(), 0, []
    ends = [*(tensor.offset for tensor in header.tensors[1:]), len(content) - header.data]
    for tensor, end in zip(header.tensors, ends, strict=True):
        given = content[header.data + tensor.offset : header.data + end]
        if tensor.kind in BLOCK_BYTES:  # without the padding
            given = given[: int(np.prod(tensor.shape)) // 32 * BLOCK_BYTES[tensor.kind]]
        kind, part = change(tensor, given)
        part += b"\0" * (-len(part) % header.align)
        listed += struct.pack("<Q", len(tensor.name)) + tensor.name
        listed += struct.pack(f"<I{len(tensor.shape)}QIQ", len(tensor.shape), *tensor.shape, kind, offset)
        offset += len(part)
        parts.append(part)
    before = bytearray(content[: header.listed_at])
    if header.file_type_at:
        struct.pack_into("<I", before, header.file_type_at, FILE_TYPE_Q8_0)
    # engines refuse a file that has a name twice, such as a taught model that was taught again
    added = {name: value for name, value in (text or {}).items() if name not in header.text}
    for name, value in added.items():
        key, words = name.encode(), value.encode()
        before += struct.pack("<Q", len(key)) + key + struct.pack("<IQ", STRING, len(words)) + words
    struct.pack_into("<Q", before, 16, header.pairs + len(added))
    start = bytes(before + listed)
    with target.open("wb") as out:
        out.writelines([start, b"\0" * (-len(start) % header.align), *parts])


def from_q8(blocks: bytes) -> NDArray[np.float32]:
    """The numbers of blocks of Q8_0."""
    raw = np.frombuffer(blocks, np.uint8).reshape(-1, BLOCK_BYTES[Q8_0])
    values: NDArray[np.float32] = (_to_float32(raw[:, :2]) * raw[:, 2:].view(np.int8)).astype(np.float32)
    return values.ravel()


def q8(blocks: bytes) -> bytes:
    """Convert blocks of Q4_1 (step, minimum, 32 half-bytes) to blocks of Q8_0 (step, 32 bytes)."""
    raw = np.frombuffer(blocks, np.uint8).reshape(-1, BLOCK_BYTES[Q4_1])
    step, lowest = (_to_float32(raw[:, at : at + 2]) for at in (0, 2))
    return to_q8(step * np.hstack([raw[:, 4:] & 15, raw[:, 4:] >> 4]) + lowest)


def to_q8(numbers: NDArray[Any]) -> bytes:
    """Blocks of Q8_0 (step, 32 bytes)."""
    values = numbers.reshape(-1, 32)
    scale = np.abs(values).max(1, keepdims=True) / np.float32(127)
    out = np.empty((len(values), BLOCK_BYTES[Q8_0]), np.uint8)
    out[:, :2] = scale.astype("<f2").view(np.uint8)
    out[:, 2:] = np.rint(values / np.where(scale, scale, 1)).astype(np.int8).view(np.uint8)
    return out.tobytes()


def _to_float32(pairs: NDArray[np.uint8]) -> NDArray[Any]:
    return np.ascontiguousarray(pairs).view("<f2").astype(np.float32)
