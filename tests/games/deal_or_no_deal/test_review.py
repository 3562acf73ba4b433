"""The review of a finished negotiation."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np

from kibitz.core.bots import seated
from kibitz.core.play.episode import Episode, play_episode
from kibitz.games import deal_or_no_deal
from kibitz.players import player_named

GAME = deal_or_no_deal.game()
OPTIONS = deal_or_no_deal.NegotiationOptions()


def played(seed: int) -> Episode:
    bots = {0: GAME.bot("bayes"), 1: GAME.bot("heuristic")}
    players = [player_named(GAME, "bayes"), player_named(GAME, "heuristic")]
    return play_episode(GAME, seated(OPTIONS.settings(), bots), players, seed=seed)


def test_the_review_holds_every_allocation_and_marks_the_pareto_optimal_ones() -> None:
    for seed in range(4):
        end = played(seed).events[-1].payload
        review, counts = end["review"], np.array(end["frame"]["counts"])
        mine, theirs = (np.array(end["private"][seat]["utilities"]) for seat in "01")
        assert len(review["allocations"]) == np.prod(counts + 1)
        paid = []
        for one in review["allocations"]:
            kept = np.array(one["seat0"])
            assert one["payoffs"] == [int(kept @ mine), int((counts - kept) @ theirs)]
            paid.append(one["payoffs"])
        for one in review["allocations"]:
            a, b = one["payoffs"]
            beaten = any(x >= a and y >= b and (x, y) != (a, b) for x, y in paid)
            assert one["pareto"] == (not beaten)
        product = end["scores"]["nash_product"][0] / max(end["scores"]["nash_share"][0], 1e-9)
        assert np.isclose(np.prod(review["nash"]), max(x * y for x, y in paid))
        assert end["scores"]["nash_share"][0] == 0 or np.isclose(product, np.prod(review["nash"]))


def test_the_reference_repeats_the_acts_of_bayes() -> None:
    for seed in range(4):
        events = played(seed).events
        would = {one["turn"]: one["act"] for one in events[-1].payload["review"]["reference"]}
        said = {e.payload["turn"]: e.payload["act"] for e in events if e.type == "decision" and e.payload["seat"] == 0}
        assert said and all(would[turn] == act for turn, act in said.items())
        assert len(would) == events[-1].payload["steps"]


def test_only_the_last_event_contains_the_review() -> None:
    assert all("review" not in event.payload for event in played(1).events[:-1])


def test_a_review_takes_less_than_a_second() -> None:
    taken = []

    def timed(settings: Any, state: Any, past: Any) -> Any:
        began = time.process_time()
        review = GAME.drawing.review(settings, state, past)
        taken.append(time.process_time() - began)
        return review

    game = dataclasses.replace(GAME, drawing=dataclasses.replace(GAME.drawing, review=timed))
    players = [player_named(GAME, "heuristic"), player_named(GAME, "heuristic")]
    for seed in range(3):
        play_episode(game, OPTIONS.settings(), players, seed=seed)
    assert len(taken) == 3 and min(taken) < 1  # the first one compiles
