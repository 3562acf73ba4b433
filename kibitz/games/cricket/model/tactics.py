"""The captains' choices and their declared effects, read from `tactics.yaml`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

OUTCOMES = ("dot", "one", "two", "three", "four", "six", "wicket", "wide", "no_ball", "bye")
INTENTS = ("block", "rotate", "accumulate", "attack", "slog")
PLANS = ("yorker", "full", "good", "short", "wide_of_off", "variation")
FIELDS = ("attacking", "balanced", "defensive", "death")
PHASES = ("powerplay", "middle", "death")
ACCUMULATE, GOOD, BALANCED = INTENTS.index("accumulate"), PLANS.index("good"), FIELDS.index("balanced")

Floats = NDArray[np.float32]


@cache
def declared() -> dict[str, Any]:
    """The contents of `tactics.yaml`."""
    text = (Path(__file__).parent / "tactics.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def outcome_row(effects: dict[str, float] | None) -> Floats:
    """f32[outcomes] from a mapping of outcome names to values."""
    values = np.zeros(len(OUTCOMES), np.float32)
    for name, value in (effects or {}).items():
        values[OUTCOMES.index(name)] = value
    return values


def _rows(table: dict[str, Any], names: tuple[str, ...]) -> Floats:
    return np.stack([outcome_row(table.get(name)) for name in names])


def _pairs(table: dict[str, Any], rows: tuple[str, ...], columns: tuple[str, ...]) -> Floats:
    return np.stack([_rows(table.get(name, {}), columns) for name in rows])


@cache
def effects() -> Floats:
    """f32[pace or spin, later or powerplay, intent, plan, field, outcome]: effects on log-weights."""
    file = declared()
    alone = (
        _rows(file["intents"], INTENTS)[:, None, None]
        + _rows(file["plans"], PLANS)[None, :, None]
        + _rows(file["fields"], FIELDS)[None, None, :]
        + _pairs(file["intent_against_plan"], INTENTS, PLANS)[:, :, None]
        + _pairs(file["intent_against_field"], INTENTS, FIELDS)[:, None, :]
    )
    table = np.broadcast_to(alone, (2, 2, *alone.shape)).copy()
    table[1] += _rows(file["plan_of_spin"], PLANS)[None, None, :, None]
    table[0, 1] += _rows(file["plan_in_powerplay_by_pace"], PLANS)[None, :, None]
    table[:, 1] += _rows(file["field_in_powerplay"], FIELDS)[None, None, None, :]
    return table.astype(np.float32)


@cache
def intent_risks() -> Floats:
    """f32[intent], the risk of each intent in units of the observed trade-off."""
    return np.array([declared()["risk"][name] for name in INTENTS], np.float32)


@cache
def default_plans() -> Floats:
    """f32[pace or spin, phase, plan], shares of the default captain."""
    kinds = declared()["default_plans"]
    return np.array(
        [[[kinds[kind][phase][plan] for plan in PLANS] for phase in PHASES] for kind in ("pace", "spin")], np.float32
    )


@cache
def default_fields() -> Floats:
    """f32[phase, field], shares of the default captain."""
    return np.array([[declared()["default_fields"][phase][f] for f in FIELDS] for phase in PHASES], np.float32)


@cache
def open_in_powerplay() -> NDArray[np.bool_]:
    """bool[field]: whether the field has at most two fielders outside the ring."""
    return np.array([declared()["outside_ring"][name] <= 2 for name in FIELDS])
