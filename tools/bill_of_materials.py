"""Writes a CycloneDX bill of materials: `python tools/bill_of_materials.py dist/kibitz-0.1.0.cdx.json`.

The components are the locked versions of everything that an extra can install. The file is the same for the same
lock file and the same installed licences: it has no time and no random number.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def bill_of_materials() -> dict[str, Any]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8").split()
    components = [_component(*line.split("==")) for line in lock]
    itself = _component(project["name"], project["version"]) | {
        "type": "application",
        "licenses": [{"license": {"id": project["license"]}}],
        "externalReferences": [{"type": "vcs", "url": project["urls"]["Repository"]}],
    }
    direct = list(project["dependencies"])
    direct += [requirement for extra in project["optional-dependencies"].values() for requirement in extra]
    names = {_normal(re.split(r"[\[<>=~!; ]", requirement)[0]) for requirement in direct} - {project["name"]}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": itself},
        "components": components,
        "dependencies": [
            {
                "ref": itself["bom-ref"],
                "dependsOn": [part["bom-ref"] for part in components if _normal(part["name"]) in names],
            }
        ],
    }


def _component(name: str, version: str) -> dict[str, Any]:
    address = f"pkg:pypi/{_normal(name)}@{version}"
    part: dict[str, Any] = {"type": "library", "bom-ref": address, "name": name, "version": version, "purl": address}
    if licence := _licence(name):
        part["licenses"] = [{"license": {"name": licence}}]
    return part


def _licence(name: str) -> str:
    """What an installed package says about itself, in one line; empty if it is not installed or does not say."""
    try:
        about = metadata(name)
    except PackageNotFoundError:
        return ""
    kinds = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier", []) if line.startswith("License ::")]
    text = about.get("License-Expression") or ", ".join(kinds) or about.get("License") or ""
    return text.strip().partition("\n")[0][:200]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(bill_of_materials(), indent=1) + "\n", encoding="utf-8")
    print(target)
