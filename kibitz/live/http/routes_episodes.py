"""/episodes/*: what the store holds, replay, branches, the person's seat."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Path, Query, Request
from fastapi.responses import JSONResponse, Response

from kibitz.core.errors import BadInput, NotFound
from kibitz.live.bodies import Problem
from kibitz.live.episodes.branch import NotReplayable, read_branch
from kibitz.live.episodes.request import BranchRequest
from kibitz.live.episodes.timeouts import TimeLimitedPlayer
from kibitz.live.episodes.verify import verify
from kibitz.live.http import models
from kibitz.live.http.driver_events import LINES, Key, holds_key, read_events, row_of
from kibitz.live.http.routes_custom import CONFLICT, Responses, begin
from kibitz.live.store.base import EpisodeClosed, Row
from kibitz.live.store.base import Query as Which
from kibitz.live.store.sql import Store
from kibitz.live.store.stored_event import Viewer, decode_event, fold
from kibitz.live.stream.backlog import PAGE_BYTES, StreamedPages, read_page
from kibitz.live.stream.hub import Hub

Id = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
TEXT = r"^[^\x00]*$"  # PostgreSQL refuses NUL
CURSOR = r"^[0-9a-f]{16}-[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
Token = Annotated[str, Query(max_length=100)]
Since = Annotated[int, Query(ge=-1, le=1_000_000)]
NONE: Responses = {404: {"model": Problem, "description": "no such episode"}}
MAX_WAIT_SECONDS = 10.0  # between two events of a replay at speed 1
REPLAY_BYTES = 16 << 10  # of a record, read at once for a replay, which holds them as long as it waits
UNBUFFERED = {"cache-control": "no-store", "x-accel-buffering": "no"}
WORDS_SECONDS = 0.2  # between two looks at what a model has written
NO_SEAT = {"error": "No person takes that seat here; check the episode's id and the seat_token."}


def router() -> APIRouter:
    routes = APIRouter()
    _add_reading(routes)
    _add_streams(routes)
    _add_changing(routes)
    return routes


def _add_reading(routes: APIRouter) -> None:
    @routes.get("/episodes", response_model=models.EpisodePage)
    async def episodes(
        request: Request,
        game: Annotated[str | None, Query(max_length=100, pattern=TEXT)] = None,
        status: Literal["running", "ended", "failed", "interrupted"] | None = None,
        player: Annotated[str | None, Query(max_length=200, pattern=TEXT)] = None,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
        before: Annotated[str | None, Query(pattern=CURSOR)] = None,
        outline: bool = False,
    ) -> dict[str, Any]:
        """Newest first; `next` is the `before` of the next page. `outline`: with score and course of the game."""
        which = Which(game, status, player, limit + 1, None if before is None else _cursor(before))
        rows = await asyncio.to_thread(request.app.state.bus.store.episodes, which)
        more = _mark(rows[limit - 1]) if len(rows) > limit else None
        shown = [row.shown() for row in rows[:limit]]
        if outline:
            outlines = await asyncio.to_thread(lambda: [request.app.state.outlines.of(row) for row in rows[:limit]])
            watching = request.app.state.bus.watching()
            for one, found in zip(shown, outlines, strict=True):
                one["outline"] = found | {"watchers": watching[one["episode_id"]]}
        return {"episodes": shown, "next": more}

    @routes.get("/episodes/{episode_id}", responses=NONE, response_model=models.EpisodeSnapshot)
    async def episode(request: Request, episode_id: Id) -> Any:
        """One episode with its current frame: continue watching from `last_seq`."""
        row = await _row(request, episode_id)
        if row is None:
            return _missing(episode_id)
        channel = request.app.state.bus.hub.channels.get(episode_id)
        if channel is not None and channel.frame is not None:
            current, frame = replace(row, last_seq=channel.next - 1), channel.frame
        else:
            current, frame = await asyncio.to_thread(snapshot, request.app.state.bus.store, row)
        first = await asyncio.to_thread(request.app.state.bus.store.events, episode_id, -1, 1)
        cast = decode_event(first[0]).payload.get("cast") if first else None
        known = cast if isinstance(cast, dict) else {}
        return current.shown() | {"frame": frame or None, "about": dict(row.about), "cast": known}

    @routes.get("/episodes/{episode_id}/turn", responses=NONE)
    async def turn(request: Request, episode_id: Id, seat_token: Token = "") -> Any:
        """The open turn of a person's seat. The `turn.requested` event says the same without polling."""
        found = await request.app.state.peers.ask(episode_id, "turn", token=seat_token)
        if seat_token and found.get("wrong_token"):
            _note_wrong(request)
        return found["turn"] if "turn" in found else JSONResponse(NO_SEAT, 404)


def _add_streams(routes: APIRouter) -> None:
    @routes.get("/episodes/{episode_id}/events", responses={**NONE, 200: LINES}, response_class=Response)
    async def events(
        request: Request,
        episode_id: Id,
        since: Since = -1,
        seat_token: Token = "",
        episode_key: Key = None,
    ) -> Response:
        """Every event, one JSON object per line; of a running episode only what the caller may see."""
        row = await _row(request, episode_id)
        if row is None:
            return _missing(episode_id)
        if holds_key(row, episode_key):  # its driver may read back what it wrote
            row = replace(row, open_table=True)
        elif episode_key and row.origin == "driver":
            _note_wrong(request)
        lines = _lines(request.app.state.bus.hub, row, since, await _viewer(request, episode_id, seat_token))
        return StreamedPages(lines, media_type="application/x-ndjson")

    @routes.get(
        "/episodes/{episode_id}/stream",
        responses={**NONE, 200: {"content": {"text/event-stream": {}}}},
        response_class=Response,
    )
    async def stream(
        request: Request,
        episode_id: Id,
        speed: Annotated[float, Query(gt=0, le=1_000_000)] = 1.0,
        since: Since = -1,
        seat_token: Token = "",
    ) -> Response:
        """Replays the record at a multiple of its original speed."""
        row = await _row(request, episode_id)
        if row is None:
            return _missing(episode_id)
        viewer = await _viewer(request, episode_id, seat_token)
        lines = _lines(request.app.state.bus.hub, row, since, viewer, REPLAY_BYTES)
        return StreamedPages(_replayed(lines, speed), media_type="text/event-stream", headers=UNBUFFERED)

    @routes.get("/episodes/{episode_id}/thinking", responses={**NONE, 200: LINES}, response_class=Response)
    async def thinking(
        request: Request, episode_id: Id, seat: Annotated[int, Query(ge=0, le=1)], turn: Annotated[int, Query(ge=0)]
    ) -> Response:
        """What a player of an open table has written so far, as lines `{"text": ...}`, until it has acted."""
        player = request.app.state.runner.thinker(episode_id, seat, turn)
        if player is None:
            return JSONResponse({"error": "No player of an open table is working on that turn here."}, 404)
        return StreamedPages(_words(player, turn), media_type="application/x-ndjson", headers=UNBUFFERED)


def _add_changing(routes: APIRouter) -> None:
    @routes.post(
        "/episodes",
        status_code=201,
        responses=CONFLICT,
        response_model=models.LoadAnswer,
        openapi_extra={"requestBody": {**LINES, "required": True}},
    )
    async def load(request: Request) -> Any:
        """Imports a finished episode in the format of `GET /episodes/{id}/events`."""
        listed = await read_events(request)
        if not listed[-1].last:
            raise BadInput("The last line should be an episode.ended or episode.failed.")
        row = row_of(listed[0], "import")
        try:
            await asyncio.to_thread(request.app.state.bus.store.load, row, listed)
        except EpisodeClosed as closed:
            return _conflict(str(closed))
        verified = await asyncio.to_thread(verify, request.app.state.bus.store, row.episode_id)
        request.state.audit = {"episode_id": row.episode_id, "verified": verified}
        return {"episode_id": row.episode_id, "events": len(listed), "verified": verified}

    @routes.post(
        "/episodes/{episode_id}/branch",
        status_code=202,
        responses={**NONE, **CONFLICT},
        response_model=models.StartAnswer,
    )
    async def branch(request: Request, episode_id: Id, asked: Annotated[BranchRequest, Body()]) -> Any:
        """A new episode: the recorded one up to a turn, then continued by other players."""
        row = await _row(request, episode_id)
        if row is None:
            return _missing(episode_id)
        if row.status == "running":  # its seed would reveal the hidden values
            return _conflict("A running episode cannot be branched; wait for its end.")
        try:
            start, point = await asyncio.to_thread(read_branch, request.app.state.bus.store, row, asked)
            return await begin(request, start, point)
        except NotReplayable as problem:
            return _conflict(str(problem))
        except BadInput as wrong:  # names that another game has, or an option that this version lacks
            raise NotFound(str(wrong)) from None

    @routes.post("/episodes/{episode_id}/act", responses={**NONE, **CONFLICT}, response_model=models.ActAnswer)
    async def act(request: Request, episode_id: Id, asked: Annotated[models.ActRequest, Body()]) -> Any:
        """The person's act, as numbers or in words."""
        bearer = request.headers.get("authorization", "").partition(" ")[2].strip()
        peers, token = request.app.state.peers, asked.seat_token or bearer
        unclear = (asked.act is None) == (asked.text is None)
        given = {"act": asked.act, "text": asked.text, "turn": asked.turn}
        found = await peers.ask(episode_id, "join" if unclear else "act", token=token, **given)
        if "seat" not in found:
            if found.get("wrong_token"):
                _note_wrong(request)
            return JSONResponse(NO_SEAT, 404)
        request.state.audit = {"who": f"seat {found['seat']}", "role": "play"}
        if unclear:
            raise BadInput("Give either act, as numbers, or text, in words.")
        if "invalid" in found:
            raise BadInput(found["invalid"])
        return _conflict(found["conflict"]) if "conflict" in found else {"accepted": found["accepted"]}


async def _row(request: Request, episode_id: str) -> Row | None:
    row: Row | None = await asyncio.to_thread(request.app.state.bus.store.episode, episode_id)
    return row


def _conflict(sentence: str) -> JSONResponse:
    return JSONResponse({"error": sentence, "current": None}, 409)


def _missing(episode_id: str) -> JSONResponse:
    return JSONResponse({"error": f"There is no episode {episode_id}."}, 404)


async def _viewer(request: Request, episode_id: str, token: str) -> Viewer:
    seat: Viewer = await request.app.state.guard.access.seat(request.scope, episode_id, token)
    return seat


def _note_wrong(request: Request) -> None:
    request.app.state.guard.access.note_wrong(request.scope)


def _mark(row: Row) -> str:
    """A cursor behind this row: the eight bytes of its start, and its id."""
    return f"{struct.pack('>d', row.started_at).hex()}-{row.episode_id}"


def _cursor(text: str) -> tuple[float, str]:
    started: float = struct.unpack(">d", bytes.fromhex(text[:16]))[0]
    return started, text[17:]


def snapshot(store: Store, row: Row) -> tuple[Row, dict[str, Any]]:
    """The row and the whole frame of the same moment."""
    frame: dict[str, Any] = {}
    last = -1
    if row.status != "running":
        bodies = store.events(row.episode_id, row.last_seq - 1)
        frame = fold(frame, decode_event(bodies[-1])) if bodies else frame
        return row, frame
    while bodies := store.events(row.episode_id, last):
        for event in map(decode_event, bodies):
            frame, last = fold(frame, event), event.seq
    return replace(row, last_seq=last), frame


async def _lines(
    hub: Hub, row: Row, since: int, viewer: Viewer, max_bytes: int = PAGE_BYTES
) -> AsyncGenerator[bytes, None]:
    """A page at a time. Reads in the event loop's own threads: each keeps its connection to the store."""
    everything = row.open_table or row.status != "running"
    while True:
        await hub.backlog.room()
        events = await asyncio.to_thread(read_page, hub.store, row.episode_id, since, viewer, everything, max_bytes)
        if not events:
            return
        since += len(events)
        page = b"\n".join([*events, b""])
        del events
        with hub.backlog.page(len(page)):
            yield page


async def _words(player: TimeLimitedPlayer, turn: int) -> AsyncGenerator[bytes, None]:
    sent = ""
    while player.thinking_about == turn:
        if (text := player.words) != sent:
            sent = text
            yield json.dumps({"text": text}).encode() + b"\n"
        await asyncio.sleep(WORDS_SECONDS)


async def _replayed(chunks: AsyncGenerator[bytes, None], speed: float) -> AsyncGenerator[bytes, None]:
    last: float | None = None
    async with aclosing(chunks):  # a reader that leaves releases its page at once, not when Python collects it
        async for chunk in chunks:
            for line in chunk.splitlines():
                event = decode_event(line)
                if last is not None:
                    wait = min(max(event.ts - last, 0.0), MAX_WAIT_SECONDS) / speed
                    if wait > 0.0005:
                        await asyncio.sleep(wait)
                last = event.ts
                yield b"id: %d\ndata: %s\n\n" % (event.seq, line)
    yield b"event: end\ndata: {}\n\n"
