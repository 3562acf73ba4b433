"""What a study says about its cells, from made-up results whose answer is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from kibitz.core.statistics import holm
from kibitz.studies.answers import study_report
from kibitz.studies.cells import Cell
from kibitz.studies.findings import median_steps, steps_to
from kibitz.studies.reports.report import Report
from kibitz.studies.study import Study
from kibitz.train.config import Job

SEEDS = 10
LUCK = np.random.default_rng(3).normal(0, 0.02, SEEDS)  # of a seed, the same in every cell


def result(source: str, gain: float, heard: float | None = None, seeds: int = SEEDS, **more: Any) -> dict[str, Any]:
    """Learners that end at 0.8 + gain alone, and `heard` above that with hints."""
    noise = np.random.default_rng(crc32(source.encode())).normal(0, 0.004, (seeds, 3))
    alone = np.array([0.5, 0.85, 0.8]) + gain + LUCK[:seeds, None] + noise
    cadence = None if source == "none" else 1
    return {
        "name": f"ppo-{source}", "algorithm": "ppo", "source": source, "cadence": cadence, "adviser": source,
        "seeds": list(range(seeds)), "steps": [100, 200, 300], "return": (10 * alone).tolist(), "share": alone.tolist(),
        "heard_return": None if heard is None else (10 * (alone + heard)).tolist(),
        "heard_share": None if heard is None else (alone + heard).tolist(), "seconds": 1.0, "cost": None, **more,
    }  # fmt: skip


def reported(folder: Path, *results: dict[str, Any], unfinished: int = 0) -> Report:
    cells = [Cell(one["name"], {}, Job()) for one in results]
    for one in results:
        (folder / "cells" / one["name"]).mkdir(parents=True)
        (folder / "cells" / one["name"] / "result.json").write_text(json.dumps(one))
    asked = {"kind": "hints", "game": "two_arms", "algos": ["ppo"], "seed": 0, "seeds": SEEDS}
    cells += [Cell(f"missing-{i}", {}, Job()) for i in range(unfinished)]
    return study_report(Study(folder, asked, cells, ["study", "hints"]))


def test_a_planted_gain_is_found_and_chance_is_called_nothing(tmp_path: Path) -> None:
    made = reported(
        tmp_path, result("none", 0), result("random", 0, 0.0), result("expert", 0.03, 0.1), result("shuffled", 0, 0.0)
    )
    random, expert, _, against_shuffled = made.verdicts
    assert not random.shown and "nothing was shown" in random.text and "PPO, random hints every step" in random.text
    assert expert.shown and "final result alone 2.96 percentage points higher" in expert.text
    assert against_shuffled.shown and "against shuffled hints" in against_shuffled.text
    difference = made.data["comparisons"][3]
    assert difference["measure"] == "final result alone" and difference["difference"] == pytest.approx(0.03, abs=0.01)
    low, high = difference["ci95"]
    assert low < 0.03 < high and difference["corrected_p"] >= difference["p"]


def test_comparisons_are_corrected_as_one_family(tmp_path: Path) -> None:
    none, weak = result("none", 0), result("expert", 0.0035, 0.0)
    many = [result(f"llm:{i}", 0, 0.0) for i in range(6)]
    alone, among = reported(tmp_path / "a", none, weak), reported(tmp_path / "b", none, weak, *many)
    for made in (alone, among):
        comparisons = made.data["comparisons"]
        assert [one["corrected_p"] for one in comparisons] == holm([one["p"] for one in comparisons])
    assert len(alone.data["comparisons"]) == 3 and len(among.data["comparisons"]) == 3 * (7 + 5)
    one, same = alone.data["comparisons"][0], among.data["comparisons"][0]
    assert one["p"] == same["p"] and one["corrected_p"] < same["corrected_p"]


def test_one_seed_shows_nothing(tmp_path: Path) -> None:
    made = reported(tmp_path, result("none", 0, seeds=1), result("expert", 0.2, 0.1, seeds=1))
    assert not made.verdicts[0].shown and "one pair has no interval" in made.verdicts[0].text


def test_fewer_seeds_pair_with_the_first_of_the_others_and_the_report_says_so(tmp_path: Path) -> None:
    model = result("llm:taught", 0.05, seeds=3, heard_gain=[0.1] * 3, heard_gain_share=[0.01] * 3, heard_episodes=8)
    made = reported(tmp_path, result("none", 0), model, unfinished=2)
    assert "3 paired seeds" in made.verdicts[0].text
    assert any("fewer seeds" in note for note in made.notes) and any("8 deals" in note for note in made.notes)
    assert "2 of 4 cells" in made.summary and made.data["complete"] is False
    cell = made.data["cells"][1]
    assert np.subtract(cell["final_heard"], cell["final_alone"]) == pytest.approx(0.01)


def test_a_game_without_a_ceiling_is_measured_by_its_reference_or_by_returns(tmp_path: Path) -> None:
    bare: dict[str, Any] = {"share": None, "heard_share": None}
    by_reference = reported(tmp_path / "a", result("none", 0, **bare, reference=8.0))
    assert by_reference.data["yardstick"] == "share of the reference player's return"
    first = by_reference.data["cells"][0]
    assert first["final_alone"] == pytest.approx([x[-1] / 8 for x in first["return"]])
    by_return = reported(tmp_path / "b", result("none", 0, **bare, reference=-1.0))
    assert by_return.data["yardstick"] == "return" and len(by_return.parts) == len(by_reference.parts) - 1


def test_all_cells_are_in_the_unit_of_the_report_even_at_a_return_of_0(tmp_path: Path) -> None:
    bare: dict[str, Any] = {"share": None, "heard_share": None}
    model: dict[str, Any] = {"heard_gain": [0.5] * SEEDS, "heard_gain_share": None, "heard_episodes": 8}
    still = bare | {"return": [[0.0, 0.0, 0.0]] * SEEDS}
    mixed = reported(
        tmp_path, result("none", 0, **bare, reference=8.0), result("llm:a", 0, **still, **model, reference=0)
    )
    assert mixed.data["yardstick"] == "return"
    none, llm = mixed.data["cells"]
    assert none["final_alone"] == [row[-1] for row in none["return"]]
    assert llm["final_heard"] == [0.5] * SEEDS


def test_steps_to_a_threshold_count_seeds_that_never_reach_it() -> None:
    curves = np.array([[0.5, 0.9, 0.8], [0.95, 0.9, 0.9], [0.1, 0.2, 0.3]])
    reached = steps_to(curves, [10, 20, 30], 0.9)
    assert reached == [20, 10, None] and median_steps(reached) == 20
    assert median_steps([10, None, None]) is None and median_steps([]) is None
