"""Practice whose reward comes from a judge on the host: the compiled step records each episode as it was played."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from kibitz.core.act import Act
from kibitz.core.bots import where
from kibitz.core.solo import OpponentReply, Solo
from kibitz.train.rollout import Practice, Stepped


class Lines(NamedTuple):
    """The acts of an episode so far."""

    lines: Array  # i16[max_lines, 1 + heads]: seat and act of every turn, oldest first
    length: Array  # i32[]; rows beyond it are meaningless


class JudgedStep(NamedTuple):
    """A step as the judge needs it; `lines`, `length` and `final` matter where the episode is over."""

    reward: Array
    over: Array
    returned: Array
    steps: Array
    lines: Array
    length: Array
    final: Any  # the state that the step led to


FOR_THE_JUDGE = ("lines", "length", "final")


@dataclass(frozen=True, eq=False)
class JudgedPractice(Practice):
    """`Games.notes` are `Lines`. The host adds the judge's reward before the learner learns."""

    max_lines: int = 1

    def _first_notes(self, settings: Any, reply: OpponentReply) -> Lines:
        empty = Lines(jnp.zeros((self.max_lines, 1 + len(self.game.heads)), jnp.int16), jnp.int32(0))
        return _with_line(empty, reply.acted, 1, reply.act)

    def _watch(self, settings: Any, notes: Lines, state: Any, act: Act, reply: OpponentReply) -> Lines:
        turn = self.game.rules.to_act(state)[0]  # the opponent's opening act may have ended the game
        both = _with_line(_with_line(notes, jnp.bool_(True), 0, act), reply.acted, 1, reply.act)
        after: Lines = where(turn, both, notes)
        return after

    def _reward(self, settings: Any, payoff: Array, notes: Lines, state: Any, over: Array) -> Array:
        assert self.reward is not None
        return self.reward.payoff_weight * payoff

    def _stepped(self, stepped: Stepped, notes: Lines, after: Solo) -> JudgedStep:
        return JudgedStep(*stepped, *notes, after.state)


def _with_line(notes: Lines, acted: Array, seat: int, act: Act) -> Lines:
    line = jnp.stack([jnp.int32(seat), *(jnp.asarray(x, jnp.int32) for x in act)]).astype(jnp.int16)
    here = (jnp.arange(notes.lines.shape[0]) == notes.length) & acted
    return Lines(jnp.where(here[:, None], line, notes.lines), notes.length + acted)
