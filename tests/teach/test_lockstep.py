"""Episodes in lockstep are the episodes that `play_episode` plays."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kibitz.core.bots import seated
from kibitz.core.play.episode import play_episode
from kibitz.core.play.player import BotPlayer, Choice
from kibitz.games import get_game
from kibitz.teach.play.lockstep import Lockstep
from tests.train import toy


def legal_acts(game: Any, masks: Any) -> list[tuple[int, ...]]:
    """Every legal act; heads that do not matter have their first legal value."""
    opened = [np.flatnonzero(np.asarray(mask)).tolist() for mask in masks]
    return [
        (first, *others)
        for first in opened[0]
        for others in itertools.product(
            *(v if m else v[:1] for v, m in zip(opened[1:], game.matters[first][1:], strict=True))
        )
    ]


def oracle(positions: Sequence[Any]) -> list[tuple[int, ...]]:
    return [(position.view.lucky, position.view.cap) for position in positions]


def test_an_episode_is_the_same_alone_and_in_lockstep() -> None:
    game = toy.build(False)
    options, bots = game.default_options, (game.bot("oracle"), game.bot("random"))
    played = Lockstep(game, options, bots[1], expert=game.bot("heuristic")).play(5, [3, 0, 7], oracle)
    settings = seated(options.settings(), {1: bots[1]})
    for place, number in enumerate([3, 0, 7]):
        alone = play_episode(game, settings, [BotPlayer(game, bot) for bot in bots], seed=5, number=number)
        assert tuple(played.returns[place]) == alone.returns
        assert played.measures["ceiling"][place] == alone.scores["ceiling"][0]
        own = [d for d in played.decisions if d.episode == place]
        assert [len(d.position.history) for d in own] == [0, 2, 4, 6] and all(d.label == (0, 0) for d in own)


def test_somebody_on_the_host_may_take_both_seats() -> None:
    game = toy.build(False)
    played = Lockstep(game, game.default_options).play(0, [0, 1], oracle, oracle)
    assert (played.returns[:, 0] == played.returns[:, 1]).all() and (played.returns > 0).all()


class Wanderer:
    """Plays some legal act that the position alone decides."""

    name = "wanderer"

    def __init__(self, game: Any) -> None:
        self.game = game

    def begin(self, settings: Any, seat: int, luck: Any) -> None: ...

    def act(self, masks: Any, history: Any) -> tuple[int, ...]:
        acts = legal_acts(self.game, masks)
        return acts[(11 * len(history) + 5) % len(acts)]

    def choose(self, turn: Any) -> Choice:
        return Choice(self.act(turn.masks, turn.history), self.name)

    def __call__(self, positions: Sequence[Any]) -> list[tuple[int, ...]]:
        return [self.act(position.masks, position.history) for position in positions]


@pytest.mark.conformance
def test_a_game_of_alternating_turns_is_the_same_in_lockstep() -> None:
    game = get_game("deal_or_no_deal")
    partner, player = game.bot("heuristic"), Wanderer(game)
    settings = seated(game.default_options.settings(), {1: partner})
    played = Lockstep(game, game.default_options, partner).play(1, list(range(6)), player)
    for number in range(6):
        alone = play_episode(game, settings, [player, BotPlayer(game, partner)], seed=1, number=number)
        assert tuple(played.returns[number]) == alone.returns
        steps = [event.payload["acts"][0] for event in alone.events if event.type == "step"]
        mine = [decision.act for decision in played.decisions if decision.episode == number]
        assert mine == [tuple(act) for act in steps if act is not None]
    assert len(set(map(tuple, played.returns))) > 1
