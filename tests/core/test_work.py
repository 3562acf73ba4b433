"""Executors: the same results anywhere, a lost worker's items again, and no process left behind."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kibitz.core.errors import BadInput
from kibitz.core.registry import load_game
from kibitz.core.system.logs import log_once
from kibitz.core.work.executor import Here, Item, Work, executor_for
from kibitz.core.work.parts import game_spec, spec_game
from kibitz.core.work.processes import Processes
from tests.conftest import ROOT
from tests.core.work_items import WORK, core_limit, items, prepare, square


def test_the_name_of_an_item_says_what_it_computes() -> None:
    one, same, other = Item({"x": 1, "y": 2}), Item({"y": 2, "x": 1}, lambda: {"finished": []}), Item({"x": 2, "y": 2})
    assert one.name(WORK) == same.name(WORK) != other.name(WORK)
    assert one.name(WORK) != one.name(Work(prepare, square, {"base": 101}))


def test_processes_compute_what_one_process_computes_and_keep_running_after_an_error(tmp_path: Path) -> None:
    expected = {x: 100 + x * x for x in range(9)}
    assert {item.arguments["x"]: value for item, value in Here().run(WORK, items(9))} == expected
    told, pids = [], set()

    def report(item: Item, said: dict[str, int]) -> None:
        told.append((item.arguments["x"], said["x"]))
        pids.add(said["pid"])

    with Processes(2) as pool:
        found = pool.run(WORK, items(9, tells=1), report)
        assert {item.arguments["x"]: value for item, value in found} == expected
        assert sorted(told) == [(x, x) for x in range(9)]
        with pytest.raises(BadInput, match="cannot be squared") as raised:
            list(pool.run(WORK, items(3, raises=1)))
        assert "work_items.py" in raised.value.__notes__[0], "where it happened in the worker"
        dying = [Item({"x": x, "die_unless": str(tmp_path / str(x))}) for x in range(3)]
        assert sorted(value for _, value in pool.run(WORK, dying)) == [100, 101, 104]
        for _ in pool.run(WORK, [*items(1), *items(4, waits=1)]):
            break  # leaving early stops the items that wait ten minutes
    assert len(pids) == 2 and not any(map(_running, pids))


def test_workers_share_the_cores_unless_they_train_or_the_user_has_set_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NPROC", raising=False)
    monkeypatch.delenv("PJRT_NPROC", raising=False)
    monkeypatch.setattr("kibitz.core.work.processes.usable_cores", lambda: 6)
    playing, training = (Work(prepare, core_limit, {"base": 0}, trains=trains) for trains in (False, True))
    with Processes(2) as pool:
        assert [value for _, value in pool.run(playing, items(1))] == ["3"]
        assert [value for _, value in pool.run(training, items(1))] == [None]
    monkeypatch.setenv("NPROC", "5")
    with Processes(2) as pool:
        assert [value for _, value in pool.run(playing, items(1))] == [None], "XLA reads NPROC only without PJRT_NPROC"
    assert "PJRT_NPROC" not in os.environ, "this process keeps all cores"


def test_an_item_that_always_kills_its_worker_ends_the_run_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    log_once.cache_clear()
    with (
        caplog.at_level(logging.WARNING),
        Processes(2) as pool,
        pytest.raises(BadInput, match="lost its worker 3 times"),
    ):
        list(pool.run(WORK, items(2, always_dies=1)))
    assert len(caplog.records) == 1 and "exit code -9" in caplog.text


@pytest.mark.parametrize("way", ["standard input", "a script without a guard"])
def test_workers_do_not_need_the_program_that_started_them(way: str, tmp_path: Path) -> None:
    script = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from kibitz.core.work.parts import game_spec, spec_game
from kibitz.core.work.processes import Processes
from tests.core.work_items import WORK, items

with Processes(2) as pool:
    print(sorted(value for _, value in pool.run(WORK, items(3))))
"""
    path = tmp_path / "script.py"
    path.write_text(script, encoding="utf-8")
    words, typed = ([sys.executable], script) if way == "standard input" else ([sys.executable, str(path)], "")
    done = subprocess.run(words, input=typed, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[100, 101, 104]\n", "")


def test_workers_import_as_the_program_that_started_them_does(tmp_path: Path) -> None:
    """Not from the current folder, unless that program does; Python ignores entries that are not strings."""
    (tmp_path / "json.py").write_text("raise ImportError('not the one of Python')", encoding="utf-8")
    script = f"""
import pathlib, sys
sys.path[:0] = [pathlib.Path("other"), {str(ROOT)!r}]
from kibitz.core.work.parts import game_spec, spec_game
from kibitz.core.work.processes import Processes
from tests.core.work_items import WORK, items

with Processes(1) as pool:
    print([value for _, value in pool.run(WORK, items(1))])
"""
    words = [sys.executable, "-P", "-c", script]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[100]\n", "")


def test_ctrl_c_does_not_reach_a_worker_even_while_python_starts_it(tmp_path: Path) -> None:
    early = "import os, signal\nif 'EARLY' in os.environ: os.kill(os.getpid(), signal.SIGINT)"
    (tmp_path / "sitecustomize.py").write_text(early, encoding="utf-8")
    script = """
import os
from kibitz.core.work.processes import Processes
from tests.core.work_items import WORK, items

os.environ["EARLY"] = "1"
with Processes(1) as pool:
    print([value for _, value in pool.run(WORK, items(1))])
"""
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[100]\n", "")


def test_workers_end_when_the_process_that_started_them_is_killed() -> None:
    words = [sys.executable, "-m", "tests.core.work_items"]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        workers = [int(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGKILL)
    _wait_for_end(workers)


def test_a_worker_that_reports_while_its_parent_dies_still_saves_its_work(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.core.work_items", str(tmp_path / "saved")]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        worker = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        _wait_for_end([worker])
        assert "BrokenPipe" not in process.stderr.read()
    assert (tmp_path / "saved").exists()


def _wait_for_end(workers: list[int]) -> None:
    late = time.monotonic() + 60
    while any(map(_running, workers)):
        assert time.monotonic() < late, "a worker outlived its parent"
        time.sleep(0.01)


def _running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").split()[2] != "Z"
    except OSError:
        return False


def test_wrong_numbers_of_workers_are_refused_and_one_worker_is_this_process() -> None:
    assert isinstance(executor_for(), Here) and isinstance(executor_for(1), Here)
    with pytest.raises(BadInput, match="between 1 and 256"):
        executor_for(0)
    with pytest.raises(BadInput, match="cannot be combined"):
        executor_for(2, "local")


def test_a_worker_finds_the_same_game_again_and_refuses_another_version_of_it() -> None:
    game, options = load_game("cricket"), load_game("cricket").options(max_overs=3)
    assert spec_game(json.loads(json.dumps(game_spec(game, options)))) == (game, options)
    with pytest.raises(BadInput, match="has version 1 of cricket, not 99; install one kibitz everywhere"):
        spec_game(game_spec(game) | {"game_version": 99})
