"""The fitted numbers of `calibration.json`, which `kibitz cricket fit` writes."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "calibration.json"
ERAS = ("pre2018", "2018-2022", "2023+")


@cache
def calibration() -> dict[str, Any]:
    """Computed from Cricsheet's T20 ball-by-ball records (licence believed to be ODC-BY)."""
    loaded: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return loaded
