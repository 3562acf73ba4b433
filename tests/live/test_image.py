"""The Dockerfile's steps, carried out without a container engine: copy, install, set variables, run, check health."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.machines import wait_until

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "at-least-8-characters"


def instructions() -> list[tuple[str, str]]:
    """Each instruction and its arguments, with continued lines joined."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines]


def of_kind(name: str) -> list[str]:
    return [rest for kind, rest in instructions() if kind == name]


def test_the_image_has_what_several_servers_need() -> None:
    (installs,) = [step for step in of_kind("RUN") if step.startswith("pip install")]
    (extras,) = [step.removeprefix("EXTRAS=") for step in of_kind("ARG") if step.startswith("EXTRAS=")]
    assert {"live", "scale"} <= set(extras.split(",")) and ".[${EXTRAS}]" in installs
    assert "--constraint requirements.lock" in installs
    variables = dict(word.partition("=")[::2] for step in of_kind("ENV") for word in shlex.split(step))
    assert variables["KIBITZ_HOST"] == "0.0.0.0"
    assert json.loads(of_kind("CMD")[0]) == ["kibitz", "serve"]


@pytest.mark.conformance  # builds and installs the package
def test_the_images_steps_lead_to_a_server_that_answers_its_health_check(tmp_path: Path) -> None:
    work, home, packages = tmp_path / "app", tmp_path / "home", tmp_path / "packages"
    work.mkdir()
    for step in of_kind("COPY"):
        *sources, target = [word for word in shlex.split(step) if not word.startswith("--")]
        for source in [path for name in sources for path in sorted(ROOT.glob(name))]:
            place = work / target
            if source.is_dir():
                shutil.copytree(source, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, place)
    # the wheel's dependencies are those of this environment: nothing is downloaded here
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*install, "--target", str(packages), "."], cwd=work, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (packages / "kibitz" / "configs" / "ppo_fast.yaml").is_file()
    variables = dict(word.partition("=")[::2] for step in of_kind("ENV") for word in shlex.split(step))
    environment = {**os.environ, **{name: text.replace("/home/user", str(home)) for name, text in variables.items()}}
    with socket.socket() as free:  # port 8000 may be taken here
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment |= {
        "KIBITZ_PORT": str(port),
        "KIBITZ_TOKEN": TOKEN,
        "PYTHONPATH": str(packages),
        "PATH": os.environ["PATH"],
    }
    (home / "data").mkdir(parents=True)
    program, *words = json.loads(of_kind("CMD")[0])
    assert program == "kibitz"
    command = [sys.executable, "-m", "kibitz", *words]
    unsafe = subprocess.run(command, cwd=home, env={**environment, "KIBITZ_TOKEN": ""}, capture_output=True, text=True)
    assert unsafe.returncode == 2 and "give a --token" in unsafe.stderr
    check = json.loads(of_kind("HEALTHCHECK")[0].partition("CMD ")[2])
    with subprocess.Popen(command, cwd=home, env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None and f":{port}/" in server.stdout.readline()
            wait_until(lambda: subprocess.run([sys.executable, *check[1:]], env=environment).returncode == 0)
            assert (home / "data" / "kibitz.db").is_file()
        finally:
            server.terminate()
        assert server.wait(60) == 0
