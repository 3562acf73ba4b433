"""What blocks of the documentation need besides kibitz: fixtures, each with a value for their marks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kibitz.llm.providers import weights as files
from tests.conftest import Finished
from tests.live.conftest import postgres, redis
from tests.live.machines import Postgres, Redis
from tests.llm.fake_server import FakeServer
from tests.teach.conftest import one_thread

__all__ = [
    "bus", "chases", "database", "kept", "model", "one_thread", "played", "postgres", "redis", "rehearsal", "short",
    "tiny", "trained", "weights",
]  # fmt: skip
SHORT = (
    "--steps 512 --set logging.eval_episodes=32 --set train.num_envs=16 --set train.rollout=16 --set train.minibatch=64"
)


@pytest.fixture
def weights() -> None:
    if not files.installed_path(files.TAUGHT).is_file():
        pytest.skip("the weights of the embedded model are not installed; run `kibitz llm install`")


@pytest.fixture
def chases(tmp_path: Path) -> Path:
    path = tmp_path / "states.csv"
    path.write_text(
        "balls_left,runs_needed,wickets_left,first_innings_total\n60,80,8,170\n6,9,3,160\n", encoding="utf-8"
    )
    return path


@pytest.fixture
def short() -> str:
    """Options of a training that takes seconds."""
    return SHORT


@pytest.fixture
def trained(kibitz: Callable[..., Finished], tmp_path: Path) -> Path:
    """The folder of a short run."""
    done = kibitz("train", "--out", str(tmp_path / "trained"), *SHORT.split())
    assert done.returncode == 0, done.stderr
    return tmp_path / "trained"


@pytest.fixture
def kept(kibitz: Callable[..., Finished], tmp_path: Path) -> Path:
    """The folder of an evaluation."""
    done = kibitz("evaluate", "--player", "heuristic", "--episodes", "4", "--out", str(tmp_path / "kept"))
    assert done.returncode == 0, done.stderr
    return tmp_path / "kept"


@pytest.fixture
def tiny(tmp_path: Path, one_thread: None) -> Path:
    """The folder of a language model of transformers with two small layers."""
    from tests.teach.models import tiny_model

    return tiny_model(tmp_path / "tiny")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server that speaks the OpenAI protocol; the preset `groq` leads there."""
    fake = FakeServer()
    preset: dict[str, Any] = {"provider": "openai", "base_url": fake.url, "model": "obliging", "structure": "schema"}
    preset |= {"price": {"prompt": 0.075, "completion": 0.3}}
    path = tmp_path / "presets.yaml"
    path.write_text(yaml.safe_dump({"presets": {"groq": preset}}), encoding="utf-8")
    monkeypatch.setenv("KIBITZ_LLM_PRESETS", str(path))
    yield fake.url
    fake.stop()


@pytest.fixture
def database(postgres: Postgres) -> str:
    """The address of an empty PostgreSQL database."""
    return postgres.fresh()


@pytest.fixture
def rehearsal(postgres: Postgres) -> str:
    """Another one."""
    return postgres.fresh()


@pytest.fixture
def bus(redis: Redis) -> str:
    """The address of a Redis server."""
    return redis.url


@pytest.fixture
def played(tmp_path: Path) -> Path:
    """A file of events in which a bot negotiates under the name of a person."""
    from kibitz.live.episodes.prepare import Limits, prepare
    from kibitz.live.episodes.request import EpisodeRequest
    from kibitz.live.episodes.timeouts import StopSignal

    lines = []
    for seed in range(4):
        request = EpisodeRequest.read(game="deal_or_no_deal", players=["bayes", "heuristic"], seed=seed)
        episode = prepare(request, Limits(), StopSignal()).play().events
        lines += [event.as_json().replace('"bayes"', '"human"') for event in episode]
    path = tmp_path / "played.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
