"""The detective: it finds out which kind of partner it faces, and then plays as one who knows."""

from __future__ import annotations

import numpy as np
import pytest

from kibitz.advice.hint_scores import evaluate_hints
from kibitz.evaluate.match import evaluate
from kibitz.games.deal_or_no_deal import build
from kibitz.games.deal_or_no_deal.bots import detective, partner
from kibitz.games.deal_or_no_deal.rules import MAX_UTILITY, SILENT, Items
from kibitz.games.deal_or_no_deal.view import View

GAME = build()
SETTINGS = GAME.default_options.settings()
COUNTS = Items(2, 3, 1)


def seen(other_act: int, left_for_me: Items, turns_left: int) -> View:
    """The view of a seat that has not acted itself."""
    nothing = Items(0, 0, 0)
    whole = Items(*(np.int32(count) for count in COUNTS))
    return View(0, whole, Items(1, 1, 1), nothing, np.int32(other_act), left_for_me, np.int32(SILENT), whole,
                np.int32(turns_left), ())  # fmt: skip


def index(utilities: Items) -> int:
    base = MAX_UTILITY + 1
    return utilities.books + base * (utilities.hats + base * utilities.balls)


@pytest.mark.parametrize("kind", list(detective.SUSPECTS))
def test_a_partner_of_a_kind_is_explained_by_its_own_utilities(kind: str) -> None:
    theirs = Items(5, 1, 7)
    own = SETTINGS._replace(styles=partner.styles([partner.KINDS[kind]]))
    style = partner.start(own, 1, np.zeros(1, np.float32))
    opening = seen(SILENT, Items(0, 0, 0), 10)._replace(my_utilities=theirs)
    _, (act, *claim) = partner.choose_act(own, style, opening, (), np.ones(1, np.float32))
    left = Items(*(count - int(kept) for count, kept in zip(COUNTS, claim, strict=True)))
    fits = np.asarray(detective.explained(SETTINGS, partner.KINDS[kind], seen(int(act), left, 9)))
    assert fits[index(theirs)] and not fits.all()


def test_a_partner_that_claims_everything_is_no_heuristic_one_that_values_all_items() -> None:
    greedy = seen(0, Items(0, 0, 0), 9)
    fits = np.asarray(detective.explained(SETTINGS, partner.KINDS["heuristic"], greedy))
    assert not fits[index(Items(5, 5, 5))]


def test_before_the_first_act_every_kind_is_possible() -> None:
    assert np.asarray(detective.explained(SETTINGS, partner.KINDS["mirror"], seen(SILENT, Items(0, 0, 0), 10))).all()


@pytest.mark.optimised
@pytest.mark.conformance
def test_the_detective_gives_the_hints_of_a_player_who_knows_the_heuristic_partner() -> None:
    assert evaluate_hints(GAME, GAME.default_options, "detective", 128)["agreement"] >= 0.99


@pytest.mark.optimised
@pytest.mark.conformance
def test_the_detective_earns_nearly_what_a_player_earns_who_knows_the_kind() -> None:
    found = evaluate(GAME, GAME.default_options, "detective", "partner:conceder", 256)
    assert found["share_of_bayes"] >= 0.95
