"""/custom/*: start, stop, status, presets, schema, and where drivers elsewhere send their events."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, BackgroundTasks, Body, Request
from fastapi.responses import JSONResponse

import kibitz
from kibitz.live.access.roles import LOCAL
from kibitz.live.bodies import Problem
from kibitz.live.episodes.branch import BranchPoint
from kibitz.live.episodes.request import EpisodeRequest
from kibitz.live.episodes.runner import Busy, NotYours, Runner
from kibitz.live.episodes.verify import verify
from kibitz.live.http import models
from kibitz.live.http.driver_events import LINES, Key, WrongKey, read_events
from kibitz.live.store.base import EpisodeClosed, SequenceGap

Responses = dict[int | str, dict[str, Any]]
CONFLICT: Responses = {409: {"model": models.ConflictProblem, "description": "not possible now"}}


def router() -> APIRouter:
    routes = APIRouter(prefix="/custom")
    _add_starting(routes)
    _add_reading(routes)

    @routes.post(
        "/events",
        responses={
            403: {"model": Problem, "description": "another driver's episode, or not allowed"},
            409: {"model": models.GapProblem, "description": "an event is missing, or the episode is over"},
        },
        response_model=models.EventsAnswer,
        response_model_exclude_none=True,
        openapi_extra={"requestBody": {**LINES, "required": True}},
    )
    async def events(request: Request, later: BackgroundTasks, episode_key: Key = None) -> Any:
        """Events of an episode that is played elsewhere, one JSON object per line; duplicates are harmless."""
        listed = await read_events(request)
        try:
            answer = await asyncio.to_thread(request.app.state.driver_events.commit, listed, episode_key)
        except WrongKey as wrong:
            request.state.audit = {"episode_id": listed[0].episode_id}
            request.app.state.guard.access.note_wrong(request.scope)
            return JSONResponse({"error": str(wrong)}, 403)
        except SequenceGap as gap:
            return JSONResponse({"error": str(gap), "expected": gap.expected}, 409)
        except EpisodeClosed as closed:
            return JSONResponse({"error": str(closed), "expected": None}, 409)
        # the audit log has a line for an episode's beginning and its end
        worth = listed[0].seq == 0 or listed[-1].last
        request.state.audit = {"episode_id": listed[0].episode_id} if worth else None
        if listed[-1].last:
            later.add_task(asyncio.to_thread, verify, request.app.state.bus.store, listed[-1].episode_id)
        return answer

    return routes


def _add_starting(routes: APIRouter) -> None:
    missing: Responses = {404: {"model": Problem, "description": "no such run or preset"}}
    none: Responses = {404: {"model": Problem, "description": "no such episode runs here"}}

    @routes.post("/start_episode", status_code=202, responses=CONFLICT | missing, response_model=models.StartAnswer)
    async def start_episode(request: Request, asked: Annotated[EpisodeRequest, Body()]) -> Any:
        """Starts an episode in the background."""
        return await begin(request, asked)

    @routes.post("/stop_episode", responses=none, response_model=models.StopAnswer)
    async def stop_episode(request: Request, asked: Annotated[models.StopRequest | None, Body()] = None) -> Any:
        """Stops an episode; its last event says so."""
        who = request.state.principal
        try:
            only_of = None if who.may("administer") else who.name
            stopped = await request.app.state.peers.stop(asked.episode_id if asked else None, only_of)
        except NotYours as problem:
            return JSONResponse({"error": str(problem)}, 403)
        if stopped is None:
            return JSONResponse({"error": "No such episode runs here."}, 404)
        request.state.audit = {"episode_id": stopped}
        return {"stopped": stopped}


def _add_reading(routes: APIRouter) -> None:
    @routes.get("/status")
    async def status(request: Request) -> dict[str, Any]:
        """The running episodes, how many watch each of them on any server, and how many watch here."""
        state = request.app.state
        watching = state.bus.watching()
        who = request.state.principal
        administers = who != LOCAL and who.may("administer")  # without tokens everyone may, and no page offers it
        about = {"version": kibitz.__version__, "embed": bool(state.config.embed), "administers": administers}
        running = await state.peers.running()
        return {"running": running, "watchers": state.bus.hub.watchers, "watching": watching} | about

    @routes.get("/presets")
    async def presets(request: Request) -> dict[str, Any]:
        """Games and players that can be started, and why some cannot."""
        state = request.app.state
        listed: dict[str, Any] = await state.catalogue.games()
        return listed | {"speech": state.speech.described()}

    @routes.get("/schema")
    async def schema() -> dict[str, Any]:
        """JSON schema of every event type."""
        from kibitz.live.stream.schema import event_schemas

        return event_schemas()


async def begin(request: Request, asked: EpisodeRequest, branch: BranchPoint | None = None) -> Any:
    """202 with the episode's id, or 409 with what runs."""
    try:
        runner: Runner = request.app.state.runner
        episode = await runner.start(asked, branch, request.state.principal.name)
    except Busy as busy:
        return JSONResponse({"error": str(busy), "current": busy.current}, 409)
    request.state.audit = {"episode_id": episode.episode_id}
    url = f"/e/{episode.episode_id}"
    return {
        "episode_id": episode.episode_id,
        "game": episode.game,
        "players": list(episode.players),
        "url": url,
        "note": episode.note or None,
        "seats": [
            {"seat": seat, "token": token, "url": f"{url}#seat={token}"} for token, (seat, _) in episode.seats.items()
        ],
        "seat_token": next(iter(episode.seats), None),
    }
