"""A synthetic episode in the form of a real one, for tests that need events but no game."""

from __future__ import annotations

import json
import time
from typing import Any

from kibitz.live.store.base import Row
from kibitz.live.store.stored_event import StoredEvent, event_from_dict

KEY = {"episode-key": "the-key-of-these-episodes"}  # of a driver that sends its events in several requests


def events(episode_id: str, steps: int = 5, end: bool = True, **about: Any) -> list[dict[str, Any]]:
    """Started, `steps` steps, ended; private values where real events have them."""
    secret = {"0": {"utilities": [1, 2, 3]}, "1": {"utilities": [3, 2, 1]}}
    made: list[tuple[str, dict[str, Any]]] = [
        (
            "episode.started",
            {
                "game": "deal_or_no_deal", "version": 1, "players": ["bayes", "heuristic"], "frame": {"n": 0},
                "cast": {}, "about": about, "private": secret,
            },
        )
    ]  # fmt: skip
    for turn in range(steps):
        made.append(("step", {"turn": turn, "acts": [[0], None], "rewards": [0.0, 0.0], "frame": {"n": turn + 1}}))
    if end:
        made.append(
            (
                "episode.ended",
                {
                    "text": "It is over.", "audio": None, "returns": [3.0, 1.0], "scores": {}, "frame": {"n": steps},
                    "review": {}, "private": secret, "seed": 7, "number": 0, "steps": steps,
                },
            )
        )  # fmt: skip
    now = time.time()
    return [
        {"v": 1, "episode_id": episode_id, "seq": seq, "ts": now + seq / 100, "type": kind, "payload": payload}
        for seq, (kind, payload) in enumerate(made)
    ]


def stored_events(episode_id: str = "ep-1", **more: Any) -> list[StoredEvent]:
    return [StoredEvent(event_from_dict(event)) for event in events(episode_id, **more)]


def row(episode_id: str = "ep-1", **more: Any) -> Row:
    return Row(episode_id, "deal_or_no_deal", ("bayes", "heuristic"), time.time(), **more)


def lines(listed: list[dict[str, Any]]) -> bytes:
    return b"\n".join(json.dumps(event).encode() for event in listed)
