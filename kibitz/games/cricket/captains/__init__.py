"""The captains: bots, the captain that calls tools, presets. `laws` plays what they decide."""

from kibitz.games.cricket.captains.presets import OPPONENT_PRESETS, captain_presets, pick_action
from kibitz.games.cricket.captains.tool_captain import HeuristicCaptain
from kibitz.games.cricket.captains.tool_models import to_ui_frame

__all__ = ["OPPONENT_PRESETS", "HeuristicCaptain", "captain_presets", "pick_action", "to_ui_frame"]
