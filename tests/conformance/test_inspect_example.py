"""The Inspect AI task plays whole episodes, with Inspect's own mock in place of a model."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conformance.test_hint_examples import example

pytestmark = [pytest.mark.conformance, pytest.mark.filterwarnings("ignore")]  # warnings of other packages
# Skipped by `make conformance`, on CI as well: Inspect AI and the lock need different versions of fsspec.
inspect_ai = pytest.importorskip("inspect_ai", reason="Inspect AI needs an environment of its own; run `make stacks`")


def test_an_inspect_task_scores_an_episodes_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tiktoken
    from inspect_ai.model import ModelOutput, get_model

    # Inspect counts tokens with tables that it would download
    words = SimpleNamespace(encode=lambda text, **more: text.split())
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: words)
    monkeypatch.setattr(tiktoken, "encoding_for_model", lambda name: words)

    def call(tool: str, **arguments: Any) -> ModelOutput:
        return ModelOutput.for_tool_call("mockllm/model", tool, arguments)

    said = [
        ModelOutput.from_content("mockllm/model", "I think about it first."),
        call("propose", books=99, hats=0, balls=0),  # illegal: the model is told so
        call("propose", books=0, hats=0, balls=0),
        call("agree"),
    ]
    model = get_model("mockllm/model", custom_outputs=said * 3)
    (log,) = inspect_ai.eval(
        example("inspect_task").negotiate(episodes=1), model=model, log_dir=str(tmp_path), display="none"
    )
    assert log.status == "success", log.error
    (sample,) = log.samples
    assert sample.scores["points"].value >= 0
    roles = [message.role for message in sample.messages]
    assert roles.count("tool") >= 2 and "Call one of the tools" in str([m.text for m in sample.messages])
