"""An act as the tool calls that would play it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kibitz.games.cricket.model.tactics import FIELDS, INTENTS, PLANS
from kibitz.games.cricket.teams import roster


def calls(act: Any, seat: int, frame: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the seat's captain would call to play this act from this frame, the ball last."""
    intent, plan, field, bowler, coming = (int(x) for x in act)
    if frame["batting"] == seat:
        made: list[tuple[str, dict[str, str]]] = [("set_batting_plan", {"intent": INTENTS[intent]})]
        if coming:
            made.append(("choose_next_batter", {"batter": roster.name(frame["marks"][frame["batting"]], coming)}))
        made.append(("play_delivery", {}))
    else:
        made = [("set_bowling_plan", {"plan": PLANS[plan]}), ("set_field", {"field": FIELDS[field]})]
        if not frame.get("bowler"):
            made.insert(0, ("choose_bowler", {"bowler": roster.name(frame["marks"][1 - frame["batting"]], bowler)}))
        made.append(("bowl_delivery", {}))
    return [{"tool": tool, "arguments": arguments} for tool, arguments in made]
