"""What a single learner in seat 0 sees of a game whose other seat is taken."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from kibitz.core.act import Act
from kibitz.core.game import Game, Rule, blank, choose, game_over
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
    opponent: Rule

    @property
    def new_uniforms(self) -> int:
        return self.game.new_uniforms + self.game.step_uniforms + 2 * self.opponent.uniforms

    @property
    def step_uniforms(self) -> int:
        moves = 1 if self.game.simultaneous else 2
        return moves * self.game.step_uniforms + self.opponent.uniforms

    @cached_property
    def layout(self) -> Layout:
        start, count = self.opponent.start, self.opponent.uniforms
        mind = blank(lambda settings: start(settings, 1, jnp.zeros(count)), self.game.plain_settings)
        return Layout(Solo(self.game.widths, self.opponent.widths), Solo(self.game.example, mind))

    def new(self, settings: Any, u: Array) -> Solo:
        return self.enter(settings, self.game.new(settings, u[: self.game.new_uniforms]), u)

    def enter(self, settings: Any, state: Any, u: Array) -> Solo:
        """From a given first position; `u` is the same block as for `new`."""
        return self.opening(settings, state, u)[0]

    def opening(self, settings: Any, state: Any, u: Array) -> tuple[Solo, Array]:
        """The same, and f32[2] what the opponent's first act paid: it may have ended the game."""
        n = self.opponent.uniforms
        rest = u[self.game.new_uniforms :]
        solo = Solo(state, self.opponent.start(settings, 1, rest[:n]))
        if self.game.simultaneous:
            return solo, jnp.zeros(2)
        solo, rewards, _ = self._reply(settings, solo, rest[n:])
        return solo, rewards

    def step(self, settings: Any, solo: Solo, act: Act, u: Array) -> tuple[Solo, Array, Array]:
        """The learner's act, then the opponent's: rewards f32[2] and whether the episode is over."""
        game = self.game
        if game.simultaneous:
            mind, reply = self._choose(settings, solo, u[game.step_uniforms : self.step_uniforms])
            state, rewards, over = game.step(settings, solo.state, (act, reply), u[: game.step_uniforms])
            return Solo(state, mind), rewards, over
        state, rewards, _ = game.step(settings, solo.state, (act, act), u[: game.step_uniforms])
        solo, more, over = self._reply(settings, Solo(state, solo.mind), u[game.step_uniforms :])
        return solo, rewards + more, over

    def _choose(self, settings: Any, solo: Solo, u: Array) -> tuple[Any, Act]:
        game = self.game
        view, masks = game.view(settings, solo.state, 1), game.legal(settings, solo.state, 1)
        return self.opponent.choose(settings, solo.mind, view, masks, u)

    def _reply(self, settings: Any, solo: Solo, u: Array) -> tuple[Solo, Array, Array]:
        game, n = self.game, self.opponent.uniforms
        mind, act = self._choose(settings, solo, u[:n])
        state, rewards, over = game.step(settings, solo.state, (act, act), u[n : n + game.step_uniforms])
        # the step ignores an act out of turn, except that both acts are the same one here
        turn = game.to_act(solo.state)[1]
        state, mind = choose(turn, (state, mind), (solo.state, solo.mind))
        return Solo(state, mind), jnp.where(turn, rewards, 0), jnp.where(turn, over, game_over(game, solo.state))


def against(game: Game, opponent: Rule) -> Against:
    """The game as a single learner in seat 0 sees it."""
    return Against(game, opponent)
