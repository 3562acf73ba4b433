"""Fixtures and settings for every test."""

from __future__ import annotations

import gc
import inspect
import io
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from xdist.scheduler import LoadScopeScheduling

from kibitz.cli import main

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"

# Hypothesis keeps its tables outside the checkout, which some tests read as a whole.
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(Path(tempfile.gettempdir()) / "kibitz-hypothesis"))
# A test run in the background inherits an ignored SIGINT, and so would every command that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
BUSY_SECONDS = 60.0  # that a request may take on a busy machine; httpx allows 5 unless told otherwise

# These files take longest with empty caches. They run first, so that all workers finish at about the same time. A
# worker gets its next file while its last two tests run, so a short file follows those that end with a long test.
SLOWEST_FIRST = (
    "browser", "games/deal_or_no_deal/test_env_vector", "train/test_cricket", "test_packaging", "train/test_arithmetic",
    "live/test_security", "llm/test_embedded", "train/test_learning", "test_blocks", "live/test_servers",
    "live/test_faults", "train/test_runs", "advice/test_training", "games/cricket/test_fuzz", "studies/test_tournament",
    "train/test_curriculum", "train/test_checkpoints", "live/test_stores_and_buses", "conformance/test_sb3",
    "teach/test_sft", "teach/test_grpo", "teach/test_environments", "conformance/test_bench",
    "conformance/test_workers", "test_notebook", "core/test_episode", "conformance/test_local_hf",
    "games/cricket/test_captains", "evaluate/test_packs", "games/cricket/test_gym_env", "games/cricket/test_matches",
    "games/cricket/test_realism", "cli/test_commands", "live/test_load",
)  # fmt: skip
# Files that one worker runs: it plays the episodes of the browser's tests once, and traces each environment once.
TOGETHER = ("tests/browser/", "tests/games/deal_or_no_deal/test_env", "tests/games/cricket/test_env")


class Spread(LoadScopeScheduling):
    """One file, or one group of files, at a time per worker."""

    def _split_scope(self, nodeid: str) -> str:
        return next((start for start in TOGETHER if nodeid.startswith(start)), nodeid.partition("::")[0])


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Spread:
    return Spread(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Moves slow files to the front; keeps the order within a file and among the others."""
    places = {f"tests/{name}": place for place, name in enumerate(SLOWEST_FIRST)}

    def place(item: pytest.Item) -> int:
        file = item.nodeid.partition("::")[0].removesuffix(".py")
        return min(places.get(file, len(places)), places.get(os.path.dirname(file), len(places)))

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Leaves modules and tests out of garbage collection, which would walk them again and again while JAX traces."""
    gc.collect()
    gc.freeze()


class Finished(NamedTuple):
    """A finished command, with the field names of `subprocess.CompletedProcess`."""

    returncode: int
    stdout: str
    stderr: str


class ImmediateFailures:
    """Prints a failure when it happens, so that an interrupted run has still reported it."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.ensure_newline()
            terminal.write_line(f"FAILED {report.nodeid} ({report.when}, after {report.duration:.1f} s)", red=True)
            terminal.write_line(report.longreprtext)


def pytest_configure(config: pytest.Config) -> None:
    if getattr(main := sys.modules["__main__"], "__file__", "") is None:  # in a worker of xdist; Ray expects a name
        del main.__file__
    os.fsync = lambda file: None  # tests end processes, not machines; a busy disk takes 30 ms to sync
    usual: httpx.Timeout = inspect.signature(httpx.get).parameters["timeout"].default
    usual.connect = usual.read = usual.write = usual.pool = BUSY_SECONDS
    with suppress(ImportError):  # part of the extra `live`
        from websockets.sync.client import connect

        connect.__kwdefaults__["open_timeout"] = BUSY_SECONDS
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(ImmediateFailures(config))


@pytest.fixture(scope="session")
def selfplay() -> Path:
    """The published self-play contexts; skips where they are not next to the checkout."""
    path = SHARED / "deal_or_no_dialog" / "selfplay.txt"
    if not path.exists():
        pytest.skip("the published data is not next to this checkout")
    return path


@pytest.fixture
def kibitz(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Finished]:
    """Runs the command through its entry point, in this process: exit code, standard output, standard error."""

    def run(*words: str, typed: str = "") -> Finished:
        monkeypatch.setattr(sys, "argv", ["kibitz", *words])
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        capsys.readouterr()  # drops what the test itself printed
        with pytest.raises(SystemExit) as exited:
            main()
        return Finished(int(exited.value.code or 0), *capsys.readouterr())

    return run
