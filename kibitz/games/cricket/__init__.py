"""Cricket captaincy: `game()` returns the record, whose options are `CricketOptions`. The rules are in `laws`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from jax import Array

from kibitz.core.game import Drawing, Game, Learning, Measures, Page, QuickStart, Rules
from kibitz.core.words import Words
from kibitz.games.cricket.captains import OPPONENT_PRESETS, bots, tool_calls
from kibitz.games.cricket.drawing import frame, review
from kibitz.games.cricket.laws import start, state, step, view
from kibitz.games.cricket.laws.step import Settings
from kibitz.games.cricket.options import CricketOptions
from kibitz.games.cricket.teams import roster
from kibitz.games.cricket.words import commentary, notes, prompt, reason, styles

FOLDER = Path(__file__).parent


def score(settings: Settings, final: state.State) -> Mapping[str, Array]:
    """`win` is the reward; `run_difference` compares the last two innings."""
    won = jnp.stack([final.winner == 0, final.winner == 1]).astype(jnp.float32)
    win = jnp.where(final.winner == state.TIE, 0.5, won)
    lead = (final.score - final.first).astype(jnp.float32)
    batting = jnp.where(final.batting == 0, jnp.array([1.0, -1.0]), jnp.array([-1.0, 1.0]))
    return {"win": win, "run_difference": lead * batting, "ceiling": jnp.ones(2)}


def contexts(name: str) -> Mapping[str, Any]:
    """`uniform` draws invented sides; any other name is a file with two sides."""
    return {} if name == "uniform" else {"elevens": name}


@cache
def build() -> Game:
    return Game(
        name="cricket",
        title="Cricket captaincy",
        heads=step.HEADS,
        options=CricketOptions,
        rules=Rules(
            new=start.new,
            to_act=step.to_act,
            legal=step.legal,
            step=step.step,
            view=view.view,
            max_steps=step.max_steps,
            simultaneous=True,
            takes_illegal_acts=True,
            new_uniforms=start.NEW_UNIFORMS,
            step_uniforms=step.STEP_UNIFORMS,
        ),
        learning=Learning(features=view.features, bit_widths=state.BIT_WIDTHS),
        bots=bots.CAPTAINS,
        aliases={choice: name for choice, name in OPPONENT_PRESETS.items() if choice != name},
        reference="balanced",
        measures=Measures(score=score),
        words=Words(
            prompt_variables=prompt.prompt_variables,
            answer_fields=prompt.answer_fields,
            act_text=prompt.act_text,
            parse=prompt.parse,
            position_text=prompt.position_text,
            choices_text=prompt.choices_text,
            reason=reason.reason,
            choice_notes=notes.choice_notes,
            prompt=str(FOLDER / "prompt.txt"),
            taught_prompt=str(FOLDER / "prompt_taught.txt"),
        ),
        drawing=Drawing(
            frame=frame.frame,
            commentary=commentary.commentary,
            private=frame.private,
            cast=roster.cast,
            tool_calls=tool_calls.tool_calls,
            review=review.review,
            summary=frame.summary,
            level="win probability",
            page=Page(FOLDER / "ui", "cricket.js"),
            public_rewards=True,
        ),
        styles=styles.STYLES,
        contexts=contexts,
        packs=_pack_shelf,
        tool_env=_tool_env,
        default_players=("balanced", "heuristic"),
        starts=(
            QuickStart("Play two overs", ("human", "heuristic"), {"max_overs": 2}),
            QuickStart("Watch a match", ("balanced", "aggressive"), {"max_overs": 5}),
        ),
    )


def game(options: CricketOptions | None = None) -> Game:
    """One record serves all options."""
    return build()


def _pack_shelf() -> Any:
    """Loaded when first used: packs need the record."""
    from kibitz.games.cricket import packs

    return packs


def _tool_env() -> type[Any]:
    """Loaded when first used: it needs the record."""
    from kibitz.games.cricket.envs.tool_env import CricketEnvironment

    return CricketEnvironment
