"""The code blocks of the documentation run, in the order of their page, in an empty folder."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import httpx
import pytest
import yaml

from kibitz.llm.providers import weights
from tests.blocks import LANGUAGES, Block, all_blocks
from tests.conftest import Finished

Command = Callable[..., Finished]
BLOCKS = all_blocks()
QUICK = {"environments.md", "games.md", "install.md"}  # the others compile more than a test of a second may
ELSEWHERE = {"python.md"}  # tests/test_notebook.py runs it
RUN = [name for name, blocks in BLOCKS.items() if any(not block.not_run for block in blocks) and name not in ELSEWHERE]
START_SECONDS = 120


class Server:
    """`kibitz serve` as a block starts it, on a free port."""

    def __init__(self, words: list[str], port: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kibitz", *words, "--port", str(port), "--no-warm"], stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            try:
                if httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.1)
        self.stop()
        raise AssertionError(f"the server did not answer within {START_SECONDS} seconds")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to run in, on the path of imports; modules that a page writes are forgotten again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if (tmp_path / f"{name}.py").exists():
            del sys.modules[name]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.parametrize(
    "page", [name if name in QUICK else pytest.param(name, marks=pytest.mark.conformance) for name in RUN]
)
def test_every_block_of_a_page_runs(page: str, kibitz: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(block.code for block in BLOCKS[page])
    ports = {port: free_port() for port in re.findall(r"127\.0\.0\.1(?:\"?[:,] ?)(\d+)", text)} | {"8000": free_port()}
    variables: dict[str, object] = {"__name__": "block"}
    servers: list[Server] = []
    try:
        for block in BLOCKS[page]:
            if block.not_run:
                continue
            if block.marks.get("needs") == "weights" and not weights.installed_path(weights.TAUGHT).is_file():
                pytest.skip("the weights of the embedded model are not installed; run `kibitz llm install`")
            if block.marks.get("needs") == "server":
                servers.append(Server(["serve"], ports["8000"]))
            code = re.sub(
                r"(127\.0\.0\.1(?:\"?[:,] ?))(\d+)", lambda found: found[1] + str(ports[found[2]]), block.code
            )
            block = block._replace(code=code)
            if block.file:
                (folder / block.file).write_text(code, encoding="utf-8")
            if block.language == "python":
                import_module(block.file.removesuffix(".py")) if block.file else exec(code, variables)
            elif block.language == "yaml":
                assert yaml.safe_load(code)
                if block.file == "llm_presets.yaml":
                    monkeypatch.setenv("KIBITZ_LLM_PRESETS", str(folder / block.file))
            elif block.language == "toml":
                assert tomllib.loads(code)
            elif not block.language:
                servers += shell(block, kibitz, ports["8000"])
    finally:
        for server in servers:
            server.stop()


def shell(block: Block, kibitz: Command, port: int) -> list[Server]:
    """Runs each line; returns the servers that it started."""
    servers = []
    for words in block.commands():
        assert words[0] == "kibitz", f"{block.where}: mark the block `<!-- not run: REASON -->`"
        if words[1] == "serve":
            servers.append(Server(words[1:], port))
        else:
            done = kibitz(*words[1:], typed=block.marks.get("typed", "").replace(",", "\n"))
            assert done.returncode == 0, f"{block.where}: {' '.join(words)}\n{done.stderr}"
    return servers


def test_blocks_that_no_test_runs_are_few_and_give_a_reason() -> None:
    left_out = [block for blocks in BLOCKS.values() for block in blocks if block.not_run]
    for block in left_out:
        print(f"{block.where}: {block.not_run}")
    assert len(left_out) <= 45
    for block in left_out:
        for path in re.findall(r"\btests/[\w./]*\w", block.not_run):
            assert os.path.exists(Path(__file__).parents[1] / path), f"{block.where} names {path}"


def test_every_block_has_a_language_that_a_test_knows() -> None:
    assert {block.language for blocks in BLOCKS.values() for block in blocks} <= LANGUAGES


def test_marks_are_read_and_shorten_commands() -> None:
    from tests.blocks import blocks_of

    text = "<!-- needs: weights -->\n<!-- run with: train: --steps 2; hints evaluate: --states 1 -->\n```\n"
    text += "kibitz train --out a   # long\n\nkibitz hints evaluate\nkibitz list games\n```\n"
    text += "<!-- not run: a GPU -->\n```\nx\n```\n"
    first, second = blocks_of("page.md", text)
    assert first.commands() == [
        ["kibitz", "train", "--out", "a", "--steps", "2"],
        ["kibitz", "hints", "evaluate", "--states", "1"],
        ["kibitz", "list", "games"],
    ]
    assert (first.line, first.marks["needs"], first.not_run, second.not_run) == (3, "weights", "", "a GPU")
