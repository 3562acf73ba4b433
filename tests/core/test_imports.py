"""Imports go one way, every room says what it holds, and importing kibitz is light."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "kibitz"
ORDER = ["core", "games", "llm", "advice", "players", "evaluate", "train", "studies", "live", "teach", "bench", "cli"]
# the top of the package: entry points and the import path that the seeds promise
TOP = {"__init__", "__main__", "hints"}
MAX_MODULES = 14
MODULE_NAME = re.compile(r"kibitz(\.[a-z_]+)+(:\w+)?")
REGISTRY = PACKAGE / "core" / "registry.py"  # its entry-point groups are named like modules
LOGGERS = re.compile(r"getLogger\(\s*\"kibitz\.\w+\"")


def _room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(path: Path) -> Iterator[str]:
    """Modules of kibitz that a file reaches: by statement, from the package itself, or by a string."""
    text = path.read_text(encoding="utf-8")
    loggers = {match for call in LOGGERS.findall(text) for match in re.findall(r"kibitz\.\w+", call)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "kibitz":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("kibitz."))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE_NAME.fullmatch(node.value):
            room = node.value.split(".")[1].split(":")[0]
            if room in {*ORDER, "hints"} and node.value not in loggers and path != REGISTRY:
                yield node.value


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_module_imports_only_rooms_below_its_own(path: Path) -> None:
    room = _room(path)
    if room in TOP:
        return
    for name in _imports(path):
        other = name.split(".")[1]
        if other in (room, "__version__"):
            continue
        assert other in ORDER and ORDER.index(other) < ORDER.index(room), f"{room} must not import {name}"


def test_the_import_test_sees_strings_and_imports_from_the_package(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text('from kibitz import live\nlate = import_module("kibitz.train.run.run")\n', encoding="utf-8")
    assert set(_imports(file)) == {"kibitz.live", "kibitz.train.run.run"}


def test_games_do_not_know_each_other() -> None:
    for path in sorted((PACKAGE / "games").rglob("*.py")):
        parts = path.relative_to(PACKAGE / "games").parts
        for name in _imports(path) if len(parts) > 1 else ():
            if name.startswith("kibitz.games."):
                assert name.split(".")[2] == parts[0], f"{path} imports another game: {name}"


def test_no_room_outside_the_games_compares_with_a_games_name() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        if _room(path) == "games":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                words = [x.value for x in ast.walk(node) if isinstance(x, ast.Constant)]
                assert not {"deal_or_no_deal", "cricket"} & set(map(str, words)), f"{path}:{node.lineno}"


@pytest.mark.parametrize(
    "room", sorted({path.parent for path in PACKAGE.rglob("*.py")}), ids=lambda p: str(p.relative_to(PACKAGE.parent))
)
def test_a_room_says_what_it_holds_and_is_not_crowded(room: Path) -> None:
    docstring = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8")))
    assert docstring and docstring.split("\n")[0].endswith((".", ":")), f"{room}/__init__.py should say what lives here"
    modules = sorted(path.name for path in room.glob("*.py"))
    assert len(modules) <= MAX_MODULES, f"{room} holds {len(modules)} modules; split it"


def test_importing_kibitz_is_quick_and_light() -> None:
    code = (
        "import time, sys, json; t = time.process_time(); import kibitz; s = time.process_time() - t;"
        "print(json.dumps([s, sorted(sys.modules)]))"
    )
    runs = [
        json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    ]
    assert min(seconds for seconds, _ in runs) < 1.0  # CPU seconds: other tests may keep the machine busy
    heavy = {"fastapi", "openai", "torch", "jax", "pydantic", "transformers", "pettingzoo"}
    assert all(heavy.isdisjoint(loaded) for _, loaded in runs)


def test_public_names_load_late_and_unknown_ones_are_refused() -> None:
    import kibitz

    assert kibitz.NegotiationEnv.__name__ == "NegotiationEnv"
    assert issubclass(kibitz.BadInput, ValueError)
    assert kibitz.get_game("deal_or_no_deal").name == "deal_or_no_deal"
    assert set(kibitz.__all__) <= set(dir(kibitz))
    with pytest.raises(AttributeError, match="nothing"):
        _ = kibitz.nothing
