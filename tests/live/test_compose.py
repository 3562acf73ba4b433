"""deploy/compose.yaml names what exists; test_servers.py runs its servers, databases and proxy as processes."""

from __future__ import annotations

import re
import tomllib
from urllib.parse import urlsplit

import typer

from kibitz.cli import app
from kibitz.live.config import LiveConfig
from tests.conftest import ROOT
from tests.live.compose import compose, server_options

VALUES = {"POSTGRES_PASSWORD": "secret", "KIBITZ_TOKEN": "a-token-of-ours"}
FOLDER = ROOT / "deploy"
PROXY = (FOLDER / "nginx.conf").read_text(encoding="utf-8")
IMAGE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_every_server_runs_a_command_and_options_that_exist() -> None:
    commands = typer.main.get_command(app)
    for name in ("kibitz-1", "kibitz-2"):
        words = compose(VALUES)["services"][name]["command"]
        assert words[0] == "kibitz"
        group = commands.make_context("kibitz", words[1:])
        _, command, rest = commands.resolve_command(group, [*group._protected_args, *group.args])  # type: ignore[attr-defined]
        given = command.make_context(words[1], list(rest), parent=group).params  # refuses unknown options
        assert (given["trusted_proxies"], given["max_episodes"], given["host"]) == (1, 8, "0.0.0.0")


def test_servers_proxy_and_databases_find_each_other() -> None:
    services, options = compose(VALUES)["services"], server_options(VALUES)
    store, bus = urlsplit(options["--store"]), urlsplit(options["--bus"])
    database = services["postgres"]["environment"]
    assert (store.hostname, bus.hostname) == ("postgres", "redis") and {"postgres", "redis"} <= services.keys()
    made = (database["POSTGRES_USER"], database["POSTGRES_PASSWORD"], "/" + database["POSTGRES_DB"])
    assert (store.username, store.password, store.path) == made
    servers = {name for name in services if name.startswith("kibitz-")}
    port = re.findall(r"KIBITZ_PORT=(\d+)", IMAGE)[0]
    assert set(re.findall(r"server (kibitz-\d+):(\d+)", PROXY)) == {(name, port) for name in servers}
    assert services["proxy"]["ports"] == [
        f"{listening}:{listening}" for listening in re.findall(r"listen (\d+)", PROXY)
    ]
    assert set(services["proxy"]["depends_on"]) == servers
    for name in servers:
        assert f"127.0.0.1:{port}/ready" in services[name]["healthcheck"]["test"][-1]
        for other, wanted in services[name]["depends_on"].items():
            assert wanted == {"condition": "service_healthy"} and "healthcheck" in services[other]


def test_files_volumes_extras_and_times_are_consistent() -> None:
    whole = compose(VALUES)
    services, options = whole["services"], server_options(VALUES)
    named = [volume for one in services.values() for volume in one.get("volumes", [])]
    for volume in named:
        source = volume.split(":")[0]
        assert (FOLDER / source).exists() if source.startswith(".") else source in whole["volumes"], volume
    server = services["kibitz-1"]
    assert float(server["stop_grace_period"].removesuffix("s")) > float(options["--drain"])
    assert (FOLDER / server["build"]["context"] / "Dockerfile").exists()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(server["build"]["args"]["EXTRAS"].split(",")) <= extras.keys() and "ARG EXTRAS" in IMAGE
    assert LiveConfig.from_environment(server["environment"]) == LiveConfig(token=VALUES["KIBITZ_TOKEN"])
