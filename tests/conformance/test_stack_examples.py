"""The examples for other people's stacks run: self-play on PettingZoo, and clients of a real server."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance.test_hint_examples import example
from tests.live.conftest import Served, served

__all__ = ["served"]
pytestmark = [pytest.mark.conformance, pytest.mark.filterwarnings("ignore")]  # warnings of other packages


def test_one_policy_plays_both_seats_on_pettingzoo() -> None:
    means = example("pettingzoo_selfplay").main(episodes=32)
    assert len(means) == 2 and np.isfinite(means).all()


def test_an_openenv_client_plays_both_games(served: Served) -> None:
    found = example("openenv_client").main(served.url)
    assert found["negotiation"] >= 0 and found["cricket"] in (0.0, 0.5, 1.0)


def test_an_mcp_client_plays_an_episode(served: Served) -> None:
    last = example("mcp_client").main(served.url)
    assert last["done"]
