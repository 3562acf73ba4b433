"""The toy game of the training tests, a tiny study of it, and a fake model server."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from tests.advice.conftest import embedded, fake
from tests.llm.fake_server import MODELS, CannedResponse, FakeServer, Request, obliging
from tests.train.conftest import command, toy_game

__all__ = ["command", "embedded", "fake", "toy_game"]

# 8 games x 4 steps: an update is 32 steps, an episode one update
TINY = [
    *("--game", "two_arms", "--seeds", "2", "--steps", "96"),
    *("--set", "train.num_envs=8", "--set", "train.rollout=4", "--set", "train.minibatch=16"),
    *("--set", "train.hidden=[8]", "--set", "train.lr=0.01"),
    *("--set", "logging.eval_every=32", "--set", "logging.save_every=32", "--set", "logging.eval_episodes=16"),
]
PRESET = {"provider": "openai", "model": "obliging", "structure": "schema", "price": {"prompt": 1.0, "completion": 2.0}}


def preset_file(folder: Path, server: FakeServer) -> Path:
    file = folder / "presets.yaml"
    limits = {"deadline": 600.0, "timeout": 600.0}  # callers kept waiting outlast a busy disk
    dead = PRESET | {"model": "always-500", "limits": limits | {"attempts": 1, "breaker_failures": 1000}}
    both = {"obliging": PRESET | {"limits": limits}, "dead": dead}
    both = {name: values | {"base_url": server.url, "key_env": "FAKE_KEY"} for name, values in both.items()}
    file.write_text(yaml.safe_dump({"presets": both}), encoding="utf-8")
    return file


class PaidModel:
    """The server's model `obliging`, which counts the questions that it receives."""

    def __init__(self) -> None:
        self.received = Counter[str]()
        self.gate = sys.maxsize  # after so many questions, later ones are not counted and wait without an answer
        self.seconds = 0.0  # until an answer

    def __call__(self, request: Request) -> CannedResponse:
        if self.received.total() >= self.gate:
            return CannedResponse("", wait=3600)
        self.received[request.body["messages"][-1]["content"]] += 1
        answer = obliging(request)
        answer.wait = self.seconds
        return answer


@pytest.fixture
def paid_model(tmp_path: Path, fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> PaidModel:
    monkeypatch.setenv("KIBITZ_LLM_PRESETS", str(preset_file(tmp_path, fake)))
    monkeypatch.setenv("FAKE_KEY", "sk-fake")
    model = PaidModel()
    monkeypatch.setitem(MODELS, "obliging", model)
    return model
