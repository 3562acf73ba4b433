"""deploy/compose.yaml as data, with its variables replaced."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from tests.conftest import ROOT

FILE = ROOT / "deploy" / "compose.yaml"
VARIABLE = re.compile(r"\$\{(\w+)[^}]*\}")


def compose(values: Mapping[str, str]) -> dict[str, Any]:
    text = VARIABLE.sub(lambda found: values[found[1]], FILE.read_text(encoding="utf-8"))
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def server_options(values: Mapping[str, str]) -> dict[str, str]:
    """The options of `kibitz serve` in the file, by name."""
    program, command, *options = compose(values)["services"]["kibitz-1"]["command"]
    assert (program, command) == ("kibitz", "serve")
    return dict(option.split("=", 1) for option in options)
