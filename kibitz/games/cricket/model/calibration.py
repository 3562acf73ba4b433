"""The fitted numbers, read from `calibration.json`; `fit.py` writes them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "calibration.json"
ERAS = ("pre2018", "2018-2022", "2023+")


@cache
def calibration() -> dict[str, Any]:
    """Numbers computed from T20 ball-by-ball records, Cricsheet (licence believed to be ODC-BY)."""
    loaded: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return loaded
