"""A model of transformers that writes many answers at once, none of them illegal.

A question is read once and its answer written choice by choice, all questions together. At each choice the model is
asked only about the tokens that a legal answer can have there; what lies between two choices is read, not generated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kibitz.llm.answers.answer import TEXT_CHARS, Answer
from kibitz.llm.answers.stepwise import Choice, choices

MAX_CACHED_BRANCHES = 65_536  # places in answers; a game has far fewer


class ChosenToken(NamedTuple):
    """A token that the model chose."""

    at: int  # its place in `Written.tokens`
    start: int  # its place in the answer's text
    legal: tuple[int, ...]  # tokens
    texts: tuple[str, ...]  # what each of them adds to the answer
    chosen: int  # place in `legal`
    logps: tuple[float, ...]  # log-probabilities among the legal tokens


class Written(NamedTuple):
    text: str
    tokens: list[int]  # question and answer up to the last choice
    chosen: list[ChosenToken]


Pick: TypeAlias = Callable[[NDArray[np.float32]], int]  # log-probabilities of the legal tokens -> place of one


class BatchWriter:
    def __init__(self, model: Any, tokenizer: Any, torch: Any) -> None:
        self.model, self.tokenizer, self.torch = model, tokenizer, torch
        self.branch = lru_cache(MAX_CACHED_BRANCHES)(self._branch)

    def write(
        self,
        prompts: Sequence[Sequence[int]],
        answers: Sequence[Answer],
        pick: Pick,
        stop: Callable[[], bool] = lambda: False,
    ) -> list[Written] | None:
        """An answer to each question; None if `stop` ended it."""
        torch, device = self.torch, self.model.device
        rows = [_Row(self, prompt, answer) for prompt, answer in zip(prompts, answers, strict=True)]
        cache, seen = None, torch.zeros((len(rows), 0), dtype=torch.int64, device=device)
        fed = [0] * len(rows)
        while any(row.open for row in rows):
            if stop():
                return None
            new = [row.tokens[start:] if row.open else [] for row, start in zip(rows, fed, strict=True)]
            fed = [len(row.tokens) for row in rows]
            width = max(map(len, new))
            tokens, real = np.zeros((len(rows), width), np.int64), np.zeros((len(rows), width), np.int64)
            for i, part in enumerate(new):  # padded on the left, so that the last column is every row's last token
                tokens[i, width - len(part) :], real[i, width - len(part) :] = part, 1
            seen = torch.cat([seen, torch.from_numpy(real).to(device)], 1)
            places = (seen.cumsum(1) - 1).clamp(min=0)[:, -width:]
            shown = self.model(
                input_ids=torch.from_numpy(tokens).to(device), attention_mask=seen, position_ids=places,
                past_key_values=cache, use_cache=True, logits_to_keep=1,
            )  # fmt: skip
            cache, logits = shown.past_key_values, shown.logits[:, -1]
            due = [row for row in rows if row.open]
            places = torch.tensor([i for i, row in enumerate(rows) if row.open], device=device)
            scores = among(torch, logits[places].float(), [row.legal for row in due]).cpu().numpy()
            for row, own in zip(due, scores, strict=True):
                row.go(pick, own[: len(row.legal)])
        return [row.written() for row in rows]

    def _branch(self, text: str, options: tuple[str, ...]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...]]:
        """The tokens that all continuations of the answer share, those that may follow, and what each adds to it."""
        encoded = [self.encode(text + option) for option in options]
        same = next(i for i, column in enumerate(zip(*encoded, strict=False)) if len(set(column)) > 1)
        ends = dict.fromkeys(tokens[: same + 1] for tokens in encoded)
        added = tuple(self.tokenizer.decode(list(tokens))[len(text) :] for tokens in ends)
        return encoded[0][:same], tuple(tokens[-1] for tokens in ends), added

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer(text, add_special_tokens=False).input_ids)

    @cached_property
    def words(self) -> dict[int, str]:
        """The tokens that a free text may consist of."""
        allowed = re.compile(f"(?:{TEXT_CHARS})+")
        count = len(self.tokenizer)
        texts = self.tokenizer.batch_decode([[token] for token in range(count)])
        special = set(self.tokenizer.all_special_ids)
        return {token: text for token, text in enumerate(texts) if token not in special and allowed.fullmatch(text)}


class _Row:
    """One question and its answer, which ends before a choice or is complete."""

    def __init__(self, writer: BatchWriter, prompt: Sequence[int], answer: Answer) -> None:
        self.writer, self.tokens, self.asked = writer, list(prompt), len(prompt)
        self.chosen: list[ChosenToken] = []
        self.legal: tuple[int, ...] = ()
        self.texts: tuple[str, ...] = ()
        self.text, self.open = "", True
        self._steps = choices(answer)
        self._advance(None)

    def go(self, pick: Pick, logps: NDArray[np.float32]) -> None:
        """Writes one of the legal tokens."""
        place = pick(logps)
        legal, texts = self.legal, self.texts
        self.chosen.append(ChosenToken(len(self.tokens), len(self.text), legal, texts, place, tuple(logps.tolist())))
        self.tokens.append(legal[place])
        self._advance(texts[place])

    def written(self) -> Written:
        last = self.chosen[-1].at + 1 if self.chosen else 0
        return Written(self.text, self.tokens[:last], self.chosen)

    def _advance(self, piece: str | None) -> None:
        """Reads on to the next place where there are several legal tokens."""
        try:
            choice = next(self._steps) if piece is None else self._steps.send(piece)
            self._stand(choice)
            while len(self.legal) == 1:
                self.tokens.append(self.legal[0])
                self._stand(self._steps.send(self.texts[0]))
        except StopIteration as end:
            self.text, self.open = end.value, False

    def _stand(self, choice: Choice) -> None:
        self.text = choice.text
        if not choice.options:
            self._read(self.writer.encode(choice.text))
            quote = self.writer.encode('"')[-1]
            words = {token: text for token, text in self.writer.words.items() if len(text) <= choice.limit}
            self.legal, self.texts = (quote, *words), ('"', *words.values())
            return
        shared, self.legal, self.texts = self.writer.branch(choice.text, choice.options)
        if not self._read(shared):  # a tokenizer that splits a text in another way once it goes on
            firsts = {self.writer.encode(option)[0]: None for option in choice.options}
            self.legal = tuple(firsts)
            self.texts = tuple(self.writer.tokenizer.decode([token]) for token in firsts)

    def _read(self, answer: tuple[int, ...]) -> bool:
        """Adds the tokens that the answer has so far; False if it began with other tokens before."""
        before = self.tokens[self.asked :]
        if list(answer[: len(before)]) == before:
            self.tokens += answer[len(before) :]
            return True
        self.tokens += self.writer.encode(self.text[len(self.writer.tokenizer.decode(before)) :])
        return False


def among(torch: Any, logits: Any, legal: Sequence[tuple[int, ...]]) -> Any:
    """f32[n, most legal tokens]: log-probabilities among each row's legal tokens; -inf behind the last of them."""
    width = max(map(len, legal))
    places = torch.tensor([[*row, *[0] * (width - len(row))] for row in legal], device=logits.device)
    there = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in legal], device=logits.device).bool()
    return logits.gather(1, places).masked_fill(~there, float("-inf")).log_softmax(1)


def drawn(logps: NDArray[np.float32], u: float, temperature: float = 1.0, top_p: float = 1.0) -> int:
    """A place by its probability; `top_p` omits the least likely ones beyond this share."""
    weights = np.exp((logps.astype(np.float64) - logps.max()) / temperature)
    order = np.argsort(-weights, kind="stable")
    ends = weights[order].cumsum() / weights.sum()
    ends = ends[: np.searchsorted(ends, top_p) + 1]
    return int(order[min(np.searchsorted(ends, u * ends[-1], side="right"), len(ends) - 1)])
