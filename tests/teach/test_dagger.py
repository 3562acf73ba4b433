"""A student plays, the expert answers: real language models as students."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kibitz.games import get_game
from kibitz.teach.examples.data import Lesson, write_rows
from tests.advice.conftest import embedded
from tests.teach.models import tiny_model
from tests.train import toy

__all__ = ["embedded"]
pytestmark = pytest.mark.conformance  # needs the extra `teach`, or the embedded model


@pytest.mark.usefixtures("one_thread")
def test_a_folder_of_transformers_plays_and_the_expert_answers(tmp_path: Path) -> None:
    game, student = toy.build(False), tiny_model(tmp_path / "model")
    for name, who in (("one", str(student)), ("other", str(student)), ("alone", "")):
        lesson = Lesson(student=who, expert="oracle", random_share=0)
        write_rows(tmp_path / name, game, game.default_options, lesson, 20)
    assert (tmp_path / "one").read_text() == (tmp_path / "other").read_text() != (tmp_path / "alone").read_text()
    rows = [json.loads(line)["messages"] for line in (tmp_path / "one").read_text().splitlines()]
    for _, asked, answer in rows:
        assert json.loads(answer["content"])["arm"] == int(asked["content"].split("lucky ")[1][0])


@pytest.mark.usefixtures("embedded")
def test_the_embedded_model_plays_and_the_expert_answers(tmp_path: Path) -> None:
    game = get_game("deal_or_no_deal")
    lesson = Lesson(student="llm:embedded", expert="heuristic")
    write_rows(tmp_path / "rows", game, game.default_options, lesson, 4)
    rows = [json.loads(line)["messages"] for line in (tmp_path / "rows").read_text().splitlines()]
    assert len(rows) == 4 and all("act_type" in json.loads(answer["content"]) for *_, answer in rows)
