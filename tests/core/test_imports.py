"""Imports go one way, and importing kibitz is light."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "kibitz"
ORDER = ["core", "games", "llm", "advice", "players", "evaluate", "train", "live", "bench", "hints", "cli", "__main__"]
# a rule may be a trained policy and a policy hears hints: these rooms stand side by side
SAME = [{"llm", "advice", "players"}, {"evaluate", "train"}]


def _room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("kibitz."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {name.name.split(".")[1] for name in node.names if name.name.startswith("kibitz.")}
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_module_imports_only_what_stands_below_it(path: Path) -> None:
    room = _room(path)
    if room == "__init__":
        return
    for other in _imports(path) - {room}:
        beside = any({room, other} <= rooms for rooms in SAME)
        assert beside or ORDER.index(other) < ORDER.index(room), f"{room} must not import {other}"


def test_games_do_not_know_each_other() -> None:
    for path in sorted((PACKAGE / "games").rglob("*.py")):
        parts = path.relative_to(PACKAGE / "games").parts
        if len(parts) < 2:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kibitz.games."):
                assert node.module.split(".")[2] == parts[0], f"{path} looks into another game"


def test_no_room_outside_the_games_names_a_game_in_a_condition() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        if _room(path) == "games":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                words = [x.value for x in ast.walk(node) if isinstance(x, ast.Constant)]
                assert not {"deal_or_no_deal", "cricket"} & set(map(str, words)), f"{path}:{node.lineno}"


def test_importing_kibitz_is_quick_and_light() -> None:
    code = (
        "import time, sys, json; t = time.process_time(); import kibitz; s = time.process_time() - t;"
        "print(json.dumps([s, sorted(sys.modules)]))"
    )
    runs = [
        json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    ]
    assert min(seconds for seconds, _ in runs) < 1.0  # of work: the machine may be busy with other tests
    heavy = {"fastapi", "openai", "torch", "jax", "pydantic", "transformers", "pettingzoo"}
    assert all(heavy.isdisjoint(loaded) for _, loaded in runs)


def test_names_at_the_top_are_found_late_and_wrong_ones_are_refused() -> None:
    import kibitz

    assert kibitz.NegotiationEnv.__name__ == "NegotiationEnv"
    assert issubclass(kibitz.BadInput, ValueError)
    assert kibitz.get_game("deal_or_no_deal").name == "deal_or_no_deal"
    with pytest.raises(AttributeError, match="nothing"):
        _ = kibitz.nothing
