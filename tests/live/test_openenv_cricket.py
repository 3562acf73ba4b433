"""Cricket at the root, beside another game: matches, packs as splits, tools."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from kibitz.games import get_pack, pack_names
from kibitz.live.openenv.sessions import Sessions
from tests.live.openenv_server import NEGOTIATION, app, say, serving, talking, usual

CRICKET = "cricket"
SHORT = {"max_overs": 1, "opponent_mode": "random"}


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    with serving(app(Sessions(limit=16), [NEGOTIATION, CRICKET], CRICKET)) as address:
        yield address


def ball(observation: dict[str, Any]) -> dict[str, Any]:
    """The tool that plays a ball on the standing plan."""
    advancing = [tool["name"] for tool in observation["tools"] if tool["advances"]]
    return {"tool": advancing[0]}


def play(base: str, options: dict[str, Any], path: str = "/ws", act: Any = ball) -> list[Any]:
    """A whole episode: every observation, without the names that differ from run to run."""
    with talking(base, path) as connection:
        replies = [say(connection, "reset", options)["data"]]
        while not replies[-1]["done"]:
            replies.append(say(connection, "step", act(replies[-1]["observation"]))["data"])
    for reply in replies:
        reply["observation"].pop("episode_id", None)
        reply["observation"].pop("metadata", None)  # how long the opponent thought
    return replies


def test_a_match_is_played_over_a_socket_and_pays_by_its_result(base: str) -> None:
    last = play(base, {"seed": 1, **SHORT})[-1]
    assert last["reward"] in (0.0, 0.5, 1.0) and last["observation"]["scoreboard"]


def test_eight_concurrent_sessions_of_two_games_do_not_interfere(base: str) -> None:
    matches = [({"seed": seed, **SHORT}, "/ws", ball) for seed in range(4)]
    talks = [({"seed": seed}, f"/envs/{NEGOTIATION}/ws", usual) for seed in range(4)]
    both = matches + talks
    alone = [play(base, *what) for what in both]
    together = threading.Barrier(len(both))

    def meet(what: Any) -> list[Any]:
        together.wait(60)
        return play(base, *what)

    with ThreadPoolExecutor(len(both)) as pool:
        assert list(pool.map(meet, both)) == alone


def test_packs_are_splits_and_a_task_is_a_match_of_its_pack(base: str) -> None:
    with httpx.Client(base_url=base, timeout=60) as http:
        assert [split["name"] for split in http.get(f"/{CRICKET}/splits").json()] == list(pack_names(CRICKET))
        number = http.post(f"/{CRICKET}/num_tasks", json={"split": "chase"}).json()["num_tasks"]
        assert number == get_pack(CRICKET, "chase").matches
        task = http.post(f"/{CRICKET}/task", json={"split": "chase", "index": 3}).json()["task"]
        reply = http.post("/reset", json={"split": "chase", "index": 3})
        state = http.get("/state", headers={"X-Session-Id": reply.headers["X-Session-Id"]}).json()
        assert state["pack_match"] == 3 and reply.json()["observation"]["scoreboard"]["target"]
        assert task["options"].items() <= state["options"].items()


def test_mcp_offers_the_captains_tools_and_plays_a_ball(base: str) -> None:
    with httpx.Client(base_url=base, timeout=60) as http:
        ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        names = [tool["name"] for tool in http.post("/mcp", json=ask).json()["result"]["tools"]]
        assert {"analyze_situation", "play_delivery", "bowl_delivery"} <= set(names)
        begun = {"name": "new_episode", "arguments": {"options": {"seed": 1, "captain_side": "bat", **SHORT}}}
        first = http.post("/mcp", json={"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": begun})
        named = {"Mcp-Session-Id": first.headers["Mcp-Session-Id"]}
        played = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "play_delivery"}}
        result = http.post("/mcp", json=played, headers=named).json()["result"]
        assert result["structuredContent"]["turn"] == 1 and not result["isError"]
        wrong = {**played, "params": {"name": "bowl_delivery"}}
        assert http.post("/mcp", json=wrong, headers=named).json()["result"]["isError"]


@pytest.mark.parametrize(
    "options",
    [
        {"eval_pack_id": "/etc/hosts.yaml"},
        {"opponent_mode": "policy:../../etc"},
        {"opponent_mode": "human"},
        {"split": "nowhere", "index": 0},
        {"split": "default", "index": True},
        {"max_overs": 21},
    ],
)
def test_options_that_a_remote_caller_may_not_set_get_a_422(base: str, options: dict[str, Any]) -> None:
    reply = httpx.post(f"{base}/reset", json=options, timeout=60)
    assert reply.status_code == 422 and reply.json()["error"].endswith(".")
