"""The toy keeps the promises of a game, so what it shows about training counts."""

from __future__ import annotations

from kibitz.core.check import check_game
from tests.train import toy


def test_the_toy_is_a_game() -> None:
    check_game(toy.build(False), toy.ToyOptions(rounds=3), games=64)
