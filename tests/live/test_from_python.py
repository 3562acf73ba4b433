"""`kibitz.watch`: an episode of any callable, played here and watched on a server."""

from __future__ import annotations

import pytest

import kibitz
from kibitz.core.errors import BadInput
from kibitz.core.play.player import Turn
from tests.live.conftest import Served


def insist(turn: Turn) -> str:
    return "agree" if turn.number else "propose 0 0 0"


def test_a_functions_episode_can_be_watched_on_the_server(served: Served) -> None:
    shown: list[str] = []
    found = kibitz.watch(
        insist, "heuristic", server=served.url, pace=0, show=shown.append, options={"agent_starts": True}
    )
    assert shown[0] == f"Watch at {served.url}/e/{found['episode_id']}"
    events = served.events(found["episode_id"])
    assert events[0]["payload"]["players"] == ["insist", "heuristic"]
    assert events[-1]["type"] == "episode.ended"
    decisions = [event["payload"] for event in events if event["type"] == "decision" and event["payload"]["seat"] == 0]
    assert decisions and not any(made["fallback"] for made in decisions)
    assert served.get(f"/episodes/{found['episode_id']}")["open"], "as with `kibitz watch`"
    closed = kibitz.watch(insist, server=served.url, pace=0, show=shown.append, open_table=False)
    assert not served.get(f"/episodes/{closed['episode_id']}")["open"]


def test_a_server_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(BadInput, match=r"127\.0\.0\.1:9"):
        kibitz.watch(insist, server="http://127.0.0.1:9", pace=0, show=lambda line: None, give_up=1.0)
