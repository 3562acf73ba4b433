"""Many episodes side by side, with a player of the host in seat 0: all games take their next step together.

Rules, bots and chance are compiled; positions come to the host, where a language model answers all of them in
a few forward passes. Episode `number` of a seed is the same one that `play_episode` plays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kibitz.advice.ask import History, Position
from kibitz.core.bots import Bot, seated, where
from kibitz.core.chance import episode_luck, seat_luck, seed_key, uniforms
from kibitz.core.game import SEATS, Game
from kibitz.core.xla.jit import jit_batch

Numbers: TypeAlias = NDArray[Any]
Choose: TypeAlias = Callable[[Sequence[Position]], Sequence[tuple[int, ...]]]


class PlayedTurn(NamedTuple):
    """One turn of seat 0."""

    episode: int  # its place in the batch
    position: Position
    act: tuple[int, ...]
    label: tuple[int, ...] | None  # what the expert would have done, if there is one


@dataclass
class PlayedBatch:
    """A batch of episodes."""

    decisions: list[PlayedTurn]
    returns: Numbers  # f64[n, 2]
    measures: dict[str, Numbers] = field(default_factory=dict)  # f32[n], seat 0's


@dataclass(frozen=True)
class Lockstep:
    """`opponent` takes seat 1; without one, `play` asks `other`. `expert` labels the turns of seat 0."""

    game: Game
    options: Any
    opponent: Bot | None = None
    expert: Bot | None = None

    def play(self, seed: int, numbers: Sequence[int], choose: Choose, other: Choose | None = None) -> PlayedBatch:
        """Plays the episodes of these numbers to their ends; `choose` and `other` answer for seats 0 and 1."""
        bots = {0: self.expert, 1: self.opponent}
        players = {} if self.opponent is None else {1: self.opponent}
        settings = seated(self.options.settings(), players, {} if self.expert is None else {0: self.expert})
        begin, observe, step, score = _programs(self.game, self.expert, self.opponent)
        luck, state, memories = begin(settings, seed_key(seed), jnp.asarray(numbers, jnp.int32))
        shown = jax.device_get(settings)
        count, width = len(numbers), len(self.game.heads)
        histories: list[History] = [[] for _ in numbers]
        found, returns, turn = PlayedBatch([], np.zeros((count, 2))), np.zeros((count, 2)), 0
        while True:
            seen = observe(settings, state, memories, luck, turn)
            memories = seen.memories
            to_act, views, masks, chosen = jax.device_get((seen.to_act, seen.views, seen.masks, seen.acts))
            if not to_act.any():
                break
            acts = np.zeros((2, count, width), np.int32)
            for seat, answer in ((0, choose), (1, other)):
                if bots[seat] is not None:
                    acts[seat] = np.stack(chosen[seat], 1)
                if seat == 1 and self.opponent is not None:
                    continue
                due = np.flatnonzero(to_act[:, seat]).tolist()
                if not due:
                    continue
                assert answer is not None, "seat 1 has a bot, or the caller answers for it"
                asked = _positions(shown, views[seat], masks[seat], histories, due)
                given = answer(asked)
                if seat == 0:
                    labels = [tuple(acts[0, i].tolist()) if self.expert else None for i in due]
                    found.decisions += map(PlayedTurn, due, asked, given, labels)
                acts[seat, due] = given
            for i, seat in np.argwhere(to_act).tolist():
                histories[i].append({"seat": seat, "act": tuple(acts[seat, i].tolist())})
            state, rewards = step(settings, state, *(tuple(jnp.asarray(acts[seat].T)) for seat in SEATS), luck, turn)
            returns += np.asarray(rewards, float)
            turn += 1
        found.returns = returns
        found.measures = {name: np.asarray(pair)[:, 0] for name, pair in score(settings, state).items()}
        return found


def _positions(settings: Any, view: Any, masks: Any, histories: list[History], due: list[int]) -> list[Position]:
    """As plain numbers: prompts are written many times faster from them than from arrays."""
    leaves, tree = jax.tree.flatten(view)
    columns = [np.asarray(leaf).tolist() for leaf in leaves]
    return [
        Position(
            settings,
            jax.tree.unflatten(tree, [leaf[i] for leaf in columns]),
            tuple(mask[i] for mask in masks),
            list(histories[i]),
        )
        for i in due
    ]


class _Seen(NamedTuple):
    to_act: Array  # bool[n, 2]
    views: tuple[Any, ...]  # by seat
    masks: tuple[Any, ...]
    acts: tuple[Any, ...]  # of the bots; None where a seat has none
    memories: tuple[Any, ...]


@lru_cache(maxsize=16)
def _programs(game: Game, *bots: Bot | None) -> tuple[Any, Any, Any, Any]:
    """Compiled: begin episodes; what both seats see and what their bots choose; one step; the measures at the end."""
    rules = game.rules

    def begin(settings: Any, key: Array, number: Array) -> Any:
        luck = episode_luck(key, number)
        memories = tuple(
            None if bot is None else bot.start(settings, seat, uniforms(seat_luck(luck, seat), 0, bot.uniforms))
            for seat, bot in enumerate(bots)
        )
        return luck, rules.new(settings, uniforms(luck, 0, rules.new_uniforms)), memories

    def observe(settings: Any, state: Any, memories: Any, luck: Array, turn: Array) -> _Seen:
        to_act = rules.to_act(state)
        views = tuple(rules.view(settings, state, seat) for seat in SEATS)
        masks = tuple(rules.legal(settings, state, seat) for seat in SEATS)
        acts: list[Any] = []
        kept: list[Any] = []
        for seat, bot in enumerate(bots):
            if bot is None:
                acts.append(None)
                kept.append(None)
                continue
            u = uniforms(seat_luck(luck, seat), turn + 1, bot.uniforms)
            memory, act = bot.choose(settings, memories[seat], views[seat], masks[seat], u)
            acts.append(act)
            kept.append(where(to_act[seat], memory, memories[seat]))
        return _Seen(to_act, views, masks, tuple(acts), tuple(kept))

    def step(settings: Any, state: Any, mine: Any, theirs: Any, luck: Array, turn: Array) -> Any:
        # a seat that is not to act has zeros, which the rules ignore
        after, rewards, _ = rules.step(settings, state, (mine, theirs), uniforms(luck, turn + 1, rules.step_uniforms))
        return after, rewards

    def mapped(function: Any, axes: Any) -> Any:
        return jit_batch(jax.vmap(function, in_axes=axes))

    return (
        mapped(begin, (None, None, 0)),
        mapped(observe, (None, 0, 0, 0, None)),
        mapped(step, (None, 0, 0, 0, 0, None)),
        mapped(game.measures.score, (None, 0)),
    )
