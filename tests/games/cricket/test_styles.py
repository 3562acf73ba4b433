"""Attacking and defensive captains: what counts, and what a judge reads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import pytest

from kibitz.evaluate.judges.episodes import draw
from kibitz.games import get_game
from kibitz.games.cricket.model.tactics import ACCUMULATE, BALANCED, FIELDS, GOOD, INTENTS

GAME = get_game("cricket")
STYLES = GAME.styles


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
        ([bats("accumulate"), bowls("balanced"), bowls("balanced")], {"defensive"}),
        ([bats("accumulate"), bowls("attacking")], set()),
    ],
)
def test_attacking_needs_half_of_the_balls_and_defensive_more_than_attacking(
    choices: list[Any], styles: set[str]
) -> None:
    notes = STYLES.start(None, 0)
    for view, act in choices:
        notes = STYLES.watch(None, notes, view, tuple(map(jnp.int32, act)))
    shown = STYLES.shown(None, notes, None, 0)
    assert {name for name, value in shown.items() if value} == styles


def test_a_transcript_counts_the_judged_captains_choices() -> None:
    own = [bats("slog")[1]] * 6 + [bats("block")[1], bowls("death")[1]]
    history = [{"seat": seat, "act": act} for act in own for seat, act in ((0, act), (1, bowls("balanced")[1]))]
    text = STYLES.transcript(None, SimpleNamespace(winner=1), history, 0)
    assert text.splitlines()[1:] == [
        "Alice bats 7 balls: slog 6, block 1.",
        "Alice bowls 1 balls: death field 1.",
        "Bob won the match.",
    ]


@pytest.mark.conformance  # compiles a match of every captain
def test_captains_show_each_style_in_a_useful_share_of_matches() -> None:
    options = GAME.options.read({"max_overs": 2}, "option")
    shown = draw(GAME, options, 128, (), "balanced", 0).shown
    assert {name: 0.1 < float(truth.mean()) < 0.9 for name, truth in shown.items()} == dict.fromkeys(shown, True)
