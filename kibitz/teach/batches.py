"""Rows of chat messages as batches of tokens, in an order that a seed fixes."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kibitz.core.errors import BadInput

BATCHES_PER_BUFFER = 32  # rows are shuffled, then sorted by length, within a buffer of this many batches


class Batch(NamedTuple):
    """Padded on the right: causal attention never reaches the padding, so no attention mask is needed."""

    tokens: NDArray[np.int64]  # i64[rows, length]
    taught: NDArray[np.bool_]  # bool[rows, length], the tokens of the answers


def count_rows(files: Sequence[Path]) -> int:
    total = 0
    for file in files:
        with file.open("rb") as stream:
            total += sum(1 for _ in stream)
    if not total:
        raise BadInput(f"{', '.join(map(str, files))} contains no rows; write some with `kibitz teach data`.")
    return total


class Encoder:
    """A tokenizer with its chat template."""

    def __init__(self, tokenizer: Any, max_tokens: int) -> None:
        if tokenizer.chat_template is None or tokenizer.eos_token_id is None:
            raise BadInput("The model's tokenizer has no chat template or no end token; choose a chat model as --base.")
        self.tokenizer, self.max_tokens = tokenizer, max_tokens
        self.end = tokenizer.eos_token_id

    def encode(self, lines: Sequence[bytes]) -> list[tuple[list[int], int]]:
        """The tokens of each row and where its answer starts; rows that are too long are left out."""
        asked, answers = [], []
        for line in lines:
            *messages, last = _messages(line)
            text = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
            asked.append(text)
            answers.append(last["content"])
        plain = {"add_special_tokens": False, "return_attention_mask": False}
        pairs = zip(self.tokenizer(asked, **plain).input_ids, self.tokenizer(answers, **plain).input_ids, strict=True)
        rows = [([*prompt, *answer, self.end], len(prompt)) for prompt, answer in pairs]
        return [row for row in rows if len(row[0]) <= self.max_tokens]


def _messages(line: bytes) -> list[dict[str, str]]:
    try:
        row = json.loads(line)
        messages = row["messages"] if "messages" in row else [*row["prompt"], *row["completion"]]
        if len(messages) < 2 or messages[-1]["role"] != "assistant":
            raise ValueError
    except (ValueError, KeyError, TypeError):
        shown = line[:60].decode("utf-8", "replace")
        raise BadInput(f"A row must hold `messages` that end with the assistant's answer, not {shown!r}.") from None
    return list(messages)


def batches(
    files: Sequence[Path], encoder: Encoder, size: int, seed: int, share: tuple[int, int] = (0, 1)
) -> Iterator[Batch]:
    """One pass over the files; `share` (i, n) takes every n-th row from the i-th on."""
    chance = random.Random(f"{seed}:{share[0]}")
    lines = itertools.islice(_lines(files), *(share[0], None, share[1]))
    while buffer := list(itertools.islice(lines, size * BATCHES_PER_BUFFER)):
        chance.shuffle(buffer)
        rows = sorted(encoder.encode(buffer), key=lambda row: len(row[0]))
        found = [_padded(rows[at : at + size], encoder.end) for at in range(0, len(rows), size)]
        chance.shuffle(found)
        yield from found


def _lines(files: Sequence[Path]) -> Iterator[bytes]:
    """Lines of all files, each next from the file with the largest share unread, so that their mix stays the same."""
    sizes = [max(1, file.stat().st_size) for file in files]
    streams = [file.open("rb") for file in files]
    unread = dict.fromkeys(range(len(files)), 1.0)
    try:
        while unread:
            place = max(unread, key=unread.__getitem__)
            if line := streams[place].readline():
                unread[place] -= len(line) / sizes[place]
                yield line
            else:
                del unread[place]
    finally:
        for stream in streams:
            stream.close()


def _padded(rows: list[tuple[list[int], int]], end: int) -> Batch:
    length = max(len(tokens) for tokens, _ in rows)
    tokens = np.full((len(rows), length), end, np.int64)
    taught = np.zeros((len(rows), length), bool)
    for i, (row, start) in enumerate(rows):
        tokens[i, : len(row)] = row
        taught[i, start : len(row)] = True
    return Batch(tokens, taught)
