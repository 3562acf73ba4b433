"""The package declares its version, its dependencies and its entry points correctly."""

from __future__ import annotations

import re
import tomllib
from importlib.util import find_spec
from pathlib import Path

import kibitz

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _name(requirement: str) -> str:
    return re.split(r"[\[<>=~!; ]", requirement)[0].lower().replace("_", "-")


def test_the_version_is_the_same_everywhere() -> None:
    assert PROJECT["version"] == kibitz.__version__
    assert kibitz.__version__ in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_dependency_is_locked_to_one_version() -> None:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").split()
    locked = {_name(line) for line in lines}
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+", line) for line in lines)
    wanted = [*PROJECT["dependencies"], *(x for extra in PROJECT["optional-dependencies"].values() for x in extra)]
    assert {_name(requirement) for requirement in wanted} - {"kibitz"} <= locked


def test_heavy_dependencies_are_extras() -> None:
    base = {_name(requirement) for requirement in PROJECT["dependencies"]}
    assert not base & {"torch", "transformers", "fastapi", "pettingzoo", "pyarrow", "matplotlib", "ray"}
    torch = [x for extra in PROJECT["optional-dependencies"].values() for x in extra if _name(x) == "torch"]
    assert set(torch) <= {"torch==2.13.0"}


def test_every_entry_point_names_a_module_that_exists() -> None:
    groups = [PROJECT["scripts"], *PROJECT["entry-points"].values()]
    for name, target in (item for group in groups for item in group.items()):
        assert find_spec(target.partition(":")[0]) is not None, name
