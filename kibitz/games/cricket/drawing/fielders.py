"""The positions of the fielders in each field.

A position is an angle and a distance from the middle of the pitch. The angle is in degrees for a
right-hander who faces the bowler: 0 straight down the ground, 90 square on the off side, 180 behind the
keeper, 270 square on the leg side; a left-hander swaps the sides. The distance is 1 on the boundary and
`RING` on the ring.
"""

from __future__ import annotations

RING = 0.46  # 30 of about 65 yards
Place = tuple[int, float, str]

_FIXED: tuple[Place, ...] = ((0, 0.12, "bowler"), (180, 0.2, "keeper"))
_FIELDERS: dict[str, tuple[Place, ...]] = {
    "attacking": (
        (168, 0.24, "first slip"), (160, 0.24, "second slip"), (100, 0.36, "point"), (55, 0.38, "cover"),
        (20, 0.38, "mid-off"), (340, 0.38, "mid-on"), (290, 0.34, "midwicket"),
        (145, 0.92, "third man"), (230, 0.92, "deep backward square leg"),
    ),
    "balanced": (
        (130, 0.36, "backward point"), (80, 0.4, "point"), (50, 0.42, "cover"), (20, 0.42, "mid-off"),
        (340, 0.42, "mid-on"), (295, 0.4, "midwicket"), (225, 0.34, "short fine leg"),
        (270, 0.9, "deep square leg"), (70, 0.92, "sweeper cover"),
    ),
    "defensive": (
        (130, 0.38, "backward point"), (45, 0.42, "extra cover"), (300, 0.42, "midwicket"),
        (225, 0.36, "short fine leg"),
        (75, 0.92, "sweeper cover"), (15, 0.92, "long-off"), (345, 0.92, "long-on"),
        (305, 0.92, "deep midwicket"), (265, 0.92, "deep square leg"),
    ),
    "death": (
        (145, 0.36, "short third man"), (100, 0.4, "point"), (35, 0.42, "extra cover"), (230, 0.36, "short fine leg"),
        (12, 0.95, "long-off"), (348, 0.95, "long-on"), (310, 0.95, "deep midwicket"), (275, 0.95, "deep square leg"),
        (70, 0.95, "deep cover"),
    ),
}  # fmt: skip


def fielders(field: str, left_handed: bool) -> list[list[float | str]]:
    """[angle, distance, position] of all eleven, bowler and keeper first."""
    places = _FIXED + _FIELDERS[field]
    return [[(360 - angle) % 360 if left_handed else angle, distance, position] for angle, distance, position in places]


def outside(field: str) -> int:
    """The number of fielders outside the ring."""
    return sum(distance > RING for _, distance, _ in _FIELDERS[field])
