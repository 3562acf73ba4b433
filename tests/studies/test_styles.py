"""Agents for every style of a game, in one report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kibitz.core.errors import BadInput
from kibitz.studies.reports.report import ReportTable
from kibitz.studies.styles import study_styles
from tests.train import toy

TOY = toy.build(False)
SMALL = [
    f"env.id={toy.ENV_ID}", "train.num_envs=8", "train.rollout=4", "train.minibatch=16", "train.epochs=2",
    "train.hidden=[8]", "train.lr=0.01", "logging.tensorboard=false", "logging.eval_episodes=32",
]  # fmt: skip


@pytest.fixture(autouse=True)
def toy_game() -> Iterator[None]:
    toy.register()
    yield
    toy.unregister()


@pytest.mark.conformance
def test_the_table_has_a_row_for_each_style_and_the_papers_figures_beside_ours(tmp_path: Path) -> None:
    game = replace(TOY, styles=replace(TOY.styles, published={"bold": {"ones": 3.5}}))
    trained: list[bool] = []

    def study(style: list[str]) -> ReportTable:
        report = study_styles(
            game, tmp_path, style, SMALL, lambda run, resume: trained.append(resume) or run.train(resume),  # type: ignore[func-returns-value]
            seeds=2, steps=4000,
        )  # fmt: skip
        assert report is not None
        (table,) = report.parts
        assert isinstance(table, ReportTable)
        return table

    study(["bold"])
    seconds = json.loads((tmp_path / "report.json").read_text())["styles"]["bold"]["seconds"]
    table = study([])
    assert trained == [False, True, False], "a finished run is not trained again"
    assert [row[0] for row in table.rows] == ["bold", "shy"]
    bold, shy = table.rows
    assert bold[1].value > 0.9 and bold[2].value > 3.5 and bold[3] == 3.5
    assert shy[1].value > 0.9 and shy[2].value < 0.5 and shy[3] is None
    found = json.loads((tmp_path / "report.json").read_text())["styles"]
    assert set(found) == {"bold", "shy"} and found["bold"]["seconds"] == seconds, "the time of its training"


def test_an_unknown_style_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no style 'calm'"):
        study_styles(TOY, tmp_path / "out", ["calm"], SMALL, lambda run, resume: {})
    assert not (tmp_path / "out").exists()
