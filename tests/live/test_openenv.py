"""The OpenEnv protocol of our server, over plain HTTP and sockets."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from kibitz.core.errors import BadInput
from kibitz.live.openenv.sessions import EnvSession, Sessions
from tests.live.openenv_server import NEGOTIATION, app, say, serving, talking, usual

SEEDS = range(8)


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    sessions = Sessions(limit=32)
    with serving(app(sessions, [NEGOTIATION], NEGOTIATION)) as address:
        yield address


@pytest.fixture
def http(base: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=base, timeout=60) as client:
        yield client


def play(base: str, seed: int, path: str = "/ws") -> list[Any]:
    """A whole episode: every reply."""
    with talking(base, path) as connection:
        replies = [say(connection, "reset", {"seed": seed})]
        while not replies[-1]["data"]["done"]:
            replies.append(say(connection, "step", usual(replies[-1]["data"]["observation"])))
        return replies


def test_the_six_endpoints_that_validators_check_exist(http: httpx.Client) -> None:
    assert http.get("/health").json()["status"] == "healthy"
    assert {"name", "description"} <= set(http.get("/metadata").json())
    assert {"action", "observation", "state"} <= set(http.get("/schema").json())
    described = http.get("/openapi.json").json()
    assert {"/reset", "/step", "/state", f"/envs/{NEGOTIATION}/reset"} <= set(described["paths"])
    action = described["components"]["schemas"][f"StepRequest_{NEGOTIATION}"]["properties"]["action"]
    assert action["properties"]["act_type"]["maximum"] == 4
    assert http.post("/mcp", json={}).json()["jsonrpc"] == "2.0"


def test_an_episode_over_a_socket_ends_with_a_result(base: str) -> None:
    replies = play(base, 1)
    last = replies[-1]["data"]
    assert {reply["type"] for reply in replies} == {"observation"}
    assert last["observation"]["result"]["payoffs"][0] == last["reward"]


def test_the_root_game_is_also_served_under_its_name(base: str) -> None:
    assert play(base, 2) == play(base, 2, f"/envs/{NEGOTIATION}/ws")


def test_eight_concurrent_sessions_do_not_interfere(base: str) -> None:
    alone = [play(base, seed) for seed in SEEDS]
    together = threading.Barrier(len(SEEDS))

    def meet(seed: int) -> list[Any]:
        together.wait(60)
        return play(base, seed)

    with ThreadPoolExecutor(len(SEEDS)) as pool:
        assert list(pool.map(meet, SEEDS)) == alone
    assert len({json.dumps(replies[0]) for replies in alone}) == len(SEEDS)


def test_plain_http_calls_keep_their_episode(base: str, http: httpx.Client) -> None:
    expected = play(base, 5)
    got = http.post("/reset", json={"seed": 5.0})  # JSON has one kind of number
    session = got.headers["X-Session-Id"]
    shown = [got.json()]
    while not shown[-1]["done"]:
        named: dict[str, Any] = {"headers": {"X-Session-Id": session}} if len(shown) % 2 else {}
        body = {"action": usual(shown[-1]["observation"])} | ({} if named else {"session_id": session})
        shown.append(http.post("/step", json=body, **named).json())
    assert [s["observation"] for s in shown] == [r["data"]["observation"] for r in expected]
    state = http.get("/state", params={"session_id": session}).json()
    assert state["step_count"] == len(shown) - 1 and state["done"]


def test_a_step_without_a_session_begins_one(http: httpx.Client) -> None:
    first = http.post("/step", json={"action": {"act_type": 0, "oA": [1, 1, 1]}})
    state = http.get("/state", headers={"X-Session-Id": first.headers["X-Session-Id"]}).json()
    assert first.status_code == 200 and state["step_count"] == 1
    assert http.get("/state").json() == {**http.get("/state").json(), "episode_id": None, "step_count": 0}


def test_the_caller_may_choose_the_episode_id(base: str) -> None:
    with talking(base) as connection:
        say(connection, "reset", {"seed": 1, "episode_id": "mine"})
        assert say(connection, "state")["data"]["episode_id"] == "mine"


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ("{", "INVALID_JSON"),
        ("[" * 100_000, "INVALID_JSON"),
        ("[1]", "VALIDATION_ERROR"),
        ('{"type":"dance"}', "UNKNOWN_TYPE"),
        ('{"type":"step","data":{"act_type":7}}', "VALIDATION_ERROR"),
        ('{"type":"step","data":{"act_type":true}}', "VALIDATION_ERROR"),
        ('{"type":"step","data":[]}', "VALIDATION_ERROR"),
        ('{"type":"reset","data":{"colour":"red"}}', "EXECUTION_ERROR"),
        ('{"type":"reset","data":{"use_dataset":true,"dataset_path":"/etc/passwd"}}', "EXECUTION_ERROR"),
        ('{"type":"reset","data":{"eval_pack_id":"../../x.yaml"}}', "EXECUTION_ERROR"),
        ('{"type":"reset","data":{"seed":-1}}', "EXECUTION_ERROR"),
        ('{"type":"reset","data":{"seed":false}}', "EXECUTION_ERROR"),
        ('{"type":"reset","data":{"opponent":"policy:../x"}}', "EXECUTION_ERROR"),
        ('{"type":"state","data":"' + "x" * 300_000 + '"}', "VALIDATION_ERROR"),
    ],
)
def test_an_invalid_message_gets_an_error_and_the_session_continues(base: str, sent: str, code: str) -> None:
    with talking(base) as connection:
        connection.send(sent)
        reply = json.loads(connection.recv(60))
        assert (reply["type"], reply["data"]["code"]) == ("error", code)
        assert say(connection, "reset", {"seed": 1})["type"] == "observation"


def test_an_invalid_http_call_gets_one_sentence(http: httpx.Client) -> None:
    wrong = [
        http.post("/reset", json={"seed": "x"}),
        http.post("/reset", json={"colour": "red"}),
        http.post("/step", json={"action": {"act_type": 9}}),
        http.post("/step", json={"action": {"act_type": 0}, "more": 1}),
        http.post("/step", content=b"{"),
        http.post("/step", content=b"\xff", headers={"Content-Type": "application/json"}),
        http.post("/reset", json={"episode_id": ""}),
        http.post(f"/{NEGOTIATION}/tasks", json={"split": "no"}),
        http.post("/reset", json={"max_turns": 3, "options": {"max_turns": 0}}),
    ]
    assert [reply.status_code for reply in wrong] == [422] * len(wrong)
    gone = [
        http.get("/state?session_id=x"),
        http.post("/reset", json={"opponent": "llm:nobody"}),
        http.post(f"/{NEGOTIATION}/task", json={"split": "default", "index": 10**9}),
    ]
    assert [reply.status_code for reply in gone] == [404] * len(gone)
    assert all(set(reply.json()) == {"error"} for reply in wrong + gone)


@pytest.mark.parametrize(
    "action",
    [
        {"act_type": 5},
        {"act_type": -1},
        {"act_type": 2**31},
        {"act_type": 2**32},
        {"act_type": 10**40},
        {"act_type": 0, "oA": [100, 0, 0]},
        {"act_type": 0, "oA": [0, -100, 0]},
        {"act_type": 2, "oA": [0, 0, 2**31]},
        {"act_type": 3, "oA": [0, 2**64, 0]},
        {"act_type": 0, "oA": [0, 0]},
    ],
)
def test_an_out_of_range_act_is_refused_and_changes_nothing(
    base: str, http: httpx.Client, action: dict[str, Any]
) -> None:
    named = {"X-Session-Id": http.post("/reset", json={"seed": 5}).headers["X-Session-Id"]}
    before = http.get("/state", headers=named).json()
    refused = http.post("/step", json={"action": action}, headers=named)
    assert (refused.status_code, list(refused.json())) == (422, ["error"])
    assert http.get("/state", headers=named).json() == before
    with talking(base) as connection:
        say(connection, "reset", {"seed": 5})
        before = say(connection, "state")
        reply = say(connection, "step", action)
        assert (reply["type"], reply["data"]["code"]) == ("error", "VALIDATION_ERROR")
        assert say(connection, "state") == before
        assert say(connection, "step", {"act_type": 0})["type"] == "observation"


def test_a_full_server_refuses_sessions_until_a_socket_closes() -> None:
    sessions = Sessions(limit=2)
    with serving(app(sessions, [NEGOTIATION], NEGOTIATION)) as base, talking(base) as first:
        say(first, "reset", {})
        with talking(base) as second:
            say(second, "reset", {})
            with talking(base) as third:
                refused = json.loads(third.recv(60))["data"]
                with pytest.raises(ConnectionClosed):
                    third.recv(60)
            assert (refused["code"], refused["active_sessions"], refused["max_sessions"]) == ("CAPACITY_REACHED", 2, 2)
            over_http = httpx.post(f"{base}/reset", json={}, timeout=30)
            assert (over_http.status_code, over_http.json()["code"]) == (429, "CAPACITY_REACHED")
            mcp = httpx.post(f"{base}/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "initialize"}, timeout=30)
            assert mcp.json()["error"]["data"]["code"] == "CAPACITY_REACHED"
        until(lambda: len(sessions) == 1)
        with talking(base) as again:
            assert say(again, "reset", {})["type"] == "observation"


def test_idle_sessions_are_closed() -> None:
    sessions = Sessions(limit=4, idle=1.0)
    with serving(app(sessions, [NEGOTIATION], NEGOTIATION)) as base:
        left = httpx.post(f"{base}/reset", json={}, timeout=60).headers["X-Session-Id"]
        with talking(base) as connection:
            say(connection, "reset", {})
            silent = json.loads(connection.recv(60))["data"]
        assert silent["code"] == "SESSION_ERROR"
        until(lambda: len(sessions) == 0)
        assert sessions.reaped == 1
        assert httpx.get(f"{base}/state?session_id={left}", timeout=30).status_code == 404


def test_the_longest_idle_session_gives_way_when_all_are_in_use() -> None:
    sessions = Sessions(limit=1, idle=600, grace=0.0)
    with serving(app(sessions, [NEGOTIATION], NEGOTIATION)) as base:
        first = httpx.post(f"{base}/reset", json={}, timeout=60).headers["X-Session-Id"]
        assert httpx.post(f"{base}/reset", json={}, timeout=60).status_code == 200
        assert httpx.get(f"{base}/state?session_id={first}", timeout=30).status_code == 404


def test_tasks_are_listed_and_played(base: str, http: httpx.Client) -> None:
    assert http.get("/list_environments").json() == [NEGOTIATION]
    assert http.get(f"/{NEGOTIATION}/splits").json() == [{"name": "default", "type": "test"}]
    number = http.post(f"/{NEGOTIATION}/num_tasks", json={"split": "default"}).json()["num_tasks"]
    assert len(http.post(f"/{NEGOTIATION}/tasks", json={"split": "default"}).json()["tasks"]) == number
    some = http.post(f"/{NEGOTIATION}/task_range", json={"split": "default", "start": 3, "stop": 5}).json()["tasks"]
    assert [task["index"] for task in some] == [3, 4]
    assert http.post(f"/{NEGOTIATION}/task", json={"split": "default", "index": 3}).json()["task"] == some[0]
    with talking(base) as connection:
        by_task = say(connection, "reset", {"split": "default", "index": 3})
        assert by_task == say(connection, "reset", {"options": some[0]["options"]})


def test_a_policy_is_looked_up_in_the_servers_runs_and_not_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "here" / "other").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    asked: list[str] = []

    def bot_of_run(path: str, game: Any) -> Any:
        asked.append(path)
        return game.bot("heuristic")

    monkeypatch.setattr("kibitz.train.opponents.bot_of_run", bot_of_run)
    for game, option in ((NEGOTIATION, "opponent"), ("cricket", "opponent_mode")):
        session = EnvSession(game, tmp_path / "runs")
        shown = session.reset({"seed": 1, option: "policy:mine"})
        assert asked.pop() == str(tmp_path / "runs" / "mine")
        assert str(tmp_path) not in json.dumps([shown, session.state()]), "callers never see a path"
        for name, word in (("policy:other", "no run"), ("policy:../here/other", "not the name of a run")):
            with pytest.raises(BadInput, match=word):
                session.reset({"seed": 1, option: name})
    assert not asked


def until(condition: Any) -> None:
    """Waits for a condition that another thread fulfils."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
