"""What is said of a negotiation once it is over."""

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


def test_the_payoff_plane_holds_every_split_and_its_best_ones() -> None:
    for seed in range(4):
        end = played(seed).events[-1].payload
        told, counts = end["review"], np.array(end["frame"]["counts"])
        mine, theirs = (np.array(end["private"][seat]["utilities"]) for seat in "01")
        assert len(told["allocations"]) == np.prod(counts + 1)
        paid = []
        for one in told["allocations"]:
            kept = np.array(one["seat0"])
            assert one["payoffs"] == [int(kept @ mine), int((counts - kept) @ theirs)]
            paid.append(one["payoffs"])
        for one in told["allocations"]:
            a, b = one["payoffs"]
            beaten = any(x >= a and y >= b and (x, y) != (a, b) for x, y in paid)
            assert one["pareto"] == (not beaten)
        product = end["scores"]["nash_product"][0] / max(end["scores"]["nash_share"][0], 1e-9)
        assert np.isclose(np.prod(told["nash"]), max(x * y for x, y in paid))
        assert end["scores"]["nash_share"][0] == 0 or np.isclose(product, np.prod(told["nash"]))


def test_the_reference_says_what_bayes_said_where_bayes_played() -> None:
    for seed in range(4):
        events = played(seed).events
        would = {one["turn"]: one["act"] for one in events[-1].payload["review"]["reference"]}
        said = {e.payload["turn"]: e.payload["act"] for e in events if e.type == "decision" and e.payload["seat"] == 0}
        assert said and all(would[turn] == act for turn, act in said.items())
        assert len(would) == events[-1].payload["steps"]


def test_nothing_of_the_review_is_told_before_the_end() -> None:
    assert all("review" not in event.payload for event in played(1).events[:-1])


def test_a_review_takes_less_than_a_second() -> None:
    taken = []

    def timed(settings: Any, past: Any, state: Any) -> Any:
        began = time.process_time()
        told = GAME.drawing.review(settings, state, past)
        taken.append(time.process_time() - began)
        return told

    game = dataclasses.replace(GAME, review=timed)
    players = [player_named(GAME, "heuristic"), player_named(GAME, "heuristic")]
    for seed in range(3):
        play_episode(game, OPTIONS.settings(), players, seed=seed)
    assert len(taken) == 3 and min(taken) < 1  # the first one compiles
