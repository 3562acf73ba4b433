"""openenv.yaml, the Dockerfile and the Space's header agree with the server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from kibitz.core.envs.tool_env import tools
from kibitz.games import game_names, get_environment, get_pack
from kibitz.live.openenv.mcp import COMMON
from tests.live.conftest import Serve

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a-long-enough-token"


def manifest() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "openenv.yaml").read_text(encoding="utf-8"))
    return loaded


def test_the_port_is_the_same_everywhere() -> None:
    header = yaml.safe_load((ROOT / "deploy/space/README.md").read_text(encoding="utf-8").split("---")[1])
    docker = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert (
        manifest()["port"]
        == manifest()["app_port"]
        == header["app_port"]
        == int(re.findall(r"^EXPOSE (\d+)$", docker, re.MULTILINE)[0])
    )
    assert f"KIBITZ_PORT={header['app_port']} " in docker and "KIBITZ_HOST=0.0.0.0 " in docker


def test_the_image_does_not_run_as_root() -> None:
    users = re.findall(r"^USER (\S+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert users and users[-1] not in ("root", "0")


def test_the_declared_tools_and_tasks_exist() -> None:
    declared = manifest()["validation"]["capabilities"]
    assert declared["declared_tools"] == [tool.name for tool in [*COMMON, *tools(get_environment("cricket"))]]
    for split, number in declared["declared_task_count"].items():
        assert get_pack("cricket", split).matches == number


def test_no_tool_uses_a_name_that_openenv_reserves() -> None:
    for game in game_names():
        names = [tool.name for tool in [*COMMON, *tools(get_environment(game))]]
        assert not {"reset", "step", "state", "close"} & set(names) and len(names) == len(set(names))


def test_without_the_token_a_caller_may_read_but_not_play(serve: Serve) -> None:
    served = serve("--no-warm", env={"KIBITZ_TOKEN": TOKEN})
    known = {"Authorization": f"Bearer {TOKEN}"}
    assert served.get("/health")["status"] == "healthy"
    assert served.get("/metadata")["name"] == "cricket"
    for path in ("/reset", "/mcp", "/envs/deal_or_no_deal/step"):
        assert httpx.post(served.url + path, json={}, timeout=30).status_code == 401
    address = served.url.replace("http", "ws", 1) + "/envs/deal_or_no_deal/ws"
    with pytest.raises(InvalidStatus, match="401"), connect(address):
        pass
    with connect(address, additional_headers=known) as connection:
        connection.send('{"type":"reset","data":{"seed":1}}')
        assert json.loads(connection.recv(60))["type"] == "observation"
    with (
        pytest.raises(InvalidStatus, match="403"),
        connect(address, additional_headers=known, origin="http://evil.example"),
    ):  # type: ignore[arg-type]
        pass
