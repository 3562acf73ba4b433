"""A record that is played again up to a turn, then by others: what a start needs to know of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kibitz.core.errors import NotFound
from kibitz.core.play.events import Event
from kibitz.live.http import models
from kibitz.live.store.base import Row
from kibitz.live.store.sql import Store
from kibitz.live.store.stored_event import decode_event

if TYPE_CHECKING:
    from kibitz.core.play.player import Choice

DRAWN = ("seed", "number", "match")


class NotAgain(Exception):
    """The record tells too little to be played again; the sentence says what is missing."""

    def __init__(self, what: str) -> None:
        super().__init__(f"That record does not tell {what}, so it cannot be played again.")


def again(store: Store, row: Row, wish: models.Branch) -> dict[str, Any]:
    """The start of the branch, in the words of `plan.Wish`."""
    steps, drawn = _read(store, row)
    if wish.turn > len(steps):
        raise NotFound(f"Turn {wish.turn} is not in that episode; it has {len(steps)} steps.")
    kept = steps[: wish.turn]
    pack = row.about.get("eval_pack_id", "default")
    if (None, None) in kept:
        raise NotAgain("who did what")
    if not isinstance(row.about.get("options"), dict):
        raise NotAgain("its options")
    if "seed" not in drawn:
        raise NotAgain("its seed")
    if pack != "default" and "match" not in drawn:
        raise NotAgain("which match of its pack it was")
    return {
        "captain_preset": wish.players[0],
        "opponent_choice": wish.players[1],
        "game": row.game,
        "max_overs": None,
        "options": row.about["options"],
        "eval_pack_id": pack,
        "seed": drawn["seed"],
        "number": drawn.get("number", 0),
        "match": drawn.get("match"),
        "open": wish.open,
        "pace": wish.pace,
        "enable_tts": wish.enable_tts,
        "adviser": wish.adviser,
        "script": tuple(kept),
        "branched_from": {"episode_id": row.episode_id, "turn": wish.turn},
    }


def _read(store: Store, row: Row) -> tuple[list[tuple[Choice | None, Choice | None]], dict[str, int]]:
    """Both seats' choices at each step, and what the luck was drawn from."""
    steps: list[tuple[Choice | None, Choice | None]] = []
    drawn = {key: value for key, value in row.secret.items() if key in DRAWN and value is not None}
    asked: dict[int, Any] = {}
    try:
        for event in _events(store, row.episode_id):
            payload = event.payload
            if event.type == "decision":
                asked[payload["seat"]] = payload
            elif event.type == "step":
                first, second = payload["acts"]
                steps.append((_choice(row, 0, first, asked), _choice(row, 1, second, asked)))
                asked = {}
            else:
                drawn |= {key: int(payload[key]) for key in DRAWN if payload.get(key) is not None}
    except (KeyError, TypeError, ValueError, AttributeError):  # somebody else's record
        raise NotAgain("its steps as kibitz does") from None
    return steps, drawn


def _events(store: Store, episode_id: str) -> Iterator[Event]:
    since = -1
    while bodies := store.events(episode_id, since):
        yield from map(decode_event, bodies)
        since += len(bodies)


def _choice(row: Row, seat: int, act: list[int] | None, asked: dict[int, Any]) -> Choice | None:
    """What the step says was done; how it came about is in the decision, if there was one."""
    from kibitz.core.play.player import Choice  # loads JAX

    if act is None:
        return None
    told = asked.get(seat)
    if told is None:
        return Choice(tuple(map(int, act)), row.players[seat])
    reason = told["private"].get(str(seat), {}).get("reason", "")
    return Choice(
        tuple(map(int, act)), told["source"], reason, told["latency"], told["usage"], told["fallback"]
    )  # fmt: skip
