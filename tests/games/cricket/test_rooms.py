"""The rooms of the cricket package import each other in one direction."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3] / "kibitz" / "games" / "cricket"
ORDER = ["model", "teams", "laws", "captains", "chances", "words", "drawing", "options", "packs", "envs", "fitting"]
PREFIX = ["kibitz", "games", "cricket"]


def rooms_imported(path: Path) -> set[str]:
    """The rooms that a file names in import statements, and in strings that could be imported."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value]
        parts = [name.split(".") for name in names]
        found |= {part[3] for part in parts if part[:3] == PREFIX and len(part) > 3}
    return found & set(ORDER)


@pytest.mark.parametrize("path", sorted(ROOT.glob("*/**/*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_imports_only_rooms_below_it(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    for other in rooms_imported(path) - {room}:
        assert ORDER.index(other) < ORDER.index(room), f"{room} must not import {other}"


def test_every_folder_has_a_place_in_the_order() -> None:
    folders = {path.parent.relative_to(ROOT).parts[0] for path in ROOT.glob("*/**/*.py")}
    assert folders | {"options"} == set(ORDER)
