"""Games as TRL's environments: tools with schemas, an episode's return as the reward, here or on a server."""

from __future__ import annotations

import importlib.util
import inspect
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from kibitz.core.errors import BadInput
from kibitz.games import game_names
from kibitz.teach.environments import environment_factory, openenv_factory
from kibitz.teach.libraries import load_model
from tests.advice.conftest import embedded
from tests.conftest import ROOT
from tests.live.conftest import Serve, serve
from tests.train import toy

__all__ = ["embedded", "serve"]


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    toy.register()
    yield
    toy.unregister()


def public(environment: Any) -> list[str]:
    return [name for name, _ in inspect.getmembers(type(environment), inspect.isfunction) if not name.startswith("_")]


def test_tools_play_and_the_return_is_the_reward() -> None:
    environment = environment_factory(toy.NAME, rounds=2)()
    assert public(environment) == ["act", "get_reward", "reset"]
    shown = json.loads(environment.reset(prompt="ignored", seed=3, opponent="heuristic"))
    assert "lucky" in shown["text"] and environment.get_reward() == 0
    earned = 0.0
    for _ in range(2):
        lucky = int(shown["text"].split("lucky ")[1][0])
        shown = json.loads(environment.act(arm=lucky, stake=0))
        earned = environment.get_reward()
    assert shown["done"] and earned > 0
    assert environment.act(arm=0, stake=0) == "The episode is over." and environment.get_reward() == earned
    environment.reset(seed=3)
    assert environment.get_reward() == 0


def test_a_wrong_call_is_an_answer_that_the_model_can_read() -> None:
    environment = environment_factory(toy.NAME)()
    environment.reset(seed=0)
    assert environment.act(arm="left").startswith("Error: ")
    assert "illegal" in json.loads(environment.act(arm=7, stake=0))["error"]


def test_a_server_that_stops_ends_the_training_and_is_no_mistake_of_the_model() -> None:
    """Otherwise the episode would go on with a reward of 0."""
    listed = {"name": "act", "description": "Act.", "inputSchema": {"properties": {"arm": {"type": "integer"}}}}
    results = [{"tools": [listed]}, {"structuredContent": {"text": "Go.", "done": False}}]

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = json.dumps({"result": results.pop(0)}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=lambda: [server.handle_request() for _ in range(2)])
        thread.start()
        environment = openenv_factory(f"http://127.0.0.1:{server.server_port}")()
        assert "Go." in environment.reset(seed=0)
        thread.join()
    with pytest.raises(BadInput, match="cannot be reached"):
        environment.act(arm=0)


@pytest.mark.conformance
@pytest.mark.parametrize("game", [name for name in game_names() if name != toy.NAME])
def test_every_game_has_tools_whose_schemas_transformers_can_write(game: str) -> None:
    from transformers.utils import get_json_schema

    environment = environment_factory(game)()
    for name in set(public(environment)) - {"reset", "get_reward"}:
        schema = get_json_schema(getattr(environment, name))["function"]
        assert schema["name"] == name and schema["description"]
        described = schema["parameters"]["properties"].values()
        assert all(one["description"] and one["type"] in ("integer", "string", "array") for one in described)


@pytest.mark.conformance
def test_a_server_gives_the_same_episode(serve: Serve) -> None:
    url = serve("--no-warm").url
    here = environment_factory("deal_or_no_deal")()
    there = openenv_factory(url, "deal_or_no_deal")()
    assert public(here) == public(there)
    assert here.reset(seed=1) == there.reset(seed=1)
    assert there.propose(books="many", hats=0, balls=0).startswith("Error: ")
    for environment in (here, there):
        environment.agree()
    assert here.get_reward() == there.get_reward() > 0
    with pytest.raises(BadInput, match="name an OpenEnv server that has this game"):
        openenv_factory(url, "no_such_game")
    with pytest.raises(BadInput, match="cannot be reached"):
        openenv_factory("http://127.0.0.1:1")


@pytest.mark.conformance
@pytest.mark.usefixtures("embedded", "one_thread")
def test_trl_trains_smollm2_on_a_game(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With six of its thirty layers and the smallest game: a whole step of the whole model takes minutes on a CPU."""
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    spec = importlib.util.spec_from_file_location("trl_grpo", ROOT / "examples" / "trl_grpo.py")
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)

    def first_layers(base: str, dtype: Any) -> Any:
        model = load_model(base, dtype)
        model.model.layers = model.model.layers[:6]
        model.config.num_hidden_layers = 6
        return model

    monkeypatch.setattr(example, "load_model", first_layers)
    given = ["--game", toy.NAME, "--steps", "2", "--group", "2", "--tokens", "8", "--out", str(tmp_path)]
    trainer = example.main(given)
    assert trainer.state.global_step == 2
    assert "rewards/TwoArmsTools/mean" in trainer.state.log_history[0]
