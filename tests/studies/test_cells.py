"""Which cells a study has."""

from __future__ import annotations

from typing import Any

import pytest

from kibitz.cli.studies.study import DEFAULTS, HINT_DEFAULTS
from kibitz.core.errors import BadInput
from kibitz.studies.cells import configured_game, hint_cells, sweep_cells
from kibitz.train.config import read_job


def hints(**changes: Any) -> Any:
    asked = {**DEFAULTS, **HINT_DEFAULTS, "model_cadences": [4], "kind": "hints", "game": "two_arms", **changes}
    return hint_cells(asked)


def sweep(*vary: str, random: int | None = None, **changes: Any) -> Any:
    return sweep_cells(
        {**DEFAULTS, "game": "two_arms", "algos": ["ppo"], "vary": list(vary), "random": random, **changes}
    )


def test_a_hint_study_crosses_algorithm_source_and_cadence_with_the_same_seeds() -> None:
    cells = hints(sources=["none", "expert", "llm:embedded"], cadences=[1, 3], model_seeds=2, seed=7, seeds=4)
    assert [cell.name for cell in cells[:4]] == ["ppo-none", "ppo-expert-k1", "ppo-expert-k3", "ppo-llm_embedded-k4"]
    assert len(cells) == 8 and {cell.job.algo for cell in cells} == {"ppo", "reinforce"}
    assert {cell.job.seed for cell in cells} == {7}
    assert [cell.job.seeds for cell in cells[:4]] == [4, 4, 4, 2]
    expert, model = cells[2].job.hints, cells[3].job.hints
    assert (expert.mode, expert.cadence_k, model.mode, model.provider, model.cadence_k) == (
        "expert",
        3,
        "llm",
        "embedded",
        4,
    )


def test_a_grid_has_the_config_and_every_combination() -> None:
    cells = sweep("train.lr=1e-4,1e-3", "train.ent=0.0,0.01")
    assert [cell.labels["setting"] for cell in cells] == [
        "config",
        "train.lr=1e-4, train.ent=0.0",
        "train.lr=1e-4, train.ent=0.01",
        "train.lr=1e-3, train.ent=0.0",
        "train.lr=1e-3, train.ent=0.01",
    ]
    assert [cell.job.train.lr for cell in cells[1:]] == [1e-4, 1e-4, 1e-3, 1e-3]


def test_a_random_search_draws_within_its_ranges_the_same_for_the_same_seed() -> None:
    cells, again, other = (
        sweep("train.lr=1e-4..1e-1", "train.epochs=1..4", "train.gamma=0.5..0.9", random=20, seed=seed)
        for seed in (1, 1, 2)
    )
    jobs = [cell.job.train for cell in cells[1:]]
    assert len(jobs) == 20 and jobs == [cell.job.train for cell in again[1:]] != [cell.job.train for cell in other[1:]]
    assert all(1e-4 <= job.lr <= 1e-1 and 1 <= job.epochs <= 4 and 0.5 <= job.gamma <= 0.9 for job in jobs)
    assert sum(job.lr < 10**-2.5 for job in jobs) >= 5, "a wide range is drawn on a logarithmic scale"
    assert len(sweep("train.epochs=1,2", random=20)) == 3, "no setting twice"


def test_a_study_plays_the_game_of_its_config() -> None:
    assert configured_game(["configs/ppo_cricket.yaml"], []) == "cricket"
    assert configured_game([], ["env.id=Cricket-v0"]) == "cricket"
    assert configured_game([], ["env.points_budget=10"]) is None, "the default"


def test_a_study_without_a_config_starts_from_the_recipes_of_kibitz_train() -> None:
    ppo, reinforce = (cell.job.train for cell in hints(game="deal_or_no_deal", sources=["none"]))
    assert ppo == read_job("configs/ppo_fast.yaml", {}).train
    assert reinforce == read_job("configs/reinforce_fast.yaml", {}).train
    (cricket, *_) = sweep("train.lr=1e-3", game="cricket")
    assert cricket.job.train == read_job("configs/ppo_cricket.yaml", {}).train
    own = "configs/ppo_config.yaml"
    assert hints(game="deal_or_no_deal", configs=[own])[0].job.train == read_job(own, {}).train


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: hints(sources=["oracle"]), "no source of hints 'oracle'"),
        (lambda: hints(sources=["none", "none"]), "the cell ppo-none twice"),
        (lambda: hints(sources=[]), "no cells"),
        (lambda: hints(set=["train.lrr=1"]), "train.lrr"),
        (lambda: hints(configs=["configs/ppo_config.yaml", "configs/ppo_fast.yaml"]), "both for ppo"),
        (lambda: hints(configs=["configs/reinforce_fast.yaml"], algos=["ppo"]), "add it to --algos"),
        (lambda: sweep("train.lr=1", configs=["configs/reinforce_fast.yaml"], algos=["ppo"]), "add it to --algos"),
        (lambda: configured_game(["configs/ppo_cricket.yaml", "configs/ppo_style.yaml"], []), "different games"),
        (lambda: hints(set=["seed=3"]), "--seed sets seed for every cell"),
        (lambda: sweep("algo=ppo,reinforce"), "--algos sets algo"),
        (lambda: sweep("train.num_train_steps=1,2", steps=96), "--steps sets train.num_train_steps"),
        (lambda: sweep("train.lr"), "not of the form"),
        (lambda: sweep("train.lr=1e-4..1e-2"), "is a range"),
        (lambda: sweep("train.lr=2..1", random=3), "should rise"),
        (lambda: sweep("train.lr=a..b", random=3), "not a range of numbers"),
        (lambda: sweep("train.lr=1", "train.lr=2"), "same key"),
        (lambda: sweep(*(f"train.hidden{i}={','.join(map(str, range(9)))}" for i in range(4))), "6,561 settings"),
    ],
)
def test_a_mistake_is_one_sentence(make: Any, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        make()
