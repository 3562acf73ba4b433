"""A made-up episode in the form of a real one, for tests that need events but no game."""

from __future__ import annotations

import json
import time
from typing import Any


def events(episode_id: str, steps: int = 5, end: bool = True, **about: Any) -> list[dict[str, Any]]:
    """Started, so many steps, ended; secrets where real events have them."""
    secret = {"0": {"utilities": [1, 2, 3]}, "1": {"utilities": [3, 2, 1]}}
    told: list[tuple[str, dict[str, Any]]] = [
        (
            "episode.started",
            {
                "game": "deal_or_no_deal", "version": 1, "players": ["bayes", "heuristic"], "frame": {"n": 0},
                "cast": {}, "about": about, "private": secret,
            },
        )
    ]  # fmt: skip
    for turn in range(steps):
        told.append(("step", {"turn": turn, "acts": [[0], None], "rewards": [0.0, 0.0], "frame": {"n": turn + 1}}))
    if end:
        told.append(
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
        for seq, (kind, payload) in enumerate(told)
    ]


def lines(listed: list[dict[str, Any]]) -> bytes:
    return b"\n".join(json.dumps(event).encode() for event in listed)
