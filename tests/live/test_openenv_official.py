"""OpenEnv's validator and clients, and the official MCP client, against a running `kibitz serve`."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.live.conftest import Served
from tests.live.openenv_server import NEGOTIATION, usual
from tests.live.test_openenv_cricket import SHORT, ball

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.conformance, pytest.mark.filterwarnings("ignore")]  # warnings of other packages


@pytest.fixture(autouse=True)
def _needs_openenv() -> None:
    if find_spec("openenv") is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("openenv is not installed")


def validate(*words: str, folder: Path = ROOT) -> dict[str, Any]:
    command = [sys.executable, "-m", "openenv.cli", "validate", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_openenv_validates_the_folder(tmp_path: Path) -> None:
    """A copy: the validator fails a folder that changes meanwhile, and other tests write caches into this one."""
    folder = tmp_path / "kibitz"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "runs"))
    report = validate(".", folder=folder)
    assert [check["status"] for check in report["results"] if check["check_id"] == "static.manifest"] == ["pass"]
    assert not [check for check in report["results"] if check["status"] in ("fail", "error")]


def test_openenv_validates_a_running_server_at_the_root_and_for_each_game(served: Served) -> None:
    from openenv.cli._validation import validate_running_environment  # the command calls this for each URL

    reports = [validate("--url", served.url, "--timeout", "60")]
    reports += [
        validate_running_environment(served.url + path, timeout_s=60)
        for path in (f"/envs/{NEGOTIATION}", "/envs/cricket")
    ]
    for report in reports:
        assert report["passed"] and report["mode"] == "simulation"
        assert len(report["criteria"]) == 6 and all(criterion["passed"] for criterion in report["criteria"])


def play(url: str, options: dict[str, Any], act: Any) -> list[Any]:
    from openenv import GenericEnvClient

    with GenericEnvClient(base_url=url, message_timeout_s=600).sync() as env:
        seen = [env.reset(**options)]
        while not seen[-1].done:
            seen.append(env.step(act(seen[-1].observation)))
        assert env.state()["episode_id"]
        return [_plain(result) for result in seen]


def _plain(result: Any) -> Any:
    kept = {name: x for name, x in result.observation.items() if name not in ("episode_id", "metadata")}
    return kept, result.reward, result.done


EPISODES = [("", {"seed": seed, **SHORT}, ball) for seed in range(4)]
EPISODES += [(f"/envs/{NEGOTIATION}", {"seed": seed}, usual) for seed in range(4)]


def test_eight_official_clients_play_two_games_without_interfering(served: Served) -> None:
    from openenv import GenericEnvClient

    alone = [play(served.url + path, options, act) for path, options, act in EPISODES]
    ends = [episode[-1] for episode in alone]
    assert all(done for _, _, done in ends) and all(end[1] in (0.0, 0.5, 1.0) for end in ends[:4])

    async def one(path: str, options: dict[str, Any], act: Any) -> list[Any]:
        async with GenericEnvClient(base_url=served.url + path, message_timeout_s=600) as env:
            seen = [await env.reset(**options)]
            while not seen[-1].done:
                seen.append(await env.step(act(seen[-1].observation)))
            return [_plain(result) for result in seen]

    async def together() -> list[list[Any]]:
        return list(await asyncio.gather(*(one(*episode) for episode in EPISODES)))

    assert asyncio.run(together()) == alone


def test_openenvs_tool_client_lists_and_calls_tools_in_its_own_episode(served: Served) -> None:
    from openenv.core.mcp_client import MCPToolClient

    async def talk() -> tuple[list[str], Any]:
        async with MCPToolClient(base_url=f"{served.url}/envs/{NEGOTIATION}") as env:
            await env.reset(seed=3)
            names = [tool.name for tool in await env.list_tools()]
            return names, await env.call_tool("look")

    names, shown = asyncio.run(talk())
    assert "propose" in names and shown["structuredContent"]["counts"] == [4, 1, 2]


def test_the_official_mcp_client_plays_a_ball(served: Served) -> None:
    from mcp import ClientSession
    from mcp.client.streamable_http import streamablehttp_client

    async def talk() -> tuple[list[str], Any]:
        async with (
            streamablehttp_client(f"{served.url}/mcp") as (reader, writer, _),
            ClientSession(reader, writer) as session,
        ):
            await session.initialize()
            names = [tool.name for tool in (await session.list_tools()).tools]
            await session.call_tool("new_episode", {"options": {"seed": 1, "captain_side": "bat", **SHORT}})
            played = await session.call_tool("play_delivery", {})
            return names, played.structuredContent

    names, shown = asyncio.run(talk())
    assert "play_delivery" in names and shown["turn"] == 1


def test_the_client_learns_that_the_server_is_full() -> None:
    from openenv import GenericEnvClient

    from kibitz.live.openenv.sessions import Sessions
    from tests.live.openenv_server import app, serving

    with serving(app(Sessions(limit=1), [NEGOTIATION], NEGOTIATION)) as base, GenericEnvClient(base).sync() as env:
        env.reset(seed=1)
        with GenericEnvClient(base).sync() as other, pytest.raises(RuntimeError, match="CAPACITY_REACHED"):
            other.reset(seed=1)
