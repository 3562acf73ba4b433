"""A command whose extra is not installed prints one sentence that names the extra, and exits with code 2."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from kibitz.cli.setup import extras
from tests.conftest import Finished

ROOT = Path(__file__).resolve().parents[2]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
DEVELOPMENT = {"docs", "browser", "test", "conformance"}  # extras for those who change kibitz
BASE = tuple(sorted({extras.module_of(name) for names in extras.packages().values() for name in names}))

# A command, the modules that are absent, and what its sentence says to install.
QUICK = {
    "serve": ("serve --port 0", BASE, "kibitz[live]"),
    "watch": ("watch --game deal_or_no_deal", BASE, "kibitz[live]"),
    "demo without fastapi": ("demo", ("fastapi",), "kibitz[live]"),
    "serve --bus": ("serve --port 0 --no-warm --bus redis://127.0.0.1:1", ("redis",), "kibitz[scale]"),
    "tournament": ("tournament --players random,heuristic --episodes 2 --out x", BASE, "kibitz[studies]"),
    "serve on Windows": ("serve --port 0", ("fcntl", "termios"), "WSL"),
}
SLOW = {
    **{
        f"serve without {name}": ("serve --port 0", (extras.module_of(name),), "kibitz[live]")
        for name in extras.packages()["live"]
    },
    "bench live": ("bench live --seconds 1", BASE, "kibitz[live]"),
    "serve --store": ("serve --port 0 --store postgresql://127.0.0.1:1/x", ("psycopg",), "kibitz[scale]"),
    "teach data --from-store": ("teach data --from-store x.db --out x", BASE, "kibitz[live]"),
    "teach sft": ("teach sft --data rows.jsonl --out x --json", BASE, "kibitz[teach]"),
    "teach dpo": ("teach dpo --data rows.jsonl --out x --json", BASE, "kibitz[teach]"),
    "evaluate local_hf": ("evaluate --player llm:local_hf --episodes 2", BASE, "kibitz[hf]"),
    "hints evaluate": ("hints evaluate --source llm:embedded --json", BASE, "kibitz llm install"),
    "teach grpo": ("teach grpo --out x --json", BASE, "kibitz[teach]"),
    "evaluate --contexts": ("evaluate --player random --contexts x.parquet", BASE, "kibitz[data]"),
    "llm ask": ("llm ask --preset embedded", BASE, "kibitz llm install"),
    "train on Windows": ("train --steps 1", ("fcntl", "termios"), "WSL"),
}
FILES = ["rows.jsonl", "x.db", "x.parquet"]
ROW = '{"messages": [{"role": "user", "content": "pool"}, {"role": "assistant", "content": "{}"}]}\n'
CASES = [*QUICK, *(pytest.param(case, marks=pytest.mark.conformance) for case in SLOW)]

# Runs each command in one process. The modules are truly absent: the finder of files does not find them.
CHILD = """
import contextlib, importlib.machinery, io, json, sys
from kibitz.cli import main

absent = set()
class Finder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in absent else super().find_spec(name, path, target)

files = importlib.machinery.PathFinder
sys.meta_path = [Finder if finder is files else finder for finder in sys.meta_path]
extra_modules = set(json.loads(sys.argv[1]))
rooms = ("kibitz.live", "kibitz.bench", "kibitz.teach", "kibitz.studies", "kibitz.train")
for line in sys.stdin:
    name, words, modules = json.loads(line)
    absent = set(modules)
    for loaded in list(sys.modules):
        if loaded.partition(".")[0] in extra_modules | absent or loaded.startswith(rooms):
            del sys.modules[loaded]
    sys.argv = ["kibitz", *words]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        except BaseException as error:
            code, text = 1, err.write(f"{type(error).__name__}: {error}")
    print(json.dumps([name, code, out.getvalue(), err.getvalue()]), flush=True)
"""


@cache
def run_all(which: str) -> dict[str, Finished]:
    """What the commands of a table do in an empty folder."""
    cases = globals()[which]
    lines = [json.dumps([name, words.split(), absent]) for name, (words, absent, _) in cases.items()]
    command = [sys.executable, "-c", CHILD, json.dumps([*BASE, "starlette"])]
    with TemporaryDirectory() as folder:
        for name in FILES:
            Path(folder, name).write_text(ROW if name == "rows.jsonl" else "PAR1", encoding="utf-8")
        done = subprocess.run(
            command, input="\n".join(lines), capture_output=True, text=True, cwd=folder, check=False, timeout=600
        )
        assert done.returncode == 0, done.stderr
        assert sorted(os.listdir(folder)) == FILES, "a command left something behind"
    return {name: Finished(*rest) for name, *rest in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("case", CASES)
def test_a_missing_extra_is_one_sentence_with_exit_code_2(case: str) -> None:
    which = "QUICK" if case in QUICK else "SLOW"
    done, install = run_all(which)[case], (QUICK | SLOW)[case][2]
    assert done.returncode == 2, done
    assert re.fullmatch(r"kibitz: [^\n]*\.\n", done.stderr), done.stderr
    assert install in done.stderr


def test_every_extra_for_users_has_a_purpose_and_its_packages() -> None:
    assert {*extras.PURPOSES, *DEVELOPMENT} == set(DECLARED)
    for extra, names in extras.packages().items():
        assert names and len(names) == len(DECLARED[extra])


def test_the_installed_metadata_names_the_same_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = [f"{_normalised(line)}; extra == '{extra}'" for extra, listed in DECLARED.items() for line in listed]
    monkeypatch.setattr(extras, "PACKAGE", tmp_path / "kibitz")  # as in a wheel: no pyproject.toml beside it
    monkeypatch.setattr(extras, "requires", lambda name: ["jax>=0.8", *lines])
    from_wheel = extras.packages.__wrapped__()
    monkeypatch.undo()
    assert from_wheel == extras.packages()


def _normalised(requirement: str) -> str:
    """As build backends write it: prometheus_client becomes prometheus-client, tensorboardX becomes tensorboardx."""
    return requirement.replace("_", "-").lower()


def test_the_module_of_every_package_is_found_where_it_is_installed() -> None:
    installed = [name for names in extras.packages().values() for name in names if _is_installed(name)]
    assert {"fastapi", "prometheus-client", "tensorboardx"} <= set(installed)
    assert [name for name in installed if find_spec(extras.module_of(name)) is None] == []


def _is_installed(name: str) -> bool:
    try:
        return bool(version(name))
    except PackageNotFoundError:
        return False


def test_an_unknown_module_remains_an_error() -> None:
    assert extras.sentence(ModuleNotFoundError("No module named 'x'", name="x")) == ""
