"""The promises of the record, and rounds played by hand."""

from __future__ import annotations

import jax.numpy as jnp
import kibitz

from sealed_bids import GAME, rules
from sealed_bids.options import GameOptions

SETTINGS = GameOptions(rounds=2, budget=12).settings()
LUCK = jnp.zeros(1)


def sell(values: tuple[int, int], bids: tuple[int, int]) -> tuple[rules.State, list[float]]:
    state = rules.new(SETTINGS, LUCK)._replace(values=tuple(jnp.int32(value) for value in values))
    after, rewards, _ = rules.step(SETTINGS, state, tuple((jnp.int32(bid),) for bid in bids), LUCK)
    return after, rewards.tolist()


def test_the_record_keeps_its_promises() -> None:
    kibitz.check_game(GAME)


def test_the_higher_bid_wins_the_item_and_is_paid() -> None:
    after, rewards = sell(values=(9, 7), bids=(5, 4))
    assert rewards == [4.0, 0.0]
    assert [int(x) for x in after.budgets] == [7, 12]
    assert [int(x) for x in after.won] == [1, 0]


def test_equal_bids_win_nothing_and_cost_nothing() -> None:
    after, rewards = sell(values=(9, 7), bids=(6, 6))
    assert rewards == [0.0, 0.0]
    assert [int(x) for x in after.budgets] == [12, 12]


def test_paying_more_than_the_value_loses_points() -> None:
    _, rewards = sell(values=(3, 7), bids=(8, 4))
    assert rewards == [-5.0, 0.0]


def test_the_ceiling_is_one_more_than_the_other_bid() -> None:
    after, _ = sell(values=(9, 7), bids=(0, 4))
    assert [int(x) for x in after.best] == [4, 6]
