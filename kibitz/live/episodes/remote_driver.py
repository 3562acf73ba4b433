"""`kibitz watch`: plays in this process and publishes to a server, wherever it is."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kibitz.core.errors import BadInput
from kibitz.core.play.episode import play_episode
from kibitz.core.play.events import Event, spoken
from kibitz.live.episodes.prepare import Wish, prepare, release_players
from kibitz.live.episodes.runner import Live, Steps
from kibitz.live.stream.bus_observer import BusObserver
from kibitz.live.stream.outlets import DeliveryRefused, HttpOutlet


def drive(
    wish: Wish,
    server: str,
    token: str = "",
    pace: float = 0.0,
    patience: float = 30.0,
    tell: Callable[[str], None] = lambda line: None,
    episode_id: str | None = None,
    give_up: float = float("inf"),
) -> dict[str, Any]:
    """One episode; a server that is away does not stop it, and gets every event once it is back."""
    from kibitz.core.play.recorder import Stopped

    if urlsplit(server).scheme not in ("http", "https") or not urlsplit(server).netloc:
        raise BadInput(f"{server!r} is not the address of a server, such as http://127.0.0.1:8000.")
    live = Live(episode_id or f"ep-{secrets.token_hex(6)}", wish.game, wish.names, 0.0)
    if "human" in wish.names:
        raise BadInput("A person sits at the server's page, not here; start that episode with `kibitz serve`.")
    plan = prepare(wish, Path("runs"), patience, patience, live.halt, operator=True)
    outlet = HttpOutlet(server, token, report=tell, give_up=give_up)
    observer = BusObserver(
        base_url=server, episode_id=live.episode_id, mode=wish.captain_preset, task=wish.task,
        opponent_mode=wish.opponent_choice, eval_pack_id=wish.eval_pack_id, outlet=outlet, open_table=wish.open,
    )  # fmt: skip

    def show(event: Event) -> None:
        if line := spoken(event):
            tell(line)

    tell(f"Watch at {server.rstrip('/')}/e/{live.episode_id}")
    try:
        try:
            played = play_episode(
                plan.game, plan.settings, plan.players, seed=plan.seed, number=wish.number, state=plan.state,
                match=plan.match, observers=(observer, show), episode_id=live.episode_id, advisers=plan.advisers,
                about=plan.about, stop=Steps(live, pace, Stopped),
            )  # fmt: skip
        finally:
            release_players([*plan.players, *plan.advisers.values()])
            observer.close()  # also of a match that was broken off: the server should hear of its end
    except DeliveryRefused as refused:
        raise BadInput(str(refused)) from None
    return {
        "episode_id": live.episode_id,
        "server": server,
        "events": len(played.events),
        "steps": played.steps,
        "returns": list(played.returns),
        "retries": outlet.retries,
    }
