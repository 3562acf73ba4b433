"""Two styles of captaincy, as functions of a match and as questions to a judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from kibitz.core.act import Act
from kibitz.core.styles import OTHER, PLAYER, PlayStyles
from kibitz.games.cricket.laws.state import TIE, State
from kibitz.games.cricket.laws.view import View
from kibitz.games.cricket.model.tactics import FIELDS, INTENTS
from kibitz.games.cricket.words.prompt import is_batting

ATTACKING = [INTENTS.index(name) for name in ("attack", "slog")], [FIELDS.index("attacking")]
DEFENSIVE = (
    [INTENTS.index(name) for name in ("block", "rotate", "accumulate")],
    [FIELDS.index(name) for name in ("defensive", "death")],
)
QUESTIONS = {
    "attacking": (
        "Was Alice an attacking captain: on more than half of the balls, did Alice choose attack or slog when batting, "
        "or an attacking field when bowling?"
    ),
    "defensive": (
        "Was Alice a defensive captain: did Alice choose block, rotate or accumulate, or a defensive or death field, "
        "on more balls than attack or slog, or an attacking field?"
    ),
}


class Notes(NamedTuple):
    """i32[] each: balls, and those for which the captain chose to attack or to defend."""

    balls: Array
    attacked: Array
    defended: Array


def start(settings: Any, seat: int) -> Notes:
    return Notes(jnp.int32(0), jnp.int32(0), jnp.int32(0))


def watch(settings: Any, notes: Notes, view: View, act: Act) -> Notes:
    intent, _, field, *_ = act

    def chose(tactics: tuple[list[int], list[int]]) -> Array:
        batting, bowling = (
            jnp.any(jnp.stack([value == i for i in values]))
            for value, values in zip((intent, field), tactics, strict=True)
        )
        return jnp.where(view.bats, batting, bowling)

    return Notes(notes.balls + 1, notes.attacked + chose(ATTACKING), notes.defended + chose(DEFENSIVE))


def shown(settings: Any, notes: Notes, state: State, seat: int) -> dict[str, Array]:
    """Hardly any captain defends on half of the balls of a short match; `defensive`: on more balls than it attacks."""
    return {"attacking": 2 * notes.attacked > notes.balls, "defensive": notes.defended > notes.attacked}


def measures(settings: Any, notes: Notes, state: State, seat: int) -> dict[str, Array]:
    balls = jnp.maximum(notes.balls, 1)
    return {"attacking_share": notes.attacked / balls, "defensive_share": notes.defended / balls}


def transcript(settings: Any, state: State, history: Sequence[Mapping[str, Any]], seat: int) -> str:
    """How often the captain chose what, with the bat and with the ball, and the result."""
    acts = [entry["act"] for entry in history if entry["seat"] == seat]
    batted = [INTENTS[int(act[0])] for act in acts if is_batting(act)]
    bowled = [f"{FIELDS[int(act[2])]} field" for act in acts if not is_batting(act)]
    lines = [
        f"{PLAYER} and {OTHER} captain the two sides of a cricket match of {len(acts)} balls.",
        f"{PLAYER} bats {len(batted)} balls: {_counted(batted)}.",
        f"{PLAYER} bowls {len(bowled)} balls: {_counted(bowled)}.",
    ]
    winner = int(state.winner)
    won = "The match was tied." if winner == TIE else f"{PLAYER if winner == seat else OTHER} won the match."
    return "\n".join([*lines, won if winner in (0, 1, TIE) else "The match was not finished."])


def _counted(choices: Sequence[str]) -> str:
    """The most frequent first."""
    return ", ".join(f"{name} {count}" for name, count in Counter(choices).most_common()) or "none"


STYLES = PlayStyles(
    questions=QUESTIONS, start=start, watch=watch, shown=shown, measures=measures, transcript=transcript
)
