"""What `kibitz train` does when it is told little."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kibitz.core.registry import generic_env_id
from kibitz.train.config import read_job
from kibitz.train.start import changes_of, default_config
from tests.train import toy


@pytest.fixture
def other_game() -> Iterator[str]:
    toy.register()
    yield generic_env_id(toy.NAME)
    toy.unregister()


@pytest.mark.parametrize(
    ("arguments", "config"),
    [
        ({}, "configs/ppo_fast.yaml"),
        ({"game": "deal_or_no_deal"}, "configs/ppo_fast.yaml"),
        ({"game": "cricket"}, "configs/ppo_cricket.yaml"),
        ({"options": ["env.id=Cricket-v0"]}, "configs/ppo_cricket.yaml"),
        ({"algo": "reinforce"}, "configs/reinforce_fast.yaml"),
        ({"algo": "supervised"}, None),
    ],
)
def test_a_training_without_a_config_uses_the_recipe_that_learns(
    arguments: dict[str, object], config: str | None
) -> None:
    changes = changes_of(**arguments)  # type: ignore[arg-type]
    assert default_config(changes) == config
    job = read_job(default_config(changes), changes)
    assert job.algo == arguments.get("algo", "ppo")
    assert config is None or job.train.ent > 0, "without an entropy bonus a learner stays at 83 % of the ceiling"


def test_a_game_of_another_package_uses_the_same_recipe(other_game: str) -> None:
    changes = {"env": {"id": other_game}}
    job = read_job(default_config(changes), changes)
    assert (job.env.game, job.train.minibatch, job.train.ent) == (toy.NAME, 512, 0.03)
