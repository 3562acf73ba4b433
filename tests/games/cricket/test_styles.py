"""Attacking and defensive captains: what counts, and what a judge reads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import pytest

from kibitz.games import get_game
from kibitz.games.cricket.model.tactics import ACCUMULATE, BALANCED, FIELDS, GOOD, INTENTS

STYLES = get_game("cricket").styles


def bats(intent: str) -> tuple[Any, tuple[int, ...]]:
    return SimpleNamespace(bats=jnp.bool_(True)), (INTENTS.index(intent), GOOD, BALANCED, 0, 3)


def bowls(field: str) -> tuple[Any, tuple[int, ...]]:
    return SimpleNamespace(bats=jnp.bool_(False)), (ACCUMULATE, 0, FIELDS.index(field), 7, 0)


@pytest.mark.parametrize(
    ("choices", "styles"),
    [
        ([bats("slog"), bats("attack"), bowls("balanced")], {"attacking"}),
        ([bats("block"), bowls("defensive"), bowls("death")], {"defensive"}),
        ([bats("rotate"), bowls("attacking"), bats("slog"), bats("block")], set()),  # half is not more than half
        ([bats("accumulate"), bowls("balanced")], set()),
    ],
)
def test_a_style_needs_more_than_half_of_the_balls(choices: list[Any], styles: set[str]) -> None:
    notes = STYLES.start(None, 0)
    for view, act in choices:
        notes = STYLES.watch(None, notes, view, tuple(map(jnp.int32, act)))
    shown = STYLES.shown(None, notes, None, 0)
    assert {name for name, value in shown.items() if value} == styles


def test_a_transcript_lists_the_judged_captains_choices_six_balls_to_a_line() -> None:
    own = [bats("slog")[1]] * 6 + [bowls("death")[1]]
    history = [{"seat": seat, "act": act} for act in own for seat, act in ((0, act), (1, bowls("balanced")[1]))]
    text = STYLES.transcript(None, SimpleNamespace(winner=1), history, 0)
    assert text.splitlines()[1:] == [
        "Balls 1 to 6: bats slog 6.",
        "Balls 7 to 7: bowls to death field 1.",
        "Bob won the match.",
    ]
