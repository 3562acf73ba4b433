"""The captains: bots, the captain that calls tools, presets. `laws` plays what they decide."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kibitz.games.cricket.captains.tool_captain import HeuristicCaptain
from kibitz.games.cricket.captains.tool_models import to_ui_frame

__all__ = ["HeuristicCaptain", "to_ui_frame"]


def __getattr__(name: str) -> Any:
    if name not in ("OPPONENT_PRESETS", "captain_presets", "pick_action"):
        raise AttributeError(f"module 'kibitz.games.cricket.captains' has no attribute {name!r}")
    return getattr(import_module("kibitz.players.captains"), name)
