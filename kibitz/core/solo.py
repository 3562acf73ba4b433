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
    """One episode as the learner in seat 0 sees it."""

    state: Any
    opponent_memory: Any


class OpponentReply(NamedTuple):
    """What the opponent did between two turns of the learner."""

    acted: Array  # bool[], the opponent was to act
    act: Act  # meaningless otherwise


class Opening(NamedTuple):
    """A first position. The opponent's act may have paid, or ended the game."""

    solo: Solo
    rewards: Array  # f32[2]
    reply: OpponentReply


class Outcome(NamedTuple):
    """Where the learner's act and the opponent's led."""

    solo: Solo
    rewards: Array  # f32[2], of both acts
    over: Array  # bool[]
    reply: OpponentReply


@dataclass(frozen=True, eq=False)
class Against:
    """A game with its second seat taken: what a single learner plays.

    `opening` and `step` leave the learner to act, or the episode over.
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
        memory = blank(lambda settings: start(settings, 1, jnp.zeros(count)), self.game.default_settings)
        return Layout(Solo(self.game.bit_widths, self.opponent.bit_widths), Solo(self.game.example, memory))

    def new(self, settings: Any, u: Array) -> Solo:
        return self.opening(settings, self.first_state(settings, u), u).solo

    def first_state(self, settings: Any, u: Array) -> Any:
        """Before either seat has acted; `u` is f32[new_uniforms]."""
        return self.game.rules.new(settings, u[: self.game.rules.new_uniforms])

    def opening(self, settings: Any, state: Any, u: Array) -> Opening:
        """From a given first state; `u` is the same block as for `new`."""
        n = self.opponent.uniforms
        rest = u[self.game.rules.new_uniforms :]
        solo = Solo(state, self.opponent.start(settings, 1, rest[:n]))
        if self.game.rules.simultaneous:
            nothing = tuple(jnp.int32(0) for _ in self.game.heads)
            return Opening(solo, jnp.zeros(2), OpponentReply(jnp.bool_(False), nothing))
        solo, rewards, _, reply = self._reply(settings, solo, rest[n:])
        return Opening(solo, rewards, reply)

    def step(self, settings: Any, solo: Solo, act: Act, u: Array) -> Outcome:
        """The learner's act, then the opponent's; `u` is f32[step_uniforms]."""
        game = self.game
        if game.rules.simultaneous:
            memory, answer = self._choose(settings, solo, u[game.rules.step_uniforms : self.step_uniforms])
            state, rewards, over = game.rules.step(settings, solo.state, (act, answer), u[: game.rules.step_uniforms])
            return Outcome(Solo(state, memory), rewards, over, OpponentReply(jnp.bool_(True), answer))
        state, rewards, _ = game.rules.step(settings, solo.state, (act, act), u[: game.rules.step_uniforms])
        after = self._reply(settings, Solo(state, solo.opponent_memory), u[game.rules.step_uniforms :])
        return after._replace(rewards=rewards + after.rewards)

    def _choose(self, settings: Any, solo: Solo, u: Array) -> tuple[Any, Act]:
        game = self.game
        view, masks = game.rules.view(settings, solo.state, 1), game.rules.legal(settings, solo.state, 1)
        return self.opponent.choose(settings, solo.opponent_memory, view, masks, u)

    def _reply(self, settings: Any, solo: Solo, u: Array) -> Outcome:
        game, n = self.game, self.opponent.uniforms
        memory, act = self._choose(settings, solo, u[:n])
        state, rewards, over = game.rules.step(settings, solo.state, (act, act), u[n : n + game.rules.step_uniforms])
        # `step` ignores an act out of turn, but both seats are given the same one here
        turn = game.rules.to_act(solo.state)[1]
        after: Solo = where(turn, Solo(state, memory), solo)
        over = jnp.where(turn, over, game_over(game, solo.state))
        return Outcome(after, jnp.where(turn, rewards, 0), over, OpponentReply(turn, act))


def against(game: Game, opponent: Bot) -> Against:
    """The game as a single learner in seat 0 sees it."""
    return Against(game, opponent)
