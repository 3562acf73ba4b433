"""Third-party suites. A missing package skips its test file, except on CI, where it fails."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

# import names of the packages in `kibitz[conformance]`
HEAVY = {"pettingzoo", "pyspiel", "stable_baselines3", "sb3_contrib", "torch"}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files that are deselected as a whole are not imported: torch alone takes seconds."""
    return True if config.getoption("markexpr") == "not conformance" else None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    error = report.call.excinfo.value.__cause__ if report.call and report.call.excinfo else None
    if not isinstance(error, ModuleNotFoundError) or (error.name or "").split(".")[0] not in HEAVY:
        return report
    reason = f"{error.name} is not installed: pip install 'kibitz[conformance]'"
    if os.environ.get("CI") == "true":
        report.longrepr = f"{reason}; this is a failure on CI (CI=true)."
    else:
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 1, f"Skipped: {reason}")
    return report
