"""A language model in the ear of thousands of games: all their questions at once, features back in order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from numpy.typing import NDArray

from kibitz.advice.ask import Advice, Asker, History, Position
from kibitz.advice.known import Known, scope_of
from kibitz.core.errors import BadInput
from kibitz.core.game import Game, first_view
from kibitz.core.words import question_variables
from kibitz.llm.answers.prompt import Prompt
from kibitz.llm.client.client import Client, connect
from kibitz.llm.client.limits import Budget, FailurePolicy
from kibitz.llm.client.types import FailureKind
from kibitz.llm.presets import Preset, why_not

COUNTED = ("asked", "given", "hits", "shared", "calls", "prompt_tokens", "completion_tokens", "money")
CALLS = COUNTED.index("calls")  # and tokens and money after it
COLUMNS = tuple(f"hints_{name}" for name in (*COUNTED, *(f"failed_{kind}" for kind in FailureKind)))


class Hints(NamedTuple):
    """For every game of a batch; zeros where none was asked for or none came."""

    act: NDArray[np.int32]  # [heads, seeds, games]
    confidence: NDArray[np.float32]  # [seeds, games]
    available: NDArray[np.bool_]  # [seeds, games]


class Looked(Protocol):
    """What questions are made of; leaves are arrays with seeds and games first."""

    view: Any
    masks: Any
    lines: Any  # i16[seeds, games, most, 1 + heads]: 1 + seat and act, oldest first
    length: Any  # i32[seeds, games], lines so far


class Source(Protocol):
    """Who advises, on the host."""

    prompt: Prompt
    counts: NDArray[np.float64]  # [columns, seeds], so far: see COLUMNS

    def hints(self, due: NDArray[np.bool_], places: NDArray[np.uint32], look: Callable[[], Looked]) -> Hints:
        """`due` is [seeds, games], `places` u32[seeds, games, 4]; `look` is for positions nobody knows yet."""
        ...

    def book(self) -> dict[str, Any]: ...

    def close(self) -> None: ...


class LLMHints:
    """One game, one preset, one prompt. BadInput at once for what cannot be used; asks nothing before it must."""

    def __init__(
        self,
        game: Game,
        settings: Any,
        preset: Preset,
        prompt: Prompt,
        seeds: int = 1,
        *,
        cache: str | Path | None = None,
        budget: Budget | None = None,
        policy: FailurePolicy | None = None,
        connect: Callable[..., Client] = connect,
    ) -> None:
        self.game, self.settings, self.preset, self.prompt = game, jax.device_get(settings), preset, prompt
        self.cache, self.budget, self.policy, self.connect = cache, budget, policy, connect
        self.counts = np.zeros((len(COLUMNS), seeds))
        self._asker: Asker | None = None
        self._known: Known | None = None
        self._last_book: dict[str, Any] = {}
        view, masks = first_view(game, settings)
        self._example = Position(self.settings, view, masks, [])
        if not game.words.answer_fields(view, masks):
            raise BadInput(f"{game.name} has no words for an LLM; use --hint none, random or expert.")
        if reason := why_not(preset):
            raise BadInput(f"Hints of an LLM cannot be had from {preset.provider}: {reason}")
        prompt.check(question_variables(game.words, prompt.names, self.settings, view, masks, []))

    def hints(self, due: NDArray[np.bool_], places: NDArray[np.uint32], look: Callable[[], Looked]) -> Hints:
        seeds, games = np.nonzero(due)
        keys: list[bytes] = places[seeds, games].view("V16").ravel().tolist()
        rows = self.known.find(keys)
        self._count("asked", seeds)
        found = rows >= 0
        if found.all():
            self._count("hits", seeds)
        else:
            self._count("hits", seeds[found])
            missing = np.flatnonzero(~found)
            rows[missing] = self._ask(
                [(int(seeds[i]), int(games[i]), keys[i]) for i in missing], jax.device_get(look())
            )
        if count := int(found.sum()):
            self.asker.remembered(count)
        given = rows >= 0
        if not given.all():
            seeds, games, rows = seeds[given], games[given], rows[given]
        self._count("given", seeds)
        act = np.zeros((len(self.game.heads), *due.shape), np.int32)
        confidence, available = np.zeros(due.shape, np.float32), np.zeros(due.shape, bool)
        act[:, seeds, games] = self.known.acts[rows].T
        confidence[seeds, games] = self.known.confidence[rows]
        available[seeds, games] = True
        return Hints(act, confidence, available)

    def open(self) -> None:
        """Connects and reads what is known; the first hints would do it, too."""
        _ = self.known

    def book(self) -> dict[str, Any]:
        """Everything asked so far, by outcome, and what it cost."""
        return self._asker.book if self._asker else self._last_book

    def close(self) -> None:
        if self._known is not None:
            self._known.close()
        if self._asker is not None:
            self._last_book = self._asker.book
            self._asker.close()
        self._asker = self._known = None

    @property
    def asker(self) -> Asker:
        if self._asker is None:
            self._asker = Asker(
                self.game,
                self.preset,
                prompt=self.prompt,
                cache=self.cache,
                budget=self.budget,
                policy=self.policy,
                connect=self.connect,
            )
        return self._asker

    @property
    def known(self) -> Known:
        if self._known is None:
            question = self.asker.line.client.key(self.asker.question(self._example))
            self._known = Known(self.game.sizes, scope_of(self.game, self.settings, question), self.cache)
        return self._known

    def _ask(self, missing: list[tuple[int, int, bytes]], look: Looked) -> list[int]:
        """Asks what is not known, equal positions once; the row of each, -1 where no hint came."""
        first: dict[bytes, tuple[int, int]] = {}
        for seed, game, key in missing:
            first.setdefault(key, (seed, game))
        advice = dict(zip(first, self.asker.ask(self._position(look, *at) for at in first.values()), strict=True))
        for key, one in advice.items():
            if one.act is not None:
                self.known.add(key, one.act, one.confidence)
        self.known.flush()
        for seed, game, key in missing:
            one = advice[key] if first[key] == (seed, game) else self.asker.again(advice[key])
            self._enter(seed, one)
        return [self.known.rows.get(key, -1) for _, _, key in missing]

    def _position(self, look: Looked, seed: int, game: int) -> Position:
        leaves, tree = jax.tree.flatten((look.view, look.masks))
        view, masks = jax.tree.unflatten(tree, [leaf[seed, game] for leaf in leaves])
        lines = look.lines[seed, game, : look.length[seed, game]].tolist()
        history: History = [{"seat": line[0] - 1, "act": tuple(line[1:])} for line in lines]
        return Position(self.settings, view, masks, history)

    def _count(self, name: str, seeds: NDArray[np.int64]) -> None:
        self.counts[COUNTED.index(name)] += np.bincount(seeds, minlength=self.counts.shape[1])

    def _enter(self, seed: int, advice: Advice) -> None:
        """One reply into the columns of its seed; who asked first pays."""
        reply, counts = advice.reply, self.counts
        if reply.source in ("cache", "shared"):
            counts[COUNTED.index("hits" if reply.source == "cache" else "shared"), seed] += 1
        else:
            used = reply.usage
            spent = (reply.attempts, used.prompt_tokens, used.completion_tokens, used.money)
            counts[CALLS : CALLS + len(spent), seed] += spent
        if reply.failure is not None:
            counts[COLUMNS.index(f"hints_failed_{reply.failure.kind}"), seed] += 1
