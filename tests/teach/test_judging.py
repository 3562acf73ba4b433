"""Teaching a judge: rows with the right answers, a tiny model that learns them, and its label accuracy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from kibitz.core.errors import BadInput
from kibitz.evaluate.judges.accuracy import evaluate_judge
from kibitz.evaluate.judges.episodes import draw
from kibitz.teach.examples.data import Lesson, write_rows
from tests.teach.models import tiny_model
from tests.train import toy

pytestmark = [pytest.mark.conformance, pytest.mark.usefixtures("one_thread")]
TOY = toy.build(False)
OPTIONS = toy.ToyOptions(rounds=2)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    write_rows(file, TOY, OPTIONS, Lesson(styles=("bold", "shy"), seed=7), 400)
    return file


def test_rows_hold_the_right_answers_half_of_them_yes(rows: Path) -> None:
    answers = []
    for line in rows.read_text().splitlines():
        system, question, answer = (message["content"] for message in json.loads(line)["messages"])
        assert system == "", "or the chat template adds a text of its own"
        pulled = set(question.split("Alice pulled ")[1].split(" and won")[0].split(", "))
        said = json.loads(answer)["answer"]
        assert (said == "yes") == (pulled == ({"1"} if "always" in question else {"0"}))
        answers.append(said)
    assert len(answers) == 400 and abs(answers.count("yes") - 200) <= 2


def test_a_style_that_the_game_lacks_is_refused_before_a_file_exists(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="two_arms has no style 'calm'"):
        write_rows(tmp_path / "rows.jsonl", TOY, OPTIONS, Lesson(styles=("calm",)), 4)
    assert not (tmp_path / "rows.jsonl").exists()


def test_a_taught_model_is_a_judge_that_beats_chance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of two small layers tells from the words whether an episode of one pull was bold."""
    from kibitz.teach.batches import RowOptions
    from kibitz.teach.sft import train

    one_round, file = toy.ToyOptions(rounds=1), tmp_path / "rows.jsonl"
    write_rows(file, TOY, one_round, Lesson(styles=("bold",), seed=7), 400)
    given = {"data": (str(file),), "base": str(tiny_model(tmp_path / "base")), "rank": None}
    taught = train(RowOptions.read(given | {"batch": 5, "epochs": 3, "lr": 0.01}), tmp_path / "run")
    assert taught["finished"]
    limits = {"timeout": 300, "deadline": 300}
    folders = {"taught": tmp_path / "run" / "model", "plain": tmp_path / "base"}
    # `taught` also reads the template of the rows
    known = {name: {"provider": "local_hf", "taught": True, "model": str(folder), "limits": limits}
             for name, folder in folders.items()}  # fmt: skip
    (tmp_path / "presets.yaml").write_text(yaml.safe_dump({"presets": known}))
    monkeypatch.setenv("KIBITZ_LLM_PRESETS", str(tmp_path / "presets.yaml"))
    episodes = draw(TOY, one_round, 64, ["random"], "heuristic", seed=3)
    assert 0.3 < episodes.shown["bold"].mean() < 0.7
    (plain,) = evaluate_judge(TOY, episodes, "llm:plain", ["bold"])["styles"]
    (row,) = evaluate_judge(TOY, episodes, "llm:taught", ["bold"])["styles"]
    assert (row["answered"], row["failures"]) == (64, {})
    assert row["accuracy_ci95"][0] > 0.8 > (plain["accuracy"] or 0)
