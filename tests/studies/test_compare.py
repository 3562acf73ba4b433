"""Comparing runs: seeds become bands, repeated experiments one line, and the figure is what its name says."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from kibitz.core.errors import BadInput
from kibitz.studies.compare import compare
from tests.conftest import Finished

Command = Callable[..., Finished]
STEPS = (100, 200)


def run(folder: Path, seeds: Sequence[int], level: float, algo: str = "ppo", game: str = "two_arms") -> Path:
    """A run's folder as `kibitz train` leaves it; seed s ends `s / 100` above the level."""
    folder.mkdir()
    job: dict[str, Any] = {"algo": algo, "seed": seeds[0], "seeds": len(seeds), "logging": {"output_dir": str(folder)}}
    (folder / "config.yaml").write_text(yaml.safe_dump(job))
    (folder / "run.json").write_text(json.dumps({"game": game}))
    rows = ["step,seed,return_mean,share_of_ceiling,hints_from"]
    rows += [f"{step},{s},{step},{level * step / 200 + s / 100},none" for step in STEPS for s in seeds]
    (folder / "evaluations.csv").write_text("\n".join(rows) + "\n")
    return folder


def test_runs_that_differ_only_in_seeds_are_one_line(tmp_path: Path) -> None:
    folders = [run(tmp_path / "a", (0, 1), 0.5), run(tmp_path / "b", (2, 3), 0.5)]
    found = compare([*folders, folders[0]])
    (line,) = found.lines
    assert (found.metric, line.name, line.seeds, line.steps) == (
        "share_of_ceiling",
        "a and 1 more",
        (0, 1, 2, 3),
        STEPS,
    )
    np.testing.assert_allclose(line.values[:, -1], [0.5, 0.51, 0.52, 0.53])


def test_differences_are_paired_by_seed(tmp_path: Path) -> None:
    one, other = run(tmp_path / "one", (0, 1, 2), 0.5), run(tmp_path / "two", (1, 2, 3), 0.7, "reinforce")
    first, second = compare([one, other]).summary()["runs"]
    assert first["mean"] == pytest.approx(0.51)
    assert first["difference"] is first["p_holm"] is None
    assert second["difference"] == pytest.approx(0.2)  # seeds 1 and 2, which differ by the same amount
    assert second["difference_ci95"] == pytest.approx([0.2, 0.2])
    assert second["p_holm"] < 0.001


def test_a_single_seed_has_no_interval(tmp_path: Path) -> None:
    (row,) = compare([run(tmp_path / "one", (4,), 0.5)]).summary()["runs"]
    assert row["ci95"] == [None, None]


@pytest.mark.parametrize(("suffix", "begins"), [("pdf", b"%PDF-"), ("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_the_figure_has_the_format_of_its_name(kibitz: Command, tmp_path: Path, suffix: str, begins: bytes) -> None:
    folders = [run(tmp_path / "one", (0, 1, 2), 0.5), run(tmp_path / "two", (0, 1, 2), 0.7, "reinforce")]
    figure = tmp_path / f"figure.{suffix}"
    done = kibitz("compare", *map(str, folders), "--out", str(figure), "--json")
    assert done.returncode == 0, done.stderr
    assert [row["run"] for row in json.loads(done.stdout)["runs"]] == ["one", "two"]
    assert figure.read_bytes().startswith(begins)
    assert len(figure.read_bytes()) > 5_000


def test_the_table_names_every_run_with_its_interval(kibitz: Command, tmp_path: Path) -> None:
    folders = [run(tmp_path / "one", (0, 1, 2), 0.5), run(tmp_path / "two", (0, 1, 2), 0.7, "reinforce")]
    done = kibitz("compare", *map(str, folders))
    assert done.returncode == 0, done.stderr
    assert "51.0 % (48.5 % to 53.5 %)" in done.stdout
    assert "20.0 % (20.0 % to 20.0 %)" in done.stdout


def test_what_cannot_be_compared_is_one_sentence_and_writes_nothing(kibitz: Command, tmp_path: Path) -> None:
    one, other = run(tmp_path / "one", (0,), 0.5), run(tmp_path / "two", (0,), 0.5, game="cricket")
    same = run(tmp_path / "same", (0,), 0.5)
    empty = tmp_path / "empty"
    empty.mkdir()
    for words, sentence in (
        ([one, other], "compare runs of one game"),
        ([one, same], "repeats seed 0"),
        ([empty], "has no evaluations.csv"),
        ([one, "--metric", "regret"], "choose one of return_mean, share_of_ceiling"),
        ([one, "--out", tmp_path / "figure.gif"], "end it in .pdf, .svg or .png"),
        ([one, "--out", tmp_path / "nowhere" / "figure.png"], "create it first"),
    ):
        done = kibitz("compare", *map(str, words))
        assert (done.returncode, done.stdout) == (2, "")
        assert sentence in done.stderr
        assert done.stderr.count("\n") == 1
    assert not list(tmp_path.glob("figure*"))


def test_a_game_without_a_ceiling_compares_returns(tmp_path: Path) -> None:
    folder = run(tmp_path / "one", (0,), 0.5)
    table = folder / "evaluations.csv"
    table.write_text(table.read_text().replace("share_of_ceiling", "other"))
    assert compare([folder]).metric == "return_mean"
    table.write_text(table.read_text().replace("return_mean", "another"))
    with pytest.raises(BadInput, match="choose one of another, other"):
        compare([folder])
