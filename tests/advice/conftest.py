"""Presets of the fake server in a user's own file, and the embedded model where it is installed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from kibitz.core.errors import BadInput
from kibitz.llm.providers import weights
from tests.llm.fake_server import MODELS, FakeServer

QUICK = {"deadline": 60.0, "timeout": 30.0, "attempts": 2, "backoff": 0.01, "breaker_failures": 1000}
KEY = "sk-very-secret-0123456789"


@pytest.fixture(scope="session")
def fake() -> Iterator[FakeServer]:
    server = FakeServer()
    yield server
    server.stop()


@pytest.fixture
def presets(fake: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    """Every model of the fake server is the preset `fake-MODEL`, with a key in the environment."""
    base = {"provider": "openai", "base_url": fake.url, "key_env": "FAKE_KEY", "limits": QUICK}
    base |= {"price": {"prompt": 1.0, "completion": 2.0}}
    own = {f"fake-{model}": {**base, "model": model} for model in MODELS}
    own["refused"] = {**base, "model": "good", "base_url": "http://127.0.0.1:9/v1"}
    own["keyless"] = {**base, "model": "good", "key_env": "NO_SUCH_KEY"}
    file = tmp_path / "presets.yaml"
    file.write_text(yaml.safe_dump({"presets": own}), encoding="utf-8")
    monkeypatch.setenv("KIBITZ_LLM_PRESETS", str(file))
    monkeypatch.setenv("FAKE_KEY", KEY)
    fake.requests.clear()
    fake.counts.clear()
    return fake


@pytest.fixture(scope="session")
def embedded() -> None:
    """Installs the model; skips the test where that is impossible, but fails in CI."""
    try:
        weights.install(say=lambda line: None)
    except BadInput as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"the embedded model cannot be installed: {error}")


Prompts = Callable[[], list[str]]


@pytest.fixture
def prompts(presets: FakeServer) -> Prompts:
    """What the server was asked so far."""
    return lambda: [request.body["messages"][-1]["content"] for request in presets.requests]
