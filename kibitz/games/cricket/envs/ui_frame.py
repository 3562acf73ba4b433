"""An observation as the page draws it and a heuristic captain reads it."""

from __future__ import annotations

from typing import Any

from kibitz.games.cricket.envs.tool_models import CricketObservation


def to_ui_frame(obs: CricketObservation, episode_id: str = "") -> dict[str, Any]:
    """The frame of the match, with what the captain in seat 0 may call; plain data."""
    return obs.frame | {
        "episode_id": episode_id or obs.episode_id,
        "turn": obs.turn,
        "role": obs.role,
        "tools": obs.tools,
        "plans": obs.plans,
        "calls_left": obs.calls_left,
        "players": obs.players,
        "phase": obs.scoreboard.get("phase"),
        "text": obs.text,
        "message": obs.message,
        "error": obs.error,
        "analysis": obs.analysis,
        "done": obs.done,
    }
