"""What every test may lean on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"

# with every cache empty these files take longest: they begin, so that no core waits for another at the end
LONGEST = (
    "train/test_cricket", "live/test_security", "llm/test_embedded", "live/test_faults", "train/test_runs",
    "hints/test_training", "train/test_learning", "games/cricket/test_fuzz", "cli/test_demo", "train/test_curriculum",
    "train/test_checkpoints", "live/test_four", "conformance/test_sb3", "conformance/test_local_hf",
    "players/test_captains", "browser/test_anybody", "browser/test_watching", "evaluate/test_packs",
    "games/cricket/test_gym_env", "games/cricket/test_matches", "games/cricket/test_truth", "cli/test_commands",
    "live/test_load", "train/test_arithmetic",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first; within a file and among the others nothing moves."""
    places = {f"tests/{name}.py": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))


class ToldAtOnce:
    """A failure is told when it happens: a run that is ended from outside has still said what was wrong."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        screen = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and screen is not None:
            screen.ensure_newline()
            screen.write_line(f"FAILED {report.nodeid} ({report.when}, after {report.duration:.1f} s)", red=True)
            screen.write_line(report.longreprtext)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(ToldAtOnce(config))


@pytest.fixture(scope="session")
def selfplay() -> Path:
    """The published self-play contexts, where they lie beside the checkout."""
    path = SHARED / "deal_or_no_dialog" / "selfplay.txt"
    if not path.exists():
        pytest.skip("the published data is not beside this checkout")
    return path


@pytest.fixture
def kibitz() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command in a process of its own, as a user does."""

    def run(*words: str, given: str | None = None, timeout: float = 240) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "kibitz", *words],
            input=given,
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, "COLUMNS": "120"},
        )

    return run
