"""Cricket captaincy: `game()` is the record, `CricketOptions` what may be set."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import jax.numpy as jnp
from jax import Array

from kibitz.core.game import Game, matters_always
from kibitz.games.cricket.captains import bots as captains
from kibitz.games.cricket.drawing import frame, review
from kibitz.games.cricket.envs import calls
from kibitz.games.cricket.laws import start as opening
from kibitz.games.cricket.laws import state, view
from kibitz.games.cricket.laws import step as rules
from kibitz.games.cricket.laws.step import Settings
from kibitz.games.cricket.options import CricketOptions
from kibitz.games.cricket.teams import roster
from kibitz.games.cricket.words import commentary
from kibitz.games.cricket.words import prompt as words


def score(settings: Settings, final: state.State) -> Mapping[str, Array]:
    """`win` is the reward; `run_difference` is what the last innings made beyond the one before."""
    won = jnp.stack([final.winner == 0, final.winner == 1]).astype(jnp.float32)
    win = jnp.where(final.winner == state.TIE, 0.5, won)
    lead = (final.score - final.first).astype(jnp.float32)
    batting = jnp.where(final.batting == 0, jnp.array([1.0, -1.0]), jnp.array([-1.0, 1.0]))
    return {"win": win, "run_difference": lead * batting, "ceiling": jnp.ones(2)}


def contexts(name: str) -> Mapping[str, Any]:
    """`uniform` draws invented sides; a file holds two sides of one's own."""
    return {} if name == "uniform" else {"elevens": name}


@cache
def build() -> Game:
    return Game(
        name="cricket",
        version=1,
        heads=rules.HEADS,
        matters=matters_always(rules.HEADS),
        simultaneous=True,
        options=CricketOptions,
        new=opening.new,
        new_uniforms=opening.NEW_UNIFORMS,
        to_act=rules.to_act,
        legal=rules.legal,
        step=rules.step,
        step_uniforms=rules.STEP_UNIFORMS,
        longest=rules.longest,
        view=view.view,
        features=view.features,
        widths=state.WIDTHS,
        rules=captains.CAPTAINS,
        scale=lambda settings: 1.0,
        reference="balanced",
        score=score,
        fields=words.fields,
        describe=words.describe,
        frame=frame.frame,
        tell=commentary.tell,
        say=words.say,
        parse=words.parse,
        brief=words.brief,
        legal_text=words.legal_text,
        contexts=contexts,
        private=frame.private,
        cast=roster.cast,
        calls=calls.calls,
        review=review.review,
    )


def game(options: CricketOptions | None = None) -> Game:
    """One record fits all options."""
    return build()


def environment() -> Any:
    """The class for agents that call tools; see `kibitz.games.cricket.envs.tool_env`."""
    from kibitz.games.cricket.envs.tool_env import CricketEnvironment

    return CricketEnvironment
