"""`kibitz judge`: mistakes are one sentence, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate", "--judge", "gut"], "There is no judge 'gut'; use llm:PRESET or classifier:FILE."),
        (["evaluate", "--judge", "llm:embedded", "--style", "calm"], "has no style 'calm'; choose one of versatile"),
        (["evaluate", "--judge", "classifier:x", "--prompt", "y"], "--prompt applies only to llm:PRESET"),
        (["evaluate", "--judge", "classifier:missing"], "missing is no classifier"),
        (["evaluate", "--judge", "llm:embedded", "--folder", "x", "--player", "random"], "--folder cannot be combined"),
        (["train", "--out", "."], ". exists; name another file"),
        (["styles", "--out", "runs", "--style", "calm"], "has no style 'calm'"),
    ],
)
def test_a_mistake_is_one_sentence(
    words: list[str], message: str, kibitz: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = kibitz("judge", *words, "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
