"""What the opponent said: an environment only shows where the game stands, a prompt tells how it got there.

An opponent is a pure function, so its act is worked out again from the same position and the same luck.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from kibitz.core.act import Act
from kibitz.core.solo import Against, Solo


class Overheard(NamedTuple):
    spoke: Array  # bool[], the opponent was to act
    act: Act  # meaningless otherwise


def opening(play: Against, settings: Any, state: Any, u: Array) -> Overheard:
    """Before the learner's first act; `u` is the block that `Against.new` was given."""
    n = play.opponent.uniforms
    rest = u[play.game.rules.new_uniforms :]
    mind = play.opponent.start(settings, 1, rest[:n])
    _, act = play._choose(settings, Solo(state, mind), rest[n : 2 * n])
    spoke = jnp.bool_(False) if play.game.rules.simultaneous else play.game.rules.to_act(state)[1]
    return Overheard(spoke, act)


def reply(play: Against, settings: Any, solo: Solo, act: Act, u: Array) -> Overheard:
    """To the learner's act, or together with it; `u` is the block that `Against.step` was given."""
    game, n = play.game, play.opponent.uniforms
    if game.rules.simultaneous:
        _, answer = play._choose(settings, solo, u[game.rules.step_uniforms :])
        return Overheard(jnp.bool_(True), answer)
    state, _, _ = game.rules.step(settings, solo.state, (act, act), u[: game.rules.step_uniforms])
    _, answer = play._choose(settings, Solo(state, solo.mind), u[game.rules.step_uniforms :][:n])
    return Overheard(game.rules.to_act(state)[1], answer)
