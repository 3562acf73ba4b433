"""Studies as a user runs them: tiny ones, of the toy game."""

from __future__ import annotations

import json
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from kibitz.core.errors import BadInput
from kibitz.studies.study import Study
from kibitz.train.run.folder import written_by_us
from tests.studies.conftest import TINY, PaidModel
from tests.train.conftest import Command


def results(folder: Path) -> dict[str, Any]:
    """What every finished cell has shown, without its times."""
    found = {file.parent.name: json.loads(file.read_text()) for file in folder.glob("cells/*/result.json")}
    return {name: {key: value for key, value in one.items() if key != "seconds"} for name, one in found.items()}


@pytest.mark.conformance
def test_a_study_trains_its_cells_and_writes_its_report(kibitz: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "study"
    words = ["study", "hints", "--out", str(out), *TINY, "--algos", "ppo", "--sources", "none,shuffled"]
    done = kibitz(*words, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["complete"] and [cell["name"] for cell in found["cells"]] == ["ppo-none", "ppo-shuffled-k1"]
    assert "another game" in found["cells"][1]["adviser"] and found["cells"][1]["heard_share"] is not None
    assert all(len(cell["share"]) == 2 and cell["steps"] == [32, 64, 96] for cell in found["cells"])
    assert {"report.html", "report.md", "report.json", "report_cost.csv"} <= {file.name for file in out.iterdir()}
    assert found["command"].startswith("kibitz study hints") and str(tmp_path) not in (out / "report.html").read_text()

    before = results(out)
    cell = out / "cells" / "ppo-shuffled-k1"
    (cell / "result.json").unlink()  # as if the study had been killed just before
    again = kibitz("study", "hints", "--out", str(out), "--resume", "--json")
    assert again.returncode == 0 and results(out) == before, again.stderr
    assert json.loads(again.stdout)["command"] == found["command"], "the command that started it"

    for words, sentence in (
        (["--resume", "--seeds", "3"], "--seeds is 3 here but 2"),
        (["--game", "two_arms"], "is not empty"),
    ):
        refused = kibitz("study", "hints", "--out", str(out), *words)
        assert refused.returncode == 2 and sentence in refused.stderr
    assert "kind is 'sweep'" in kibitz("study", "sweep", "--out", str(out), "--resume").stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["hints", "--resume"], "no study to resume"),
        (["sweep"], "needs --vary"),
        (["hints", "--cadences", "0"], "whole numbers from 1"),
        (["hints", "--cadences", ""], "whole numbers from 1"),
        (["hints", "--game", "two_arms", "--sources", "llm:nobody"], "nobody"),
    ],
)
def test_a_mistake_ends_with_code_2_and_writes_nothing(
    kibitz: Callable[..., Any], tmp_path: Path, words: list[str], sentence: str
) -> None:
    done = kibitz("study", *words, "--out", str(tmp_path / "x"))
    assert done.returncode == 2 and sentence in done.stderr and not (tmp_path / "x").exists()


def test_a_folder_holds_one_study_at_a_time(tmp_path: Path) -> None:
    study = Study(tmp_path, {}, [], [])
    with written_by_us(tmp_path), pytest.raises(BadInput, match="Another training writes"):
        study.run()
    assert study.run()


@pytest.mark.conformance
def test_a_killed_sweep_continues_and_ends_with_the_same_results(
    command: Command, kibitz: Callable[..., Any], tmp_path: Path
) -> None:
    words = ["study", "sweep", *TINY, "--steps", "960", "--vary", "train.gamma=0.9", "--json"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert kibitz(*words, "--out", str(whole)).returncode == 0
    second = killed / "cells" / "ppo-001" / "checkpoints"
    with command.start(*words, "--out", str(killed)) as process:
        late = time.monotonic() + 120
        while not any(second.glob("*.safetensors")) and process.poll() is None and time.monotonic() < late:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
    assert len(results(killed)) == 1, "it was killed in between"
    done = kibitz("study", "sweep", "--out", str(killed), "--resume", "--json")
    assert done.returncode == 0 and results(killed) == results(whole), done.stderr
    assert len(json.loads(done.stdout)["cells"]) == 2


def cached_answers(file: Path) -> int:
    if not file.exists():
        return 0
    with closing(sqlite3.connect(file, timeout=60)) as db, suppress(sqlite3.OperationalError):  # no table yet
        return int(db.execute("SELECT count(*) FROM answers").fetchone()[0])
    return 0


@pytest.mark.conformance
def test_a_killed_study_asks_a_paid_model_no_answered_question_again(
    paid_model: PaidModel, command: Command, tmp_path: Path
) -> None:
    """`paid_model` comes first: `command` copies the variables that it sets."""
    out, prompt = tmp_path / "study", tmp_path / "prompt.txt"
    prompt.write_text("Arm {{ lucky }} is lucky, the cap is {{ cap }}, {{ left }} left.\n{{ choices }}", "utf-8")
    words = ["study", "hints", "--out", str(out), *TINY, "--algos", "ppo", "--sources", "none,llm:obliging"]
    words += ["--set", f"hints.prompt_path={prompt}", "--model-episodes", "4", "--json"]
    for paid_model.gate in (3, 11):  # of 24: two arms, three caps, four rounds
        with command.start(*words) as process:
            while cached_answers(out / "answers.sqlite") < paid_model.gate:
                assert process.poll() is None, process.communicate()
                time.sleep(0.02)
            process.kill()
            assert process.wait() == -signal.SIGKILL
        words = ["study", "hints", "--out", str(out), "--resume", "--json"]
    paid_model.gate = sys.maxsize
    done = command(*words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["complete"]
    assert len(paid_model.received) > 11 and set(paid_model.received.values()) == {1}


@pytest.mark.conformance
@pytest.mark.usefixtures("embedded")
def test_a_model_advises_a_cell_and_is_heard_at_the_end(kibitz: Callable[..., Any], tmp_path: Path) -> None:
    out, prompt = tmp_path / "study", tmp_path / "prompt.txt"
    prompt.write_text("Arm {{ lucky }} is lucky, the cap is {{ cap }}.\n{{ choices }}", encoding="utf-8")
    words = ["study", "hints", "--out", str(out), *TINY, "--algos", "ppo", "--sources", "none,llm:embedded"]
    words += ["--set", "env.rounds=1", "--set", f"hints.prompt_path={prompt}"]
    done = kibitz(*words, "--model-seeds", "1", "--model-episodes", "4", "--json")
    assert done.returncode == 0, done.stderr
    cell = json.loads(done.stdout)["cells"][1]
    assert cell["seeds"] == [0] and cell["heard_episodes"] == 4 and len(cell["heard_gain"]) == 1
    assert cell["cost"]["asked"] > cell["cost"]["calls"] > 0, "equal positions are asked once"
    assert cell["heard_cost"]["calls"] == 0, "training has asked about all of them"
    assert (out / "answers.sqlite").is_file()
