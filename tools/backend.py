"""Builds wheels and source distributions with hatchling; a wheel also gets the documentation site as `kibitz/site`.

Only a wheel needs Sphinx. An editable installation has no site: there, `kibitz docs` builds it from the checkout.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from hatchling import build as hatchling
from hatchling.build import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
)
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]
ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build" / "site"


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*hatchling.get_requires_for_build_wheel(config_settings), *project["optional-dependencies"]["docs"]]


def build_site() -> None:
    """Builds the site from scratch. Sphinx reports every link that leads nowhere, and any report is an error."""
    shutil.rmtree(SITE, ignore_errors=True)
    options = [
        "--quiet",
        "--fail-on-warning",
        "--keep-going",
        "--doctree-dir",
        str(SITE.parent / "doctrees"),
        "--fresh-env",
    ]
    subprocess.run([sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(SITE)], check=True)


class SiteHook(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the site into a wheel; hatchling calls it because pyproject.toml names this file."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "standard":  # not "editable"
            build_site()
            build_data["force_include"][str(SITE)] = "kibitz/site"


if __name__ == "__main__":
    target = sys.argv[1]
    print(build_sdist(target), build_wheel(target))
