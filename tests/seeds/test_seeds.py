"""The seeds' own code and command lines run as they were written; only the imports differ."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from kibitz.live import LiveConfig, create_app
from kibitz.live.stream.schema import PAYLOADS
from tests.conftest import Finished
from tests.live.fake_cartesia import FakeCartesia
from tests.live.openenv_server import serving
from tests.llm.fake_server import FakeServer

ROOT = Path(__file__).resolve().parents[2]
PPO = "--algo ppo --hint llm --config configs/ppo_config.yaml"
REINFORCE = "--algo reinforce --hint none --config configs/reinforce_config.yaml"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server in this process, as the seed has it: the driver publishes to its own loopback address."""
    folder = tmp_path_factory.mktemp("seeds")
    config = LiveConfig(store=str(folder / "kibitz.db"), audio=folder / "cache" / "kibitz" / "audio", warm=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        with serving(create_app(config), lifespan="on") as url:
            yield url


@pytest.fixture
def seed(server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The seed's module, imported as a process that serves at this address would import it."""
    monkeypatch.setenv("CRICKET_LOCAL_BASE_URL", server)
    monkeypatch.delenv("CARTESIA_API_KEY", raising=False)
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    sys.modules.pop("tests.seeds.episode_runner", None)
    return importlib.import_module("tests.seeds.episode_runner")


SEED = ROOT.parent / "shared/seeds/004_249d8c4e10f707e6.txt"
SEED_SHA256 = "8a575a7cf14046a8e4282c4fbb707c64295cf8decf322617ca4a2ab7f476777a"  # of what `body_of` makes of it


def body_of(file: Path) -> str:
    """A module without its imports and without white space: the seed's text has lost its line breaks."""
    text = "".join(file.read_text(encoding="utf-8").split())
    _, begins, rest = text.partition('log=logging.getLogger("server.episode_runner")')
    return begins + rest


def test_only_the_imports_differ_from_the_seed() -> None:
    ours = body_of(Path(__file__).with_name("episode_runner.py"))
    assert hashlib.sha256(ours.encode()).hexdigest() == SEED_SHA256
    if SEED.is_file():  # the seeds are beside this checkout
        assert body_of(SEED) == ours


def events_of(server: str, episode_id: str) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in httpx.get(f"{server}/episodes/{episode_id}/events").text.splitlines()]
    assert [event["seq"] for event in events] == list(range(len(events)))
    for event in events:
        PAYLOADS[event["type"]].model_validate(event["payload"])
    return events


def decisions(events: list[dict[str, Any]], seat: int) -> list[dict[str, Any]]:
    return [e["payload"] for e in events if e["type"] == "decision" and e["payload"]["seat"] == seat]


def test_the_seeds_driver_records_both_seats_and_their_players(seed: Any, server: str) -> None:
    async def play() -> tuple[dict[str, Any], ...]:
        assert seed.is_running() is None
        running = asyncio.create_task(seed.run_episode_in_proc(None, "balanced", "aggressive", 1, enable_tts=False))
        await asyncio.sleep(0)
        current = seed.is_running()
        refused = await seed.run_episode_in_proc(None, "balanced", "heuristic", max_overs=1)
        return await running, current, refused

    played, current, refused = asyncio.run(play())
    assert (current["captain"], current["opponent"]) == ("balanced", "aggressive")
    assert refused == {"error": "an episode is already running", "current": current}
    events = events_of(server, played["episode_id"])
    last = events[-1]["payload"]
    assert events[-1]["type"] == "episode.ended" and last["steps"] == played["deliveries"]
    winner = last["frame"]["winner"]
    assert last["returns"] == ([0.5, 0.5] if winner == "tie" else [float(winner == 0), float(winner == 1)])
    assert len(decisions(events, 0)) == played["turns"] and {d["source"] for d in decisions(events, 0)} == {"balanced"}
    assert len(decisions(events, 1)) == played["deliveries"]
    assert {d["source"] for d in decisions(events, 1)} == {"aggressive"}
    assert not any(decision["fallback"] for decision in decisions(events, 0) + decisions(events, 1))
    assert httpx.get(f"{server}/episodes/{played['episode_id']}").json()["returns"] == last["returns"]


def test_the_seeds_driver_records_a_failing_model_as_the_fallback_that_played(seed: Any, server: str) -> None:
    played = asyncio.run(seed.run_episode_in_proc(None, "llm:groq", "nobody", max_overs=1))
    events = events_of(server, played["episode_id"])
    assert events[0]["payload"]["players"] == ["llm:groq", "heuristic"], "the seed's rule for an unknown opponent"
    made = decisions(events, 0)
    assert len(made) == played["turns"]
    assert {decision["source"] for decision in made} == {"fallback"}
    assert all("GROQ_API_KEY" in decision["fallback"] for decision in made)


def test_the_seeds_driver_speaks_through_cartesia(seed: Any, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cartesia = FakeCartesia()
    monkeypatch.setenv("CARTESIA_API_KEY", "sk-fake")
    monkeypatch.setenv("CARTESIA_BASE_URL", cartesia.url("good"))
    played = asyncio.run(seed.run_episode_in_proc(None, "balanced", "heuristic", max_overs=1))
    cartesia.stop()
    events = events_of(server, played["episode_id"])
    lines = [e["payload"] for e in events if e["type"] in ("commentary", "episode.ended")]
    assert events[-1]["payload"]["audio"], "the closing line is spoken, too"
    spoken = {line["audio"] for line in lines if line["audio"]}
    said = {request[3]["transcript"] for request in cartesia.requests}
    assert len(spoken) == len(said) > 5
    for url in spoken:
        sound = httpx.get(server + url, timeout=30)
        assert (sound.status_code, sound.headers["content-type"]) == (200, "audio/ogg")


@pytest.mark.conformance
@pytest.mark.parametrize("words", [PPO, REINFORCE])
def test_the_seeds_training_command_lines_run(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kibitz: Callable[..., Finished]
) -> None:
    """With the shipped configs, made smaller, and a local fake in place of Groq's servers."""
    name = words.split()[-1]
    config = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    config["train"] |= {"num_envs": 2, "rollout": 8, "minibatch": 8, "num_train_steps": 64}
    config["logging"] |= {"eval_episodes": 8, "tensorboard": False}
    (tmp_path / "configs").mkdir()
    (tmp_path / name).write_text(yaml.safe_dump(config), encoding="utf-8")
    groq = FakeServer()
    preset = {"provider": "openai", "base_url": groq.url, "model": "good", "key_env": "GROQ_API_KEY"}
    presets = tmp_path / "presets.yaml"
    presets.write_text(yaml.safe_dump({"presets": {"groq": preset}}), encoding="utf-8")
    monkeypatch.setenv("KIBITZ_LLM_PRESETS", str(presets))
    monkeypatch.setenv("GROQ_API_KEY", "gsk-fake")
    monkeypatch.chdir(tmp_path)
    done = kibitz("train", *words.split())
    groq.stop()
    assert done.returncode == 0, done.stderr
    [run] = (tmp_path / "runs").iterdir()
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    assert record["game"] == "deal_or_no_deal"
    assert bool(groq.requests) == ("llm" in words.split())
