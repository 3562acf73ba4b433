"""Rows of chat messages as batches of tokens, in an order that a seed fixes."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from kibitz.core.errors import BadInput
from kibitz.core.system.paths import named
from kibitz.teach.job import JobOptions, cosine
from kibitz.teach.libraries import load_tokenizer, require

BATCHES_PER_BUFFER = 32  # rows are shuffled, then sorted by length, within a buffer of this many batches


class RowOptions(JobOptions):
    data: tuple[str, ...]  # files of JSON Lines, mixed in proportion to their sizes
    batch: int = Field(64, ge=1)  # rows
    epochs: int = Field(1, ge=1)
    max_tokens: int = Field(512, ge=16)  # longer rows are left out
    workers: int = Field(0, ge=0)  # processes that prepare batches; part of what fixes their order

    def files(self) -> list[Path]:
        found = [named(file) for file in self.data]
        for file in found:
            if not file.is_file():
                raise BadInput(f"There is no file {str(file)!r}; write one with `kibitz teach data`.")
        return found


class TokenBatch(NamedTuple):
    """Padded on the right: causal attention never reaches the padding, so no attention mask is needed."""

    tokens: NDArray[np.int64]  # i64[rows, length]
    taught: NDArray[np.bool_]  # bool[rows, length], the tokens of the answers


def _count_rows(files: Sequence[Path]) -> int:
    total = 0
    for file in files:
        with file.open("rb") as stream:
            total += sum(1 for _ in stream)
    if not total:
        raise BadInput(f"{', '.join(map(str, files))} contains no rows; write some with `kibitz teach data`.")
    return total


Encoded = tuple[list[int], int]  # the tokens of a conversation, and where its answer starts


class Encoder:
    """A tokenizer with its chat template, for rows with one answer."""

    def __init__(self, tokenizer: Any, max_tokens: int) -> None:
        if tokenizer.chat_template is None or tokenizer.eos_token_id is None:
            raise BadInput("The model's tokenizer has no chat template or no end token; choose a chat model as --base.")
        self.tokenizer, self.max_tokens = tokenizer, max_tokens
        self.end = _end(tokenizer)

    @classmethod
    def of(cls, base: str, max_tokens: int) -> Self:
        return cls(load_tokenizer(base), max_tokens)

    def prompts(self, asked: Sequence[Sequence[Mapping[str, str]]]) -> list[list[int]]:
        """The tokens of each conversation up to where the model answers."""
        chat = self.tokenizer.apply_chat_template
        return self.plain([chat(list(messages), add_generation_prompt=True, tokenize=False) for messages in asked])

    def plain(self, texts: list[str]) -> list[list[int]]:
        """The tokens of each text, and nothing else."""
        found = self.tokenizer(texts, add_special_tokens=False, return_attention_mask=False).input_ids
        return [list(tokens) for tokens in found]

    def answers(self, line: bytes) -> tuple[list[Mapping[str, str]], tuple[str, ...]]:
        """A row's question and its answers."""
        *asked, last = _read_row(line)
        return asked, (last["content"],)

    def encode(self, lines: Sequence[bytes]) -> list[tuple[Encoded, ...]]:
        """Each row's answers, each with its question before it; rows that are too long are left out."""
        asked, answers = zip(*(self.answers(line) for line in lines), strict=True)
        tokens = iter(self.plain([text for texts in answers for text in texts]))
        rows = [
            tuple(([*prompt, *next(tokens), self.end], len(prompt)) for _ in texts)
            for prompt, texts in zip(self.prompts(asked), answers, strict=True)
        ]
        return [row for row in rows if longest(row) <= self.max_tokens]


def _end(tokenizer: Any) -> int:
    """The token that the template writes after an answer; readers of GGUF files disagree about the end token."""
    chat = [{"role": "user", "content": "question"}, {"role": "assistant", "content": "answer"}]
    after = tokenizer.apply_chat_template(chat, tokenize=False).rpartition("answer")[2]
    tokens: list[int] = tokenizer(after, add_special_tokens=False).input_ids
    special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    return tokens[0] if tokens and tokens[0] in special else int(tokenizer.eos_token_id)


def longest(row: tuple[Encoded, ...]) -> int:
    return max(len(tokens) for tokens, _ in row)


def _read_row(line: bytes) -> list[Mapping[str, str]]:
    """The conversation of a row, the answer last."""
    try:
        row = json.loads(line)
        messages = row["messages"] if "messages" in row else [*row["prompt"], *row["completion"]]
        if len(messages) < 2 or messages[-1]["role"] != "assistant":
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise BadInput(
            f"A row must hold `messages` that end with the assistant's answer, not {_shown(line)}."
        ) from None
    return list(messages)


def read_pair(line: bytes) -> tuple[list[Mapping[str, str]], tuple[str, str]]:
    """The question of a row of pairs, the chosen and the rejected answer."""
    try:
        row = json.loads(line)
        (chosen,), (rejected,) = row["chosen"], row["rejected"]
        return list(row["prompt"]), (str(chosen["content"]), str(rejected["content"]))
    except (ValueError, KeyError, TypeError):
        needed = "`prompt`, `chosen` and `rejected`, as `kibitz teach data --pairs` writes them"
        raise BadInput(f"A row must hold {needed}, not {_shown(line)}.") from None


def _shown(line: bytes) -> str:
    return repr(line[:60].decode("utf-8", "replace"))


class RowStream:
    """The batches of a job, and the learning rate of each step."""

    def __init__(self, options: RowOptions, encoder: Encoder) -> None:
        self.options, self.encoder, self.files = options, encoder, options.files()
        self.steps = max(1, math.ceil(_count_rows(self.files) / options.batch)) * options.epochs

    def batches(self, first: int) -> Iterator[TokenBatch]:
        """Of all epochs, without the first ones."""
        (data,) = require("torch.utils.data")
        options, files, encoder = self.options, self.files, self.encoder

        class Stream(data.IterableDataset):  # type: ignore[misc, name-defined]
            def __iter__(self) -> Iterator[TokenBatch]:
                info = data.get_worker_info()
                share = (0, 1) if info is None else (info.id, info.num_workers)
                for epoch in range(options.epochs):
                    yield from batches(files, encoder, options.batch, options.seed + epoch, share)

        loader = data.DataLoader(Stream(), batch_size=None, num_workers=options.workers, collate_fn=lambda batch: batch)
        yield from itertools.islice(loader, first, None)

    def rate(self, step: int) -> float:
        return cosine(self.options.lr, step, self.steps)

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Nothing to restore: the seed and the step fix the batches."""


def batches(
    files: Sequence[Path], encoder: Encoder, size: int, seed: int, share: tuple[int, int] = (0, 1)
) -> Iterator[TokenBatch]:
    """One pass over the files; `share` (i, n) takes every n-th row from the i-th on."""
    chance = random.Random(f"{seed}:{share[0]}")
    lines = itertools.islice(_lines(files), *(share[0], None, share[1]))
    while buffer := list(itertools.islice(lines, size * BATCHES_PER_BUFFER)):
        chance.shuffle(buffer)
        rows = sorted(encoder.encode(buffer), key=longest)
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


def _padded(rows: list[tuple[Encoded, ...]], end: int) -> TokenBatch:
    """The first answers of all rows, then the second ones."""
    flat = [one for group in zip(*rows, strict=True) for one in group]
    tokens = np.full((len(flat), max(map(longest, rows))), end, np.int64)
    taught = np.zeros(tokens.shape, bool)
    for i, (row, start) in enumerate(flat):
        tokens[i, : len(row)] = row
        taught[i, start : len(row)] = True
    return TokenBatch(tokens, taught)
