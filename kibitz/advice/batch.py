"""A language model's hints for thousands of games: all questions at once, hints back in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from numpy.typing import NDArray

from kibitz.advice.ask import History, Position, PositionAsker
from kibitz.advice.position_cache import PositionCache, scope_of
from kibitz.core.errors import BadInput
from kibitz.core.game import Game, first_view
from kibitz.core.words import question_variables
from kibitz.llm.answers.prompt import Prompt
from kibitz.llm.client.client import max_usage_of
from kibitz.llm.client.types import FailureKind, Usage
from kibitz.llm.client.usage import UsageLedger
from kibitz.llm.presets import Preset, why_not

USAGE = ("asked", "given", "hits", "shared", "calls", "prompt_tokens", "completion_tokens", "money")


def columns(about: str) -> tuple[str, ...]:
    """The columns of metrics.csv about a model's `hints`, or about a `judge`."""
    return tuple(f"{about}_{name}" for name in (*USAGE, *(f"failed_{kind}" for kind in FailureKind)))


class Hints(NamedTuple):
    """For every game of a batch; zeros where no hint was due or none came."""

    act: NDArray[np.int32]  # [heads, seeds, games]
    confidence: NDArray[np.float32]  # [seeds, games]
    available: NDArray[np.bool_]  # [seeds, games]


class HintContext(Protocol):
    """What questions are made from; leaves are arrays with seeds and games first."""

    view: Any
    masks: Any
    lines: Any  # i16[seeds, games, max lines, 1 + heads]: 1 + seat and act, oldest first
    length: Any  # i32[seeds, games], lines so far


class HintSource(Protocol):
    """An adviser on the host."""

    about: str
    prompt: Prompt
    ledgers: list[UsageLedger]  # one per seed
    waiting: Callable[[int], None]  # called several times a second with the number of questions not yet answered

    def hints(self, due: NDArray[np.bool_], keys: NDArray[np.uint32], context: Callable[[], HintContext]) -> Hints:
        """`due` is [seeds, games], `keys` u32[seeds, games, 4]; `context` is only computed for unknown positions."""
        ...

    def max_usage(self) -> Usage:
        """The most that one question may cost."""
        ...

    def close(self) -> None: ...


class LLMHints:
    """One game, one preset, one prompt. Raises BadInput for what cannot be used; connects with the first hint."""

    about = "hints"  # prefix of its columns and its key in a run's record

    def __init__(
        self,
        game: Game,
        settings: Any,
        preset: Preset,
        prompt: Prompt,
        seeds: int = 1,
        **limits: Any,
    ) -> None:
        """The limits are those of `Asker`."""
        self.game, self.settings, self.preset, self.prompt = game, jax.device_get(settings), preset, prompt
        self._limits = limits
        self.ledger = UsageLedger()
        self.ledgers = [UsageLedger(parent=self.ledger) for _ in range(seeds)]
        self.waiting: Callable[[int], None] = lambda count: None
        self._asker: PositionAsker | None = None
        self._positions: PositionCache | None = None
        view, masks = first_view(game, settings)
        self._example = Position(self.settings, view, masks, [])
        if not game.words.answer_fields(view, masks):
            raise BadInput(f"{game.name} has no words for an LLM; use --hint none, random or expert.")
        if reason := why_not(preset):
            raise BadInput(f"{preset.provider} cannot give hints: {reason}")
        prompt.check(question_variables(game.words, prompt.names, self.settings, view, masks, []))

    def hints(self, due: NDArray[np.bool_], keys: NDArray[np.uint32], context: Callable[[], HintContext]) -> Hints:
        seeds, games = np.nonzero(due)
        places: list[bytes] = keys[seeds, games].view("V16").ravel().tolist()
        rows = self.positions.find(places)
        found = rows >= 0
        for seed, count in enumerate(np.bincount(seeds[found], minlength=len(self.ledgers)).tolist()):
            if count:
                self.asker.record_hits(count, self.ledgers[seed])
        if not found.all():
            missing = np.flatnonzero(~found)
            rows[missing] = self._ask(
                [(int(seeds[i]), int(games[i]), places[i]) for i in missing], jax.device_get(context())
            )
            given = rows >= 0
            seeds, games, rows = seeds[given], games[given], rows[given]
        act = np.zeros((len(self.game.heads), *due.shape), np.int32)
        confidence, available = np.zeros(due.shape, np.float32), np.zeros(due.shape, bool)
        act[:, seeds, games] = self.positions.acts[rows].T
        confidence[seeds, games] = self.positions.confidence[rows]
        available[seeds, games] = True
        return Hints(act, confidence, available)

    def max_usage(self) -> Usage:
        """The most that one question about a first position may cost."""
        variables = question_variables(self.game.words, self.prompt.names, *self._example[:4])
        return max_usage_of(self.preset, self.prompt.messages(variables))

    def open(self) -> None:
        """Connects and reads the cache, which the first hints would do otherwise."""
        _ = self.positions

    def close(self) -> None:
        if self._positions is not None:
            self._positions.close()
        if self._asker is not None:
            self._asker.close()
        self._asker = self._positions = None

    @property
    def asker(self) -> PositionAsker:
        if self._asker is None:
            self._asker = PositionAsker(self.game, self.preset, prompt=self.prompt, ledger=self.ledger, **self._limits)
        return self._asker

    @property
    def positions(self) -> PositionCache:
        if self._positions is None:
            scope = scope_of(self.game, self.settings, self.asker.key(self._example))
            self._positions = PositionCache(self.game.sizes, scope, self._limits.get("cache"))
        return self._positions

    def _ask(self, missing: list[tuple[int, int, bytes]], context: HintContext) -> list[int]:
        """Asks about unknown positions, each once; the row of each, -1 where no hint came."""
        first: dict[bytes, tuple[int, int]] = {}
        for seed, game, key in missing:
            first.setdefault(key, (seed, game))
        self.waiting(len(first))
        positions = (self._position(context, *at) for at in first.values())
        found = self.asker.ask(positions, waiting=lambda answered: self.waiting(len(first) - answered))
        advice = dict(zip(first, found, strict=True))
        for key, one in advice.items():
            if one.act is not None:
                self.positions.add(key, one.act, one.confidence)
        self.positions.flush()
        for seed, game, key in missing:
            if first[key] != (seed, game):
                self.asker.share(advice[key], self.ledgers[seed])
        return [self.positions.rows.get(key, -1) for _, _, key in missing]

    def _position(self, context: HintContext, seed: int, game: int) -> Position:
        leaves, tree = jax.tree.flatten((context.view, context.masks))
        view, masks = jax.tree.unflatten(tree, [leaf[seed, game] for leaf in leaves])
        lines = context.lines[seed, game, : context.length[seed, game]].tolist()
        history: History = [{"seat": line[0] - 1, "act": tuple(line[1:])} for line in lines]
        return Position(self.settings, view, masks, history, self.ledgers[seed])


def usage_columns(ledgers: Sequence[UsageLedger], about: str) -> dict[str, NDArray[np.float64]]:
    """f64[seeds] per column of metrics.csv."""
    rows = [
        [*(getattr(ledger, name) for name in USAGE), *(ledger.failures[str(kind)] for kind in FailureKind)]
        for ledger in ledgers
    ]
    return dict(zip(columns(about), np.array(rows, float).T, strict=True))
