"""The package declares its version, its dependencies and its entry points correctly."""

from __future__ import annotations

import re
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

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


EXACT_IMAGE = re.compile(r"[\w./:-]+:\d+\.\d+\.\d+(-[\w.-]+)?(@sha256:[0-9a-f]{64})?|[\w./:-]+@sha256:[0-9a-f]{64}")


def images(text: str) -> list[str]:
    """Images that a Dockerfile builds on, or that a compose file or a workflow runs, without a file's own stages."""
    found = re.findall(
        r"^\s*FROM\s+(?:--\S+\s+)*(\S+)|^\s*-?\s*image:\s*[\"']?([^\s\"']+)", text, re.MULTILINE | re.IGNORECASE
    )
    stages = set(re.findall(r"^\s*FROM\s.*\sAS\s+(\S+)", text, re.MULTILINE | re.IGNORECASE))
    return [name for pair in found for name in pair if name and name not in stages]


def test_every_image_has_an_exact_version() -> None:
    """A tag such as 3.11-slim may name another image tomorrow."""
    below = [path for folder in ("deploy", ".ci") for path in (ROOT / folder).rglob("*") if path.is_file()]
    files = [*ROOT.glob("*Dockerfile*"), *ROOT.glob("*.y*ml"), *(path for path in below if path.suffix != ".md")]
    found = {path.name: images(path.read_text(encoding="utf-8")) for path in files}
    assert len(found["Dockerfile"]) == 1
    assert not [name for names in found.values() for name in names if not EXACT_IMAGE.fullmatch(name)]


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("python:3.11.14-slim-bookworm", True),
        ("registry.example:5000/python:3.11.14", True),
        ("python@sha256:" + "0" * 64, True),
        ("python", False),
        ("python:latest", False),
        ("python:3.11-slim", False),
        ("python:3-slim", False),
        ("$BASE", False),
    ],
)
def test_a_floating_tag_is_recognised(name: str, exact: bool) -> None:
    for text in (f"FROM --platform=linux/amd64 {name} AS base\nFROM base\n", f"services:\n  a:\n    image: '{name}'\n"):
        assert images(text) == [name]
    assert bool(EXACT_IMAGE.fullmatch(name)) is exact


def test_security_reports_have_a_private_way_and_name_no_invented_address() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "Report a\nvulnerability" in text and "Supported versions" in text and "In scope" in text
    assert "@" not in text and "SECURITY.md" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_heavy_dependencies_are_extras() -> None:
    base = {_name(requirement) for requirement in PROJECT["dependencies"]}
    assert not base & {"torch", "transformers", "fastapi", "pettingzoo", "pyarrow", "matplotlib", "ray"}
    torch = [x for extra in PROJECT["optional-dependencies"].values() for x in extra if _name(x) == "torch"]
    assert set(torch) <= {"torch==2.13.0"}


def test_every_entry_point_names_a_module_that_exists() -> None:
    groups = [PROJECT["scripts"], *PROJECT["entry-points"].values()]
    for name, target in (item for group in groups for item in group.items()):
        assert find_spec(target.partition(":")[0]) is not None, name
