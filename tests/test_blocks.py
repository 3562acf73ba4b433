"""The code blocks of the documentation run, in the order of their page, in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from glob import glob
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
import yaml

from kibitz.bench import cricket as bench_cricket
from kibitz.cli import app
from kibitz.core import registry
from kibitz.core.play.resolve import ANY_PATH
from kibitz.games import get_game
from tests.block_needs import *  # noqa: F403
from tests.blocks import LANGUAGES, ROOT, all_blocks
from tests.conftest import Finished
from tests.live.machines import free_port

Command = Callable[..., Finished]
BLOCKS = all_blocks()
QUICK = {"environments.md", "install.md"}  # the others compile more than a test of a second may
RUN = [name for name, blocks in BLOCKS.items() if any(not block.not_run for block in blocks)]
START_SECONDS = 120
ADDRESS = r"(?<=127\.0\.0\.1)\"?[:,] ?(\d+)"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


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
    """An empty folder to run in, on the path of imports; modules and games that a page adds are forgotten again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(bench_cricket, "REPEATS", 1)  # of five, and each takes seconds without optimisation
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    registry.registered.cache_clear()


def elsewhere(code: str, ports: dict[str, int]) -> str:
    """The code with free ports instead of those that the page names."""
    return re.sub(ADDRESS, lambda at: at[0].replace(at[1], str(ports.get(at[1], at[1]))), code)


@pytest.mark.parametrize(
    "page", [name if name in QUICK else pytest.param(name, marks=pytest.mark.conformance) for name in RUN]
)
def test_every_block_of_a_page_runs(
    page: str, kibitz: Command, folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "\n".join(block.code for block in BLOCKS[page])
    ports = {port: free_port() for port in re.findall(ADDRESS, text)} | {"8000": free_port()}
    blocks = [block for block in BLOCKS[page] if not block.not_run]
    shell = Shell(kibitz, folder, monkeypatch, ports["8000"])
    variables: dict[str, object] = {"__name__": "block"}
    missing = []
    try:
        for block in blocks:
            if block.file:
                (folder / block.file).write_text(elsewhere(block.code, ports), encoding="utf-8")
        for block in blocks:
            try:
                values = {need: request.getfixturevalue(need) for need in block.needs if need != "server"}
            except pytest.skip.Exception as reason:  # blocks that need nothing run all the same
                missing.append(f"{block.where}: {reason}")
                continue
            if "server" in block.needs:
                shell.run(["kibitz", "serve"])
            block = block.filled(values)
            block = block._replace(code=elsewhere(block.code, ports))
            if block.file:
                (folder / block.file).write_text(block.code, encoding="utf-8")
            if block.language == "python":
                import_module(block.file.removesuffix(".py")) if block.file else exec(block.code, variables)
            elif block.language == "yaml":
                assert yaml.safe_load(block.code)
                if block.file == "llm_presets.yaml":
                    monkeypatch.setenv("KIBITZ_LLM_PRESETS", str(folder / block.file))
            elif block.language == "toml":
                assert tomllib.loads(block.code)
            elif not block.language:
                for words in block.commands():
                    failure = shell.run(words, block.marks.get("typed", "").replace(",", "\n"))
                    assert not failure, f"{block.where}: {' '.join(words)}\n{failure}"
    finally:
        shell.close()
    if missing:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("; ".join(missing))


class Shell:
    """Runs the lines of blocks in a folder: kibitz in this process, other programs in their own."""

    def __init__(self, kibitz: Command, folder: Path, monkeypatch: pytest.MonkeyPatch, port: int) -> None:
        self.kibitz, self.folder, self.patch, self.port = kibitz, folder, monkeypatch, port
        self.servers: list[Server] = []

    def run(self, line: list[str], typed: str = "") -> str:
        """What went wrong, or nothing."""
        program, *words = [name for word in line for name in (sorted(glob(word)) if "*" in word else [word])]
        if program == "kibitz" and words[0] == "serve":
            self.servers.append(Server(words, self.port))
        elif program == "kibitz":
            done = self.kibitz(*words, typed=typed)
            return done.stderr or "failed" if done.returncode else ""
        elif program == "export":
            self.patch.setenv(*words[0].split("=", 1))
        elif program == "pip" and words[1].startswith("kibitz"):  # which is installed; its extras must exist
            extras = re.findall(r"\w+", words[1])[1:]
            return "" if set(extras) <= set(PROJECT["optional-dependencies"]) else f"no such extras: {extras}"
        elif program == "pip":
            return self.install(str(Path(words[-1]).resolve()))
        elif program in ("python", "pytest"):
            words = [str(ROOT / word) if word.startswith("examples/") else word for word in words]
            return self.finish([*(["-m", "pytest", "-p", "no:cacheprovider"] if program == "pytest" else []), *words])
        else:
            return "mark the block `<!-- not run: REASON -->`"
        return ""

    def install(self, package: str) -> str:
        """Into a folder of the test's own, without the package index."""
        place = self.folder / "site"
        failure = self.finish(["-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index",
                               "--target", str(place), package])  # fmt: skip
        self.patch.syspath_prepend(str(place))
        registry.registered.cache_clear()
        self.patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(place), os.environ.get("PYTHONPATH")])))
        return failure

    def finish(self, words: list[str]) -> str:
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr if done.returncode else ""

    def close(self) -> None:
        for server in self.servers:
            server.stop()


def test_every_command_that_no_test_runs_is_one_that_the_program_takes() -> None:
    """Known commands, options and kinds of values; nothing runs."""
    lines = [line for blocks in BLOCKS.values() for block in blocks if block.not_run for line in block.commands()]
    commands = [line[1:] for line in lines if line[0] == "kibitz"]
    for words in commands:
        refused = refusal(words)
        assert not refused, f"kibitz {' '.join(words)}: {refused}"
    for words, reason in (
        (["trian"], "trian"),
        (["train", "--step", "3"], "--step"),
        (["train", "--steps", "x"], "integer"),
    ):
        assert reason in refusal(words)


def refusal(words: list[str]) -> str:
    """Why the command line is wrong, or nothing."""
    command: Any = typer.main.get_command(app)
    try:
        while isinstance(command, typer.core.TyperGroup):
            context = command.make_context("kibitz", list(words))
            _, command, _ = command.resolve_command(context, words)
            words = words[1:]
        command.make_context("kibitz", list(words))
    except typer.TyperException as error:
        return error.format_message()
    return ""


def test_every_player_of_a_tournament_on_a_page_exists() -> None:
    """Marks leave out most of them, because each pairing is a program of its own."""
    lines = [line for blocks in BLOCKS.values() for block in blocks if not block.language for line in block.commands()]
    lines = [line for line in lines if line[:2] == ["kibitz", "tournament"] and "--players" in line]
    assert len(lines) > 4
    for line in lines:
        record = get_game(line[line.index("--game") + 1] if "--game" in line else "deal_or_no_deal")
        for name in line[line.index("--players") + 1].split(","):
            assert ANY_PATH.knows(record, name), f"{name} in {' '.join(line)}"


def test_blocks_that_no_test_runs_are_few_and_give_a_reason() -> None:
    left_out = [block for blocks in BLOCKS.values() for block in blocks if block.not_run]
    for block in left_out:
        print(f"{block.where}: {block.not_run}")
    assert len(left_out) <= 16
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


def test_marks_replace_names_and_fill_in_what_they_need() -> None:
    from tests.blocks import blocks_of

    text = "<!-- needs: weights -->\n<!-- with: FOLDER = {tables}; a.csv = b.csv -->\n"
    text += "<!-- run with: train: {short}; train --resume: --json -->\n"
    text += "```\nkibitz train --out FOLDER/a.csv\nkibitz train --resume\n```\n"
    (block,) = blocks_of("page.md", text)
    assert set(block.needs) == {"weights", "tables", "short"}
    assert block.filled({"tables": "/t", "short": "--steps 2"}).commands() == [
        ["kibitz", "train", "--out", "/t/b.csv", "--steps", "2"],
        ["kibitz", "train", "--resume", "--json"],
    ]
    with pytest.raises(AssertionError, match="no 'FOLDER' to replace"):
        block._replace(code="kibitz train\n").filled({"tables": "/t", "short": ""})
    with pytest.raises(AssertionError, match="no line for"):
        block._replace(code="kibitz train\n").commands()
