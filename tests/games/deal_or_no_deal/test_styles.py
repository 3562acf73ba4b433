"""The paper's four styles on hand-made episodes."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest

from kibitz.games import get_game
from kibitz.games.deal_or_no_deal import rules
from kibitz.games.deal_or_no_deal.rules import AGREE, DISAGREE, INSIST, PROPOSE, Items

GAME = get_game("deal_or_no_deal")
SETTINGS = GAME.default_settings
COUNTS, MINE, THEIRS = Items(2, 1, 3), Items(1, 2, 2), Items(2, 6, 0)
ALL_BUT_THE_HAT, EVEN, NOTHING = (2, 0, 3), (1, 1, 2), (0, 0, 0)
Acts = list[tuple[int, ...]]


def play(acts: Acts) -> tuple[Any, Any, list[dict[str, Any]]]:
    """Seat 0's notes, the final state and the history; seat 0 starts and the seats alternate."""
    state = rules.start(SETTINGS, COUNTS, MINE, THEIRS, jnp.int32(0))
    notes, history = GAME.styles.start(SETTINGS, 0), []
    for number, given in enumerate(acts):
        act = tuple(map(jnp.int32, given))
        if number % 2 == 0:
            notes = GAME.styles.watch(SETTINGS, notes, GAME.rules.view(SETTINGS, state, 0), act)
        state, _, _ = rules.step(SETTINGS, state, (act, act), jnp.zeros(0))
        history.append({"seat": number % 2, "act": given})
    return notes, state, history


@pytest.mark.parametrize(
    ("acts", "styles"),
    [
        ([(PROPOSE, *ALL_BUT_THE_HAT), (AGREE, 0, 0, 0)], {"competitive"}),  # 8 points to 6
        ([(PROPOSE, *EVEN), (PROPOSE, *NOTHING), (AGREE, 0, 0, 0)], {"versatile", "competitive"}),  # the whole pool
        ([(PROPOSE, *NOTHING), (AGREE, 0, 0, 0)], {"push_over"}),
        ([(PROPOSE, *EVEN), (PROPOSE, *EVEN), (INSIST, *EVEN), (DISAGREE, 0, 0, 0)], {"stubborn"}),
        ([(PROPOSE, *EVEN), (PROPOSE, *EVEN), (INSIST, *NOTHING), (DISAGREE, 0, 0, 0)], {"versatile"}),
        ([(PROPOSE, *EVEN), (PROPOSE, *EVEN), (PROPOSE, *NOTHING), (PROPOSE, *EVEN), (PROPOSE, *EVEN)], {"stubborn"}),
        ([(PROPOSE, *EVEN), (DISAGREE, 0, 0, 0)], set()),  # no deal pays both nothing; one act is no versatility
    ],
)
def test_an_episode_shows_exactly_its_styles(acts: Acts, styles: set[str]) -> None:
    notes, state, _ = play(acts)
    shown = GAME.styles.shown(SETTINGS, notes, state, 0)
    assert {name for name, value in shown.items() if value} == styles


def test_diversity_is_the_share_of_acts_that_repeat_no_proposal_and_advantage_the_difference_in_points() -> None:
    offers = [(PROPOSE, *EVEN), (PROPOSE, *NOTHING), (INSIST, *EVEN), (PROPOSE, 0, 1, 0), (AGREE, 0, 0, 0)]
    notes, state, _ = play(offers)
    found = GAME.styles.measures(SETTINGS, notes, state, 0)
    assert float(found["diversity"]) == pytest.approx(2 / 3)
    assert float(found["advantage"]) == 8 - 6


def test_the_largest_allocation_of_the_largest_pool_has_its_own_bit() -> None:
    game = get_game("deal_or_no_deal", GAME.options.read({"max_count": 7}))
    notes = game.styles.start(SETTINGS, 0)
    for kept in ((7, 7, 7), (6, 7, 7), (7, 7, 7)):
        notes = game.styles.watch(SETTINGS, notes, None, tuple(map(jnp.int32, (PROPOSE, *kept))))
    assert int(notes.acts) == 3 and int(notes.repeats) == 1


def test_a_transcript_calls_the_judged_seat_alice_and_ends_with_the_points() -> None:
    _, state, history = play([(PROPOSE, *ALL_BUT_THE_HAT), (AGREE, 0, 0, 0)])
    assert GAME.styles.transcript(SETTINGS, state, history, 0).splitlines() == [
        "Alice and Bob divide 2 books, 1 hat, 3 balls.",
        "Points for Alice: book 1, hat 2, ball 2.",
        "Points for Bob: book 2, hat 6, ball 0.",
        "Alice: PROPOSE: I keep 2 books and 3 balls",
        "Bob: AGREE",
        "Agreement! Alice: 8 points. Bob: 6 points.",
    ]
    other = GAME.styles.transcript(SETTINGS, state, history, 1)
    assert "Alice: AGREE" in other and other.endswith("Agreement! Alice: 6 points. Bob: 8 points.")
