"""The reason beside a hint states what brute force over all of the partner's possible utilities finds."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from kibitz.games.deal_or_no_deal import build
from tests.games.deal_or_no_deal import board, oracle
from tests.games.deal_or_no_deal.oracle import AGREE, DISAGREE, END, INSIST, NOTHING, PROPOSE, Act, Game

GAME = build(4)
COUNTS, MINE, THEIRS = (4, 1, 2), (1, 4, 1), (1, 2, 4)
STYLE = board.STYLES["heuristic"]
OPENING: Act = (PROPOSE, COUNTS)
SECOND: Act = (INSIST, (3, 1, 1))


def table(theirs: oracle.Triple) -> Game:
    return Game(COUNTS, (MINE, theirs))


def dialogue(mine: tuple[Act, ...], theirs: oracle.Triple = THEIRS) -> tuple[Game, list[Act]]:
    """The position after these acts of seat 0, each answered by a partner with these utilities."""
    game, acts = table(theirs), list[Act]()
    for act in mine:
        game = game.play(act)
        answer = oracle.partner_act(game, STYLE)
        acts += [act, answer]
        game = game.play(answer)
    return game, acts


def reason(mine: tuple[Act, ...], act: Act, turns_left: int | None = None) -> str:
    game, acts = dialogue(mine)
    settings, state = board.settings_for(), board.state_of(game)
    if turns_left is not None:
        state = state._replace(turns_left=np.int32(turns_left))
    view = GAME.rules.view(settings, state, 0)
    history: list[Any] = [{"seat": i % 2, "act": (kind, *kept)} for i, (kind, kept) in enumerate(acts)]
    return GAME.words.reason(settings, view, history, (act[0], *act[1]))


def brute_force(mine: tuple[Act, ...], act: Act) -> tuple[int, float]:
    """How many utilities explain the partner's answers, and the share of them that accepts the act."""
    answers = dialogue(mine)[1][1::2]
    fitting, takers = 0, 0
    for theirs in product(range(11), repeat=3):
        if not any(theirs):
            continue
        game, acts = dialogue(mine, theirs)
        if game.over or acts[1::2] != answers:
            continue
        fitting += 1
        takers += oracle.partner_act(game.play(act), STYLE)[0] == AGREE
    return fitting, takers / fitting


@pytest.mark.parametrize("act", [(PROPOSE, (3, 1, 0)), (INSIST, (3, 1, 0)), (INSIST, (4, 0, 0))])
def test_an_offer_comes_with_the_share_of_possible_partners_that_accept_it(act: Act) -> None:
    number, share = brute_force((OPENING, SECOND), act)
    points = oracle.worth(MINE, act[1])
    expected = f"It gives you {points} of 10 points; {share:.0%} of {number:,} possible values of the partner would "
    assert reason((OPENING, SECOND), act) == expected + "accept it."
    assert 0 < number < 1330


def test_agreeing_comes_with_the_best_offer_instead() -> None:
    text = reason((OPENING,), (AGREE, NOTHING))
    best = max(
        ((oracle.worth(MINE, kept), brute_force((OPENING,), (INSIST, kept))) for kept in [(4, 1, 0), (4, 1, 1)]),
        key=lambda pair: pair[0] * pair[1][1],
    )
    number, share = best[1]
    assert f"of {number:,} possible values of the partner would accept one that gives you " in text
    assert share >= 0


def test_other_acts_say_what_they_pay() -> None:
    game = dialogue((OPENING,))[0]
    rest = oracle.rest_of(COUNTS, game.claimed(1))
    assert "and fits the partner's last claim" in reason((OPENING,), (END, rest))
    assert "does not fit the partner's last claim" in reason((OPENING,), (END, COUNTS))
    assert reason((OPENING,), (DISAGREE, NOTHING)).startswith("It offers nothing; the reference counts ")
    assert "the partner has no turn left to accept it" in reason((OPENING,), (INSIST, (3, 1, 0)), turns_left=1)
