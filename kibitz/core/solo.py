"""A game with its second seat taken: what a single learner plays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from kibitz.core.act import Act
from kibitz.core.bots import Bot, where
from kibitz.core.game import Game, blank, game_over
from kibitz.core.xla.packing import Layout


class Solo(NamedTuple):
    """One episode as the learner in seat 0 meets it: the game, and the opponent's memory."""

    state: Any
    mind: Any


@dataclass(frozen=True, eq=False)
class Against:
    """A game with its second seat taken: what a single learner plays.

    `new` and `step` leave the learner to act, or the episode over.
    """

    game: Game
    opponent: Bot

    @property
    def new_uniforms(self) -> int:
        return self.game.rules.new_uniforms + self.game.rules.step_uniforms + 2 * self.opponent.uniforms

    @property
    def step_uniforms(self) -> int:
        moves = 1 if self.game.rules.simultaneous else 2
        return moves * self.game.rules.step_uniforms + self.opponent.uniforms

    @cached_property
    def layout(self) -> Layout:
        start, count = self.opponent.start, self.opponent.uniforms
        mind = blank(lambda settings: start(settings, 1, jnp.zeros(count)), self.game.default_settings)
        return Layout(Solo(self.game.bit_widths, self.opponent.bit_widths), Solo(self.game.example, mind))

    def new(self, settings: Any, u: Array) -> Solo:
        return self.enter(settings, self.game.rules.new(settings, u[: self.game.rules.new_uniforms]), u)

    def enter(self, settings: Any, state: Any, u: Array) -> Solo:
        """From a given first position; `u` is the same block as for `new`."""
        return self.opening(settings, state, u)[0]

    def opening(self, settings: Any, state: Any, u: Array) -> tuple[Solo, Array]:
        """The same, and f32[2] what the opponent's first act paid: it may have ended the game."""
        n = self.opponent.uniforms
        rest = u[self.game.rules.new_uniforms :]
        solo = Solo(state, self.opponent.start(settings, 1, rest[:n]))
        if self.game.rules.simultaneous:
            return solo, jnp.zeros(2)
        solo, rewards, _ = self._reply(settings, solo, rest[n:])
        return solo, rewards

    def step(self, settings: Any, solo: Solo, act: Act, u: Array) -> tuple[Solo, Array, Array]:
        """The learner's act, then the opponent's: rewards f32[2] and whether the episode is over."""
        game = self.game
        if game.rules.simultaneous:
            mind, reply = self._choose(settings, solo, u[game.rules.step_uniforms : self.step_uniforms])
            state, rewards, over = game.rules.step(settings, solo.state, (act, reply), u[: game.rules.step_uniforms])
            return Solo(state, mind), rewards, over
        state, rewards, _ = game.rules.step(settings, solo.state, (act, act), u[: game.rules.step_uniforms])
        solo, more, over = self._reply(settings, Solo(state, solo.mind), u[game.rules.step_uniforms :])
        return solo, rewards + more, over

    def _choose(self, settings: Any, solo: Solo, u: Array) -> tuple[Any, Act]:
        game = self.game
        view, masks = game.rules.view(settings, solo.state, 1), game.rules.legal(settings, solo.state, 1)
        return self.opponent.choose(settings, solo.mind, view, masks, u)

    def _reply(self, settings: Any, solo: Solo, u: Array) -> tuple[Solo, Array, Array]:
        game, n = self.game, self.opponent.uniforms
        mind, act = self._choose(settings, solo, u[:n])
        state, rewards, over = game.rules.step(settings, solo.state, (act, act), u[n : n + game.rules.step_uniforms])
        # the step ignores an act out of turn, except that both acts are the same one here
        turn = game.rules.to_act(solo.state)[1]
        state, mind = where(turn, (state, mind), (solo.state, solo.mind))
        return Solo(state, mind), jnp.where(turn, rewards, 0), jnp.where(turn, over, game_over(game, solo.state))


def against(game: Game, opponent: Bot) -> Against:
    """The game as a single learner in seat 0 sees it."""
    return Against(game, opponent)
