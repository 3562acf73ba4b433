"""`kibitz watch`: plays in this process and publishes to a server, wherever it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kibitz.core.errors import BadInput
from kibitz.core.play.events import Event, spoken
from kibitz.live.episodes.prepare import Limits, prepare
from kibitz.live.episodes.request import HUMAN, EpisodeRequest
from kibitz.live.episodes.runner import Pacer, new_episode_id
from kibitz.live.episodes.timeouts import StopSignal
from kibitz.live.stream.bus_observer import BusObserver
from kibitz.live.stream.outlets import DeliveryRefused, HttpOutlet, server_address


def drive(
    request: EpisodeRequest,
    server: str,
    token: str = "",
    show: Callable[[str], None] = lambda line: None,
    episode_id: str | None = None,
    give_up: float = float("inf"),
) -> dict[str, Any]:
    """Plays one episode. Play continues while the server is unreachable; later the server gets every event."""
    server = server_address(server)
    request = request.completed()
    if HUMAN in request.seats:
        raise BadInput("A person plays on the server's page, not here; start that episode with `kibitz serve`.")
    episode_id = episode_id or new_episode_id()
    signal = StopSignal()
    prepared = prepare(request, Limits(), signal)
    outlet = HttpOutlet(server, token, report=show, give_up=give_up)
    observer = BusObserver(episode_id=episode_id, outlet=outlet, open_table=request.open)

    def show_line(event: Event) -> None:
        if line := spoken(event):
            show(line)

    show(f"Watch at {server}/e/{episode_id}")
    try:
        try:
            played = prepared.play((observer, show_line), Pacer(signal, request.pace or 0.0), episode_id=episode_id)
        finally:
            observer.close()  # an aborted episode, too: the server must learn of its end
    except DeliveryRefused as refused:
        raise BadInput(str(refused)) from None
    return {
        "episode_id": episode_id,
        "server": server,
        "events": len(played.events),
        "steps": played.steps,
        "returns": list(played.returns),
        "retries": outlet.retries,
    }
