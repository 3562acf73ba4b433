"""OpenEnv for a game that brings no environment of its own."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from kibitz.live.openenv import tasks
from kibitz.live.openenv.sessions import Sessions
from tests.live.openenv_server import app, serving
from tests.train import toy


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    toy.register()
    with serving(app(Sessions(), [toy.NAME], toy.NAME)) as base, httpx.Client(base_url=base, timeout=60) as client:
        yield client
    toy.unregister()


def test_a_foreign_game_is_played_described_and_listed(http: httpx.Client) -> None:
    begun = http.post("/reset", json={"seed": 1, "options": {"rounds": 2}})
    assert begun.status_code == 200, begun.text
    session = {"X-Session-Id": begun.headers["X-Session-Id"]}
    shown = begun.json()
    while not shown["done"]:
        action = {name: values[0] for name, values in shown["observation"]["legal"].items()}
        shown = http.post("/step", json={"action": action}, headers=session).json()
    assert http.get("/state", headers=session).json()["step_count"] == 2
    assert http.get("/metadata").json()["name"] == toy.NAME
    schemas = http.get("/openapi.json").json()["components"]["schemas"]
    assert "rounds" in schemas[f"ResetRequest_{toy.NAME}"]["properties"]
    assert set(schemas[f"StepRequest_{toy.NAME}"]["properties"]["action"]["properties"]) == set(action)
    listed = http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).json()["result"]["tools"]
    assert [tool["name"] for tool in listed] == ["new_episode", "look", "act"]


def test_a_foreign_games_tasks_are_seeds(http: httpx.Client) -> None:
    task = http.post(f"/{toy.NAME}/task", json={"split": "default", "index": 3}).json()["task"]
    assert task["options"] == {"seed": 3}
    by_task = http.post("/reset", json={"split": "default", "index": 3}).json()["observation"]
    assert by_task == http.post("/reset", json={"seed": 3}).json()["observation"]


def test_an_environment_that_cannot_play_packs_lists_no_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    toy.register()
    try:
        monkeypatch.setattr(tasks, "pack_names", lambda game: ("small",))
        assert tasks.splits(toy.NAME) == ("default",)
        assert tasks.task(toy.NAME, "default", 2)["options"] == {"seed": 2}
        assert tasks.splits("cricket") == ("small",)
    finally:
        toy.unregister()
