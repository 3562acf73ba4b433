"""`kibitz watch`: plays in this process and publishes to a server, wherever it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kibitz.core.bots import Bot
from kibitz.core.errors import BadInput
from kibitz.core.game import Game
from kibitz.core.play.custom import PlayerLike, as_player
from kibitz.core.play.events import Event, spoken
from kibitz.core.play.player import Player
from kibitz.core.play.resolve import ANY_PATH, Resolver
from kibitz.games import DEFAULT_GAME
from kibitz.live.episodes.prepare import Limits, prepare
from kibitz.live.episodes.request import HUMAN, EpisodeRequest
from kibitz.live.episodes.runner import Pacer, new_episode_id
from kibitz.live.episodes.timeouts import StopSignal
from kibitz.live.stream.bus_observer import BusObserver
from kibitz.live.stream.outlets import DeliveryRefused, HttpOutlet, server_address


@dataclass(frozen=True)
class GivenPlayers(Resolver):
    """Also knows objects and functions of the calling program."""

    given: Mapping[str, PlayerLike] = field(default_factory=dict)

    def find(self, game: Game, name: str) -> Bot | Player:
        return as_player(game, self.given[name], name) if name in self.given else super().find(game, name)


def watch(
    player: str | PlayerLike,
    opponent: str | PlayerLike | None = None,
    *,
    game: str = DEFAULT_GAME,
    server: str = "http://127.0.0.1:8000",
    options: Mapping[str, Any] | None = None,
    seed: int | None = None,
    pace: float = 0.6,
    token: str = "",
    open_table: bool = True,
    show: Callable[[str], None] = print,
    give_up: float = 30.0,
) -> dict[str, Any]:
    """Plays one episode here and publishes it to a server of `kibitz serve`, where anyone can watch it.

    A player is a name, a function of the turn, or an object with `begin` and `choose`. `show` gets the page's address
    and then every line of commentary. `pace` is in seconds between steps; `give_up` is in seconds without the server.
    With `open_table=False`, watchers see both seats' private values only after the end.
    """
    given: dict[str, PlayerLike] = {}

    def name_of(one: str | PlayerLike | None) -> str:
        if one is None or isinstance(one, str):
            return one or ""
        name = str(getattr(one, "name", "") or getattr(one, "__name__", "") or type(one).__name__)
        name = name if name not in given else f"{name} 2"
        given[name] = one
        return name

    named = {"captain_preset": name_of(player), "opponent_choice": name_of(opponent)}
    request = EpisodeRequest.read(
        **{seat: name for seat, name in named.items() if name}, game=game, options=dict(options or {}), seed=seed,
        pace=pace, open=None if open_table else False,
    )  # fmt: skip
    secret = token or os.environ.get("KIBITZ_TOKEN", "")
    return drive(request, server, secret, show, give_up=give_up, resolver=GivenPlayers(given=given))


def drive(
    request: EpisodeRequest,
    server: str,
    token: str = "",
    show: Callable[[str], None] = lambda line: None,
    episode_id: str | None = None,
    give_up: float = float("inf"),
    resolver: Resolver = ANY_PATH,
) -> dict[str, Any]:
    """Plays one episode. Play continues while the server is unreachable; later the server gets every event."""
    server = server_address(server)
    request = request.completed()
    if HUMAN in request.seats:
        raise BadInput("A person plays on the server's page, not here; start that episode with `kibitz serve`.")
    episode_id = episode_id or new_episode_id()
    signal = StopSignal()
    prepared = prepare(request, Limits(resolver), signal)
    outlet = HttpOutlet(server, token, report=show, give_up=give_up)
    observer = BusObserver(episode_id=episode_id, outlet=outlet, open_table=request.shows_hands)

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
