"""An episode between a caller in seat 0 and a player in seat 1, for environments that agents call with tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kibitz.core.chance import episode_luck, seat_luck, seed_key
from kibitz.core.game import SEATS, Game
from kibitz.core.play.episode import ask, table_for
from kibitz.core.play.packs import is_swapped
from kibitz.core.play.player import Player, Turn, reported

Act = tuple[int, ...]


class OneSeatEpisode:
    """Holds the position, the opponent and the record between two calls; chance is that of `play_episode`.

    `match` is the number of the pack's match that `state` begins.
    """

    def __init__(
        self, game: Game, settings: Any, opponent: Player, seed: int, state: Any = None, match: int | None = None
    ) -> None:
        self.game, self.table, self.settings, self.opponent = game, table_for(game), settings, opponent
        self.seed, self.number, self.over = seed, 0, False
        self._luck = episode_luck(seed_key(seed), 0)
        # the second match of a pair also swaps the seats' luck
        self.lucks = [seat_luck(self._luck, 1 - seat if is_swapped(match) else seat) for seat in SEATS]
        opponent.begin(settings, 1, self.lucks[1])
        self.state = self.table.new(settings, self._luck) if state is None else state
        self.history: list[Mapping[str, Any]] = []  # every act so far, oldest first
        self._returns = [0.0, 0.0]
        self.begin_call()

    @property
    def returns(self) -> tuple[float, float]:
        return self._returns[0], self._returns[1]

    def begin_call(self, said: Any = None) -> None:
        """Forgets what the last observation reported; `said` is the metadata of the new action."""
        self._acts: list[list[list[int] | None]] = []  # of each step, by seat
        self._rewards: list[list[float]] = []  # the same
        self._answers: list[dict[str, Any]] = []  # of each act of the opponent
        self._said = dict(said) if isinstance(said, Mapping) else {}

    def news(self) -> dict[str, Any]:
        """What the next observation reports as `metadata`; see `tool_env.METADATA`."""
        rewards = {"rewards": self._rewards} if self.game.drawing.public_rewards else {}
        said = {"action": self._said} if self._said else {}
        return {"acts": self._acts, "opponent": self._answers, **rewards, **said}

    def to_act(self) -> np.ndarray[Any, Any]:
        """bool[2]"""
        return np.asarray(self.table.to_act(self.state))

    def turn(self, seat: int, seen: tuple[Any, Any] | None = None) -> Turn:
        """What a player in this seat receives; `seen` is the seat's view and masks where the caller has them."""
        view, masks = seen or self.table.observe(self.settings, self.state, seat)
        return Turn(self.settings, seat, self.number, view, masks, list(self.history), self.lucks[seat])

    def play(self, own: Act | None, theirs: Turn | None) -> float:
        """One step: the caller's act, if it is to act, and the opponent's, if it has a turn; what it pays seat 0."""
        acts: list[Act | None] = [own, None]
        if theirs is not None:
            choice = ask(self.table, self.opponent, theirs)
            acts[1] = tuple(choice.act)
            self._answers.append(reported(self.opponent, choice))
        given = tuple(act or acts[1 - seat] for seat, act in enumerate(acts))
        self.state, rewards, over = self.table.step(self.settings, self.state, given, self._luck, self.number)
        self.number, self.over = self.number + 1, bool(over)
        paid = [float(x) for x in np.asarray(rewards)]
        self._returns = [total + part for total, part in zip(self._returns, paid, strict=True)]
        self._rewards.append(paid)
        self._acts.append([None if act is None else list(act) for act in acts])
        self.history += [{"seat": seat, "act": act} for seat, act in enumerate(acts) if act is not None]
        return paid[0]
