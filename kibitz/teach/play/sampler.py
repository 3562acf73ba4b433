"""A language model that answers many positions at once and can give no illegal answer.

The answers of a position's legal acts form a tree of tokens. The model is asked only where the tree branches, and only
about the tokens there; a token without an alternative is certain and costs nothing. So an act's probability is that of
its answer among the legal ones, and its gradient moves probability between legal acts alone.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from kibitz.advice.ask import Position
from kibitz.core.act import Masks
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.teach.batches import Encoder
from kibitz.teach.examples.rows import RowWriter
from kibitz.teach.libraries import find_device, load_model, require

MAX_LEGAL_ACTS = 20_000  # of one position; each is one answer
MAX_TREES = 4096  # kept for positions with the same legal acts

Act: TypeAlias = tuple[int, ...]
Tree: TypeAlias = "dict[int, Tree] | Act"  # the token after which each branch goes on; an act at the end


class Branch(NamedTuple):
    """A token that the model chose."""

    at: int  # its place in `Answered.tokens`
    legal: tuple[int, ...]  # tokens
    chosen: int  # place in `legal`


class Answered(NamedTuple):
    act: Act
    tokens: list[int]  # question and answer up to the last choice
    branches: list[Branch]


class Sampler:
    """One game, one template, one model."""

    def __init__(self, game: Game, writer: RowWriter, encoder: Encoder, model: Any, torch: Any, batch: int) -> None:
        self.game, self.writer, self.encoder = game, writer, encoder
        self.model, self.torch, self.batch = model, torch, batch
        self._trees: OrderedDict[Any, Tree] = OrderedDict()

    @classmethod
    def of(cls, game: Game, base: str, writer: RowWriter, batch: int = 64) -> Sampler:
        """A model as it is, on the best device."""
        (torch,) = require("torch")
        device = find_device("auto")
        dtype = torch.float32 if device == "cpu" else torch.bfloat16
        model = load_model(base, dtype).to(device).eval()
        return cls(game, writer, Encoder.of(base, 1 << 30), model, torch, batch)

    def answer(self, positions: Sequence[Position], chance: np.random.Generator | None) -> list[Answered]:
        """Draws answers; without chance, takes the most likely token at each branch."""
        found: list[Answered] = []
        with self.torch.inference_mode():
            for first in range(0, len(positions), self.batch):
                found += self._answer(positions[first : first + self.batch], chance)
        return found

    def _answer(self, positions: Sequence[Position], chance: np.random.Generator | None) -> list[Answered]:
        torch, device = self.torch, self.model.device
        prompts = self.encoder.prompts([self.writer.messages(position) for position in positions])
        walks = [_Walk(prompt, self.tree(position)) for prompt, position in zip(prompts, positions, strict=True)]
        cache, seen = None, torch.zeros((len(walks), 0), dtype=torch.int64, device=device)
        fed = [0] * len(walks)
        while any(walk.open for walk in walks):
            new = [walk.tokens[start:] if walk.open else [] for walk, start in zip(walks, fed, strict=True)]
            fed = [len(walk.tokens) for walk in walks]
            width = max(map(len, new))
            tokens = np.full((len(walks), width), self.encoder.end, np.int64)
            real = np.zeros(tokens.shape, np.int64)
            for i, row in enumerate(new):  # padded on the left, so that the last column is every row's last token
                tokens[i, width - len(row) :], real[i, width - len(row) :] = row, 1
            seen = torch.cat([seen, torch.from_numpy(real).to(device)], 1)
            places = (seen.cumsum(1) - 1).clamp(min=0)[:, -width:]
            shown = self.model(
                input_ids=torch.from_numpy(tokens).to(device), attention_mask=seen, position_ids=places,
                past_key_values=cache, use_cache=True, logits_to_keep=1,
            )  # fmt: skip
            cache, logits = shown.past_key_values, shown.logits[:, -1]
            due = [i for i, walk in enumerate(walks) if walk.open]
            legal = [walks[i].legal for i in due]
            scores = gathered(torch, logits[due].float(), legal).cpu().numpy()
            dice = None if chance is None else chance.random(len(due))
            for place, i in enumerate(due):
                own = scores[place, : len(legal[place])]
                walks[i].go(int(own.argmax()) if dice is None else _drawn(own, float(dice[place])))
        return [walk.answered() for walk in walks]

    def tree(self, position: Position) -> Tree:
        declared = self.game.words.answer_fields(position.view, position.masks)
        key = (repr(declared), *(np.asarray(mask).tobytes() for mask in position.masks))
        if key in self._trees:
            self._trees.move_to_end(key)
            return self._trees[key]
        acts = list(itertools.islice(legal_acts(self.game, position.masks), MAX_LEGAL_ACTS + 1))
        if len(acts) > MAX_LEGAL_ACTS:
            raise BadInput(
                f"A position of {self.game.name} has more than {MAX_LEGAL_ACTS:,} legal acts, too many here."
            )
        texts = [self.writer.answer(position, act)["content"] for act in acts]
        tree: dict[int, Tree] = {}
        for act, tokens in zip(acts, self.encoder.plain(texts), strict=True):
            node: Any = tree
            for token in tokens:
                node = node.setdefault(token, {})
            node.setdefault(self.encoder.end, act)  # acts that differ in nothing that matters share an answer
        self._trees[key] = tree
        if len(self._trees) > MAX_TREES:
            self._trees.popitem(last=False)
        return tree


class _Walk:
    """One answer on its way through the tree; stands where the model has to choose, or at the end."""

    def __init__(self, prompt: list[int], tree: Tree) -> None:
        self.tokens, self.branches, self.node = list(prompt), list[Branch](), tree
        self._certain()

    @property
    def open(self) -> bool:
        return isinstance(self.node, dict)

    @property
    def legal(self) -> tuple[int, ...]:
        assert isinstance(self.node, dict)
        return tuple(self.node)

    def go(self, chosen: int) -> None:
        legal = self.legal
        self.branches.append(Branch(len(self.tokens), legal, chosen))
        assert isinstance(self.node, dict)
        self.tokens.append(legal[chosen])
        self.node = self.node[legal[chosen]]
        self._certain()

    def _certain(self) -> None:
        while isinstance(self.node, dict) and len(self.node) == 1:
            ((token, self.node),) = self.node.items()
            self.tokens.append(token)

    def answered(self) -> Answered:
        assert not isinstance(self.node, dict)
        last = self.branches[-1].at + 1 if self.branches else 0
        return Answered(self.node, self.tokens[:last], self.branches)


def legal_acts(game: Game, masks: Masks) -> Iterator[Act]:
    """Every legal act; heads that do not matter have their first legal value."""
    opened = [np.flatnonzero(np.asarray(mask)).tolist() for mask in masks]
    for first in opened[0]:
        matters = game.matters[first]
        rest = [values if counts else values[:1] for values, counts in zip(opened[1:], matters[1:], strict=True)]
        yield from ((first, *others) for others in itertools.product(*rest))


def gathered(torch: Any, logits: Any, legal: Sequence[tuple[int, ...]]) -> Any:
    """f32[n, most legal tokens]: log-probabilities among each row's legal tokens; -inf behind the last of them."""
    width = max(map(len, legal))
    places = torch.tensor([[*row, *[0] * (width - len(row))] for row in legal], device=logits.device)
    there = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in legal], device=logits.device).bool()
    return logits.gather(1, places).masked_fill(~there, float("-inf")).log_softmax(1)


def _drawn(logs: Any, u: float) -> int:
    """A place by its probability."""
    ends = np.exp(logs.astype(np.float64)).cumsum()
    return int(min(np.searchsorted(ends, u * ends[-1], side="right"), len(ends) - 1))
