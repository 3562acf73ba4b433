"""Where the ball went, for the page: an angle, a distance and the fielder who gets it.

The laws decide runs and wickets without a place, so the place follows from the delivery itself: the same ball always
goes to the same place, and the place agrees with the outcome and with the field. Angles and distances are those of
`fielders`; a six lands beyond 1.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from kibitz.games.cricket.drawing.fielders import RING, fielders

GAP_DEGREES = 14  # between a boundary and the nearest fielder on the rope
SIX_DISTANCE = 1.1
MISSED = ("bowled", "lbw", "hit wicket")
AIM: dict[str, tuple[int, int]] = {
    "attack": (35, 60),
    "slog": (300, 55),
}  # where an intent hits: the middle, the spread
ANYWHERE = (0, 130)

Shot = dict[str, Any]


def shot(ball: Mapping[str, Any], left_handed: bool) -> Shot:
    """`angle` in degrees, `distance`, and `to`: the fielder's position, or None if no fielder reaches the ball."""
    drawn = zlib.crc32("|".join(str(ball[key]) for key in ("number", "at", "batter_name", "bowler_name")).encode())
    one, two = (drawn & 0xFFFF) / 0x10000, (drawn >> 16) / 0x10000
    places = [(int(angle), float(far), str(name)) for angle, far, name in fielders(ball["field"], left_handed)]
    bowler, keeper, *others = places
    outcome, how = ball["outcome"], ball["how"]
    runs = ball["runs"] - (outcome == "no_ball")
    if how in MISSED:
        return _at(180, 0.0, None)
    if how == "stumped" or (outcome == "wide" and runs < 2):
        return _to(keeper)
    if how == "caught and bowled":
        return _to(bowler)
    if outcome in ("wide", "bye"):  # past the keeper, down the leg side if it came off the pad
        return _at(_hand(180 + 50 * one if ball["leg_bye"] else 160 + 40 * one, left_handed), min(1.0, runs / 4), None)
    if how == "caught":
        return _to(_pick([keeper, *others], one))
    middle, spread = AIM.get(ball["intent"], ANYWHERE)
    aimed = _hand(middle + spread * (2 * one - 1), left_handed)
    if runs >= 6:
        return _at(aimed, SIX_DISTANCE, None)
    if runs >= 4:
        return _at(_gap(aimed, [angle for angle, far, _ in others if far > RING]), 1.0, None)
    near = [place for place in others if place[1] <= RING]
    deep = [place for place in others if place[1] > RING]
    if runs >= 2:
        return _to(_pick(deep or near, one))
    return _to(_pick(others if runs else [*near, keeper, bowler], two))


def _at(angle: float, distance: float, name: str | None) -> Shot:
    return {"angle": round(angle) % 360, "distance": round(distance, 2), "to": name}


def _to(place: tuple[int, float, str]) -> Shot:
    return _at(*place)


def _hand(angle: float, left_handed: bool) -> float:
    return (360 - angle if left_handed else angle) % 360


def _pick(places: list[tuple[int, float, str]], chance: float) -> tuple[int, float, str]:
    return places[int(chance * len(places))]


def _gap(angle: float, guarded: list[int]) -> float:
    """The nearest angle at which no fielder on the rope is within reach."""
    for turn in range(180):
        for found in (angle + turn, angle - turn):
            if all(abs((found - other + 180) % 360 - 180) >= GAP_DEGREES for other in guarded):
                return found
    return angle
