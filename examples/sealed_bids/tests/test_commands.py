"""The installed game in every command of kibitz, and on its live page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

GAME = "sealed_bids"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("commands")


def kibitz(folder: Path, *arguments: str, stdin: str = "") -> Any:
    command = [sys.executable, "-m", "kibitz", *arguments, "--json"]
    done = subprocess.run(command, cwd=folder, input=stdin, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    kibitz(folder, "train", "--game", GAME, "--steps", "60000", "--hint", "expert", "--out", "runs/first")
    return folder / "runs" / "first"


@pytest.fixture(scope="module")
def server(folder: Path, run: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "kibitz", "serve", "--json", "--port", "0", "--pace", "0", "--no-warm"]
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["url"].rstrip("/")
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


def test_training_learns_to_beat_the_miser(folder: Path, run: Path) -> None:
    found = kibitz(folder, "evaluate", "--game", GAME, "--player", f"policy:{run}", "--opponent", "miser")
    assert found["return_mean"] > 5


def test_hints_are_scored(folder: Path) -> None:
    found = kibitz(folder, "hints", "evaluate", "--game", GAME, "--source", "random", "--states", "50")
    assert found["reference"] == "heuristic"


def test_a_person_plays_at_the_terminal(folder: Path) -> None:
    found = kibitz(folder, "play", "--game", GAME, "--seed", "1", stdin="3\n" * 5)
    assert found["players"] == ["human", "eager"]


def test_gymnasium_makes_it_by_its_generic_id() -> None:
    import gymnasium

    env = gymnasium.make("kibitz:Kibitz/SealedBids-v0", rounds=3)
    env.reset(seed=0)
    done = False
    while not done:
        _, _, done, _, info = env.step(env.action_space.sample())
    assert "items_won" in info


def test_an_episode_is_served_watched_and_stored(server: str) -> None:
    with httpx.Client(base_url=server, timeout=60) as http:
        assert GAME in http.get("/custom/presets").json()["games"]
        body = {"game": GAME, "players": ["policy:first", "eager"], "options": {"rounds": 3}}
        started = http.post("/custom/start_episode", json=body)
        assert started.status_code in (200, 202), started.text
        episode = started.json()["episode_id"]
        deadline = time.monotonic() + 120
        while http.get(f"/episodes/{episode}").json()["status"] == "running" and time.monotonic() < deadline:
            time.sleep(0.2)
        events = [json.loads(line) for line in http.get(f"/episodes/{episode}/events").text.splitlines()]
        assert [event["seq"] for event in events] == list(range(len(events)))
        steps = [event for event in events if event["type"] == "step"]
        assert len(steps) == 3
        assert events[-1]["type"] == "episode.ended"
        page = http.get(f"/e/{episode}", headers={"Accept": "text/html"})
        assert page.status_code == 200
        assert http.get(f"/static/games/{GAME}.js").status_code == 200


@pytest.mark.skipif("KIBITZ_TOKEN" in os.environ, reason="the server would ask for the token")
def test_agents_call_its_tools(server: str) -> None:
    with httpx.Client(base_url=server, timeout=60) as http:
        reset = http.post(f"/envs/{GAME}/reset", json={"seed": 1})
        assert reset.status_code == 200, reset.text
        session = {"X-Session-Id": reset.headers["X-Session-Id"]}
        stepped = http.post(f"/envs/{GAME}/step", json={"action": {"bid": 2}}, headers=session)
        assert stepped.status_code == 200, stepped.text
