"""Fitted models: those that kibitz ships, and those that `kibitz cricket fit` writes into the user's folder."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from kibitz.core.errors import BadInput
from kibitz.core.system.paths import cache_folder

FILE = Path(__file__).parent / "calibration.json"
ERAS = ("pre2018", "2018-2022", "2023+")
SHIPPED = "shipped"
CAREFUL_TAIL = "careful-tail"
FILES = {SHIPPED: FILE, CAREFUL_TAIL: FILE.with_name("careful_tail.json")}
DEFAULTS = {"pre2018": CAREFUL_TAIL, "2018-2022": CAREFUL_TAIL, "2023+": SHIPPED}
"""The model of each era unless options name one. `shipped` has numbers for every era, and records name it."""
TAIL_WICKETS = 7  # wickets down from which an era's `tail` holds: factors of the weight of a wicket at 7, 8 and 9 down
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_known: list[str] = [*FILES]  # names by number; settings are arrays and hold the number


def model_file(name: str) -> Path:
    """Where the model of this name lies or would lie; BadInput if it cannot be a name."""
    if name in FILES:
        return FILES[name]
    if not NAME.fullmatch(name):
        raise BadInput(f"A model cannot be named {name!r}; use up to 40 lower-case letters, digits, - and _.")
    return cache_folder() / "cricket" / f"{name}.json"


def model_number(name: str) -> int:
    """The number of a model in this process; loads the model, so that a wrong name fails here."""
    load(name)
    if name not in _known:
        _known.append(name)
    return _known.index(name)


def models_by_era(name: str | None = None) -> tuple[int, ...]:
    """The number of a model for each era: of the one with this name, else of the era's default."""
    return tuple(model_number(name or DEFAULTS[era]) for era in ERAS)


def calibration(model: int = 0) -> dict[str, Any]:
    """The fitted numbers of a model by its number. The shipped one was computed from Cricsheet's T20 ball-by-ball
    records (licence believed to be ODC-BY)."""
    return load(_known[model])


@cache
def load(name: str) -> dict[str, Any]:
    """The fitted numbers of a model by its name."""
    file = model_file(name)
    try:
        loaded: dict[str, Any] = _completed(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        found = [*FILES, *sorted(path.stem for path in file.parent.glob("*.json"))]
        raise BadInput(
            f"There is no fitted model {name!r}; choose one of {', '.join(found)}, or run `kibitz cricket fit`."
        ) from None
    except (OSError, ValueError):
        raise BadInput(f"The fitted model {str(file)!r} cannot be read; fit it again.") from None
    if name not in FILES and not _same_shape(loaded, load(SHIPPED)):
        raise BadInput(f"The fitted model {str(file)!r} does not belong to this version of kibitz; fit it again.")
    return loaded


def _completed(loaded: Any) -> Any:
    """Fits from before there was a `tail` have factors of one."""
    eras = loaded.get("eras") if isinstance(loaded, dict) else None
    for numbers in eras.values() if isinstance(eras, dict) else ():
        if isinstance(numbers, dict):
            numbers.setdefault("tail", [1.0] * (10 - TAIL_WICKETS))
    return loaded


def _same_shape(one: Any, other: Any) -> bool:
    if isinstance(other, dict):
        return isinstance(one, dict) and one.keys() == other.keys() and all(_same_shape(one[k], other[k]) for k in one)
    if isinstance(other, list):
        return isinstance(one, list) and len(one) == len(other) and all(map(_same_shape, one, other))
    if isinstance(other, str):
        return isinstance(one, str)
    return isinstance(one, int | float) and not isinstance(one, bool)
