"""Two workers do what one process does, byte for byte, when they share its work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kibitz.core.errors import BadInput
from kibitz.core.work.executor import Executor, Here
from kibitz.core.work.processes import Processes
from kibitz.evaluate.match import evaluate
from kibitz.games import get_game
from kibitz.teach.examples.data import Lesson, write_rows

pytestmark = pytest.mark.conformance
GAME = get_game("deal_or_no_deal")
OPTIONS = GAME.default_options
CLOCK = ("seconds", "episodes_per_s")


def _everything(executor: Executor, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    measured = evaluate(GAME, OPTIONS, "heuristic", "heuristic", 300, executor=executor)
    found: dict[str, Any] = {"evaluate": {key: value for key, value in measured.items() if key not in CLOCK}}
    lesson = Lesson(expert="heuristic", opponents={"heuristic": 2.0, "random": 1.0})
    write_rows(folder / "rows", GAME, OPTIONS, lesson, 1500, executor=executor)
    return found | {"rows": (folder / "rows").read_bytes()}


def test_evaluations_and_rows_are_the_same_with_two_workers(tmp_path: Path) -> None:
    alone = _everything(Here(), tmp_path / "alone")
    with Processes(2, cores_each=1) as executor:  # fewer threads than this process has
        shared = _everything(executor, tmp_path / "shared")
        with pytest.raises(BadInput, match="omit --workers"):
            evaluate(GAME, OPTIONS, "random", "random", 2, out=tmp_path / "kept", executor=executor)
        with pytest.raises(BadInput, match="omit --workers"):
            write_rows(tmp_path / "no", GAME, OPTIONS, Lesson(stored="events.jsonl"), 1, executor=executor)
    assert alone.keys() == shared.keys()
    for name in alone:
        assert repr(alone[name]) == repr(shared[name]), name


def test_the_benchmark_of_workers_measures_speed_and_overhead(monkeypatch: pytest.MonkeyPatch) -> None:
    from kibitz.bench import work

    monkeypatch.setattr(work, "PLAYERS", ("random", "heuristic"))  # five processes compile them
    monkeypatch.setattr(work, "GAMES_PER_ITEM", 8)
    found = work.run(2, items=2, rounds=1)
    assert found["speedup"] > 0 and found["one_worker_all_cores_s"] > 0 and 0 < found["ms_per_empty_item_local"] < 1000
