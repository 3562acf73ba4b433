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
            [sys.executable, "-m", "kibitz.cli", *words],
            input=given,
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, "COLUMNS": "120"},
        )

    return run
