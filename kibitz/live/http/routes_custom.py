"""/custom/*: start, stop, status, presets, schema, and where drivers elsewhere send their events."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Body, Request
from fastapi.responses import JSONResponse
from pydantic import ValidationError

import kibitz
from kibitz.core.errors import BadInput
from kibitz.core.options import sentence
from kibitz.core.play.events import TYPES
from kibitz.live.episodes.runner import Busy, Live
from kibitz.live.http import models
from kibitz.live.http.numbers import JsonRoute
from kibitz.live.store.base import EpisodeClosed, Row, SequenceGap
from kibitz.live.store.stored_event import StoredEvent, event_from_dict
from kibitz.live.stream.bus import Bus
from kibitz.live.stream.bus_observer import TextToSpeech, with_audio

MOST = 1e9  # of a return: their sums and means must stay numbers
LINES = {"content": {"application/x-ndjson": {"schema": {"type": "string", "description": "one event a line"}}}}


def router() -> APIRouter:
    routes = APIRouter(prefix="/custom", route_class=JsonRoute)
    busy: dict[int | str, dict[str, Any]] = {409: {"model": models.Busy, "description": "another episode runs"}}

    missing: dict[int | str, dict[str, Any]] = {404: {"model": models.Problem, "description": "no such run or preset"}}

    @routes.post("/start_episode", status_code=202, responses=busy | missing, response_model=models.Started)
    async def start_episode(request: Request, wish: Annotated[models.Start, Body()]) -> Any:
        """Begins an episode in the background."""
        return await begin(request, wish_of(wish))

    @routes.post("/stop_episode", responses={404: {"model": models.Problem}}, response_model=models.Stopped)
    async def stop_episode(request: Request, which: Annotated[models.Stop | None, Body()] = None) -> Any:
        """Ends an episode; its last event says so."""
        stopped = request.app.state.runner.stop(which.episode_id if which else None)
        if stopped is None:
            return JSONResponse({"error": "No such episode runs here."}, 404)
        return {"stopped": stopped}

    @routes.get("/status")
    async def status(request: Request) -> dict[str, Any]:
        """What runs here, and how many watch."""
        state = request.app.state
        running = [live.meta() for live in list(state.runner.running.values())]
        return {"running": running, "watchers": state.bus.hub.watchers, "version": kibitz.__version__}

    @routes.get("/presets")
    async def presets(request: Request) -> dict[str, Any]:
        """What can be started, and why some of it cannot be used here."""
        return await asyncio.to_thread(_presets, request.app.state)

    @routes.get("/schema")
    async def schema() -> dict[str, Any]:
        """JSON schema of every event type."""
        from kibitz.live.stream.schema import event_schemas

        return event_schemas()

    @routes.post(
        "/events",
        responses={409: {"model": models.Missed, "description": "an event was left out, or the episode is over"}},
        response_model=models.Taken,
        openapi_extra={"requestBody": {**LINES, "required": True}},
    )
    async def events(request: Request) -> Any:
        """Events of an episode that is played elsewhere, one JSON object a line; sending one twice is harmless."""
        listed = parse_lines(await request.body())
        try:
            return await asyncio.to_thread(_take, request.app.state.bus, listed, request.app.state.speech)
        except SequenceGap as gap:
            return JSONResponse({"error": str(gap), "expected": gap.expected}, 409)
        except EpisodeClosed as closed:
            return JSONResponse({"error": str(closed), "expected": None}, 409)

    return routes


def wish_of(asked: models.Start) -> dict[str, Any]:
    """A start in the words of `plan.Wish`; the seat a person takes has the player `human`."""
    values = asked.model_dump(exclude={"human_seat"})
    if asked.human_seat is not None:
        seat = "captain_preset" if asked.human_seat == 0 else "opponent_choice"
        values["instead_of"], values[seat] = values[seat], "human"
    return values


async def begin(request: Request, values: dict[str, Any]) -> Any:
    """202 with the id that is used everywhere, or 409 with what runs."""
    wish = await asyncio.to_thread(_wish, values)
    try:
        live: Live = await request.app.state.runner.start(wish)
    except Busy as busy:
        return JSONResponse({"error": str(busy), "current": busy.current}, 409)
    return {
        "episode_id": live.episode_id,
        "game": live.game,
        "players": list(live.players),
        "url": f"/e/{live.episode_id}",
        "seat_token": next(iter(live.seats), None),
    }


def _wish(values: dict[str, Any]) -> Any:
    from kibitz.live.episodes.prepare import Wish  # loads JAX

    return Wish(**values)


def parse_lines(body: bytes) -> list[StoredEvent]:
    """Events of one episode, in order, as JSON Lines; BadInput says which line is wrong."""
    listed: list[StoredEvent] = []
    for number, line in enumerate(body.splitlines(), 1):
        if not line.strip():
            continue
        try:
            given = models.Envelope.model_validate(orjson.loads(line), strict=False)
        except orjson.JSONDecodeError:
            raise BadInput(f"Line {number} is not a JSON object.") from None
        except ValidationError as error:
            raise BadInput(f"Line {number}: {sentence(models.Envelope, error, 'key')}") from None
        if given.type not in TYPES:
            raise BadInput(f"Line {number} has the type {given.type!r}; there are {', '.join(TYPES)}.")
        if wrong := _unsound(given.type, given.payload):
            raise BadInput(f"Line {number}: {wrong}")
        listed.append(StoredEvent(event_from_dict(given.model_dump())))
    if not listed:
        raise BadInput("There is no event; send one JSON object a line.")
    first = listed[0]
    for place, event in enumerate(listed):
        if event.episode_id != first.episode_id or event.seq != first.seq + place:
            raise BadInput(f"Line {place + 1}: the events should be of one episode, with seq rising by one.")
        if event.last and event is not listed[-1]:
            raise BadInput(f"Line {place + 1} is a last event; nothing may follow it.")
    return listed


def _unsound(kind: str, payload: dict[str, Any]) -> str:
    """What the server itself reads of a payload must be what it takes it for; the rest is the driver's business."""
    if not isinstance(payload.get("frame", {}), dict | None):
        return "the frame should be an object."
    private = payload.get("private", {})
    if not isinstance(private, dict) or not all(isinstance(part, dict) for part in private.values()):
        return "private should be an object with an object for each seat."
    if kind == "episode.ended":
        returns = payload.get("returns")
        pair = returns if isinstance(returns, list) and len(returns) == 2 else [None]
        if not all(isinstance(x, int | float) and abs(x) <= MOST for x in pair):
            return f"an episode.ended needs returns: two numbers, none beyond {MOST:g}."
    return ""


def row_of(first: StoredEvent, origin: str) -> Row:
    """The episode that an `episode.started` begins; BadInput if it is none."""
    event = first.event
    if event.seq != 0 or event.type != "episode.started":
        raise BadInput("The first event should be an episode.started with seq 0.")
    payload = event.payload
    players, about = payload.get("players"), payload.get("about", {})
    names = [payload.get("game"), *(players if isinstance(players, list) else [])]
    if len(names) != 3 or not all(isinstance(name, str) and len(name) <= 200 and "\0" not in name for name in names):
        raise BadInput("An episode.started needs game and two players.")
    if not isinstance(about, dict):
        raise BadInput("The about of an episode.started should be an object.")
    game, first_player, second_player = (str(name) for name in names)
    opened = about.get("open") is True
    return Row(
        event.episode_id, game, (first_player, second_player), event.ts, origin=origin, open_table=opened, about=about
    )


def _take(bus: Bus, listed: list[StoredEvent], speech: TextToSpeech | None) -> dict[str, int]:
    """Commits them; commentary gets its audio here, where it is served."""
    row = bus.store.episode(listed[0].episode_id)
    if row is None and listed[0].seq > 0:
        raise SequenceGap(0)
    if row is None:
        row = row_of(listed[0], "driver")
        bus.begin(row)
    if row.origin != "driver":
        raise EpisodeClosed(f"Episode {row.episode_id} is not played elsewhere.")
    tts = speech if row.about.get("speech") is True else None
    added = sum(bus.publish(StoredEvent(with_audio(event.event, tts), row.open_table)) for event in listed)
    return {"next": listed[-1].seq + 1, "added": added}


def _presets(state: Any) -> dict[str, Any]:
    from kibitz.games import game_names
    from kibitz.live.episodes.prepare import describe
    from kibitz.live.http.catalogue import players_of

    runs: Path = state.config.runs
    games = {}
    for name in game_names():
        told = dict(describe(name))
        bots = told.pop("rules")
        games[name] = {**told, "players": players_of(name, bots, runs)}
    return {"games": games, "speech": state.speech.described()}
