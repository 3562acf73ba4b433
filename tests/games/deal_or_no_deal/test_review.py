"""What is said of a negotiation once it is over."""

from __future__ import annotations

<<<<<<< HEAD
import itertools

from kibitz.core.episode import play_episode
from kibitz.core.game import seated
from kibitz.core.player import RulePlayer
from kibitz.games import get_game

GAME = get_game("deal_or_no_deal")


def test_the_payoff_plane_and_the_reference_are_what_a_plain_count_and_bayes_itself_say() -> None:
    rules = {0: GAME.rule("bayes"), 1: GAME.rule("heuristic")}
    settings = seated(GAME.options().settings(), rules)
    played = play_episode(GAME, settings, [RulePlayer(GAME, rule) for rule in rules.values()], seed=4)
    started, ended = played.events[0].payload, played.events[-1].payload
    counts = started["frame"]["counts"]
    mine, theirs = (started["private"][seat]["utilities"] for seat in "01")
    paid = {
        kept: (
            sum(u * k for u, k in zip(mine, kept, strict=True)),
            sum(u * (n - k) for u, n, k in zip(theirs, counts, kept, strict=True)),
        )
        for kept in itertools.product(*(range(n + 1) for n in counts))
    }
    told = {tuple(row["seat0"]): row for row in ended["review"]["allocations"]}
    assert set(told) == set(paid)
    for kept, (a, b) in paid.items():
        assert told[kept]["payoffs"] == [a, b]
        beaten = any(x >= a and y >= b and (x, y) != (a, b) for x, y in paid.values())
        assert told[kept]["pareto"] == (not beaten)
    best = max(a * b for a, b in paid.values())
    assert ended["review"]["nash"][0] * ended["review"]["nash"][1] == best
    # where bayes itself played, the reference says what was said
    said = [event.payload["acts"] for event in played.events if event.type == "step"]
    own = [row for row in ended["review"]["reference"] if row["seat"] == 0]
    assert own and all(row["act"][0] == said[row["turn"]][0][0] for row in own)


def test_nothing_of_the_review_is_told_before_the_end() -> None:
    players = [RulePlayer(GAME, GAME.rule("heuristic")) for _ in range(2)]
    played = play_episode(GAME, GAME.options().settings(), players, seed=1)
    assert all("review" not in event.payload for event in played.events[:-1])
=======
import time

import numpy as np

from kibitz.core.episode import play_episode
from kibitz.core.game import seated
from kibitz.games import deal_or_no_deal
from kibitz.players import player_named

GAME = deal_or_no_deal.game()
OPTIONS = deal_or_no_deal.NegotiationOptions()


def played(seed: int):  # type: ignore[no-untyped-def]
    rules = {0: GAME.rule("bayes"), 1: GAME.rule("heuristic")}
    players = [player_named(GAME, "bayes"), player_named(GAME, "heuristic")]
    return play_episode(GAME, seated(OPTIONS.settings(), rules), players, seed=seed)


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


def test_a_review_takes_less_than_a_second() -> None:
    played(0)
    began = time.perf_counter()
    played(1)
    assert time.perf_counter() - began < 1
>>>>>>> w-cockpit
