"""Who decides: bots, the tool-calling captain, presets. The seeds' names for them are importable from here."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_LATE = {
    "HeuristicCaptain": "kibitz.games.cricket.captains.tool_captain",
    "OPPONENT_PRESETS": "kibitz.players.captains",
    "captain_presets": "kibitz.players.captains",
    "pick_action": "kibitz.players.captains",
    "to_ui_frame": "kibitz.games.cricket.envs.ui_frame",
}


def __getattr__(name: str) -> Any:
    """Captains who call tools are found here too, but loaded only when they are asked for."""
    if name not in _LATE:
        raise AttributeError(f"module 'kibitz.games.cricket.captains' has no attribute {name!r}")
    return getattr(import_module(_LATE[name]), name)
