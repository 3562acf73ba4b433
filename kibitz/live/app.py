"""The server: one FastAPI app with everything embedded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

import kibitz
from kibitz.core.errors import BadInput, NotFound
from kibitz.games import game_names
from kibitz.live.config import LiveConfig
from kibitz.live.episodes.runner import Runner, fail_episode, note_closed
from kibitz.live.episodes.warmup import Warmth
from kibitz.live.http import models, pages, routes_custom, routes_episodes, watch
from kibitz.live.http.metrics import CONTENT_TYPE, Metrics
from kibitz.live.http.security import Guard
from kibitz.live.openenv import routes as openenv
from kibitz.live.openenv.sessions import Sessions
from kibitz.live.store.base import Query, StoreUnavailable, open_store
from kibitz.live.stream.bus import Bus
from kibitz.live.stream.redis_bus import open_link
from kibitz.live.voice.speech import open_speech

log = logging.getLogger("kibitz.live")
LOOK = 5.0  # seconds between two looks at what nobody plays, and at what was committed and not shown
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": models.Problem, "description": why}
    for status, why in (
        (400, "the body is no JSON"),
        (401, "the token is missing or wrong"),
        (403, "from another site"),
        (408, "the rest of the request did not come"),
        (413, "too large"),
        (422, "something in the request is wrong"),
        (429, "too many"),
        (503, "the store is away"),
    )
}


def create_app(config: LiveConfig | None = None) -> FastAPI:
    """Opens the store at once, so that a wrong one is a sentence and not a broken server."""
    config = config or LiveConfig()
    config.check()
    if config.commentator != "template":
        _check_commentator(config.commentator)
    store = open_store(config.store, config.patience)
    bus = Bus(store, open_link(config.bus))
    app = FastAPI(
        title="kibitz", version=kibitz.__version__, openapi_url=None, docs_url=None, redoc_url=None,
        responses=PROBLEMS, lifespan=_life,
    )  # fmt: skip
    app.state.config, app.state.bus, app.state.warmth = config, bus, Warmth()
    app.state.speech, app.state.sessions = open_speech(config.audio), Sessions()
    app.state.runner = Runner(bus, config, app.state.speech)
    app.state.guard = Guard(None, config)
    app.state.metrics = Metrics(app.state)
    app.include_router(routes_custom.router())
    app.include_router(routes_episodes.router())
    app.include_router(watch.router())
    _include_others(app)
    _add_plain_routes(app)
    _add_errors(app)
    app.add_middleware(_guarded, state=app.state)
    return app


def _check_commentator(name: str) -> None:
    """Loads the model now: a preset that cannot be used is a sentence at the start, not silence in a match."""
    from kibitz.games import get_game
    from kibitz.live.voice.commentator import commentator_for

    for game in game_names():
        commentator_for(get_game(game), name)


def _guarded(app: Any, state: Any) -> Guard:
    guard: Guard = state.guard
    guard.app = app
    return guard


@asynccontextmanager
async def _life(app: FastAPI) -> AsyncIterator[None]:
    state = app.state
    bus: Bus = state.bus
    bus.attach(asyncio.get_running_loop())
    left, silence = Left(bus, state.runner), state.config.driver_silence
    looked = asyncio.Event()

    async def look() -> None:
        try:
            await asyncio.to_thread(left.look)
        finally:
            looked.set()

    rounds = [
        (max(silence / 10, 0.5), routes_episodes.Silent(bus, silence).look),
        (1.0, bus.store.heartbeat),
    ]
    tasks = [asyncio.create_task(_every(seconds, partial(asyncio.to_thread, look))) for seconds, look in rounds]
    tasks.append(asyncio.create_task(_every(LOOK, partial(bus.hub.catch_up_all, LOOK))))
    tasks.append(asyncio.create_task(_every(LOOK, look, at_once=True)))
    with suppress(TimeoutError):  # a disk that is full, say, may hold up the closing of what was left, not the start
        await asyncio.wait_for(looked.wait(), LOOK)
    if bus.link is not None:
        tasks.append(asyncio.create_task(bus.link.run(bus.hub)))
    if state.config.warm:
        state.warmth.start(state.config.runs)
    try:
        yield
    finally:
        state.warmth.stop()
        await shut_down(state)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await state.sessions.aclose()
        await asyncio.to_thread(state.speech.close)
        if bus.link is not None:
            bus.link.close()
        await asyncio.to_thread(bus.store.close)


async def shut_down(state: Any) -> None:
    """Episodes end with an event that says why, then watchers are let go."""
    await state.runner.close()
    await asyncio.sleep(0.05)  # the last events are on their way to the sockets
    state.bus.hub.close()


class Left:
    """Closes what a crash has left running, this server's or another's, so that its record is whole; and what
    this server has lost sight of.

    Where servers share a store one look is no proof: a store that was away has forgotten who lives, until
    they have told it again. Who is missing at two looks is gone.
    """

    def __init__(self, bus: Bus, runner: Runner) -> None:
        self._bus, self._runner = bus, runner
        self._missing: set[str] = set()

    def look(self) -> None:
        store = self._bus.store
        store.heartbeat()
        left = {row.episode_id for row in store.orphaned()}
        for episode_id in left & self._missing if store.shared else left:
            if episode_id not in self._bus.unclosed:  # or it has been said
                log.warning("episode %s was interrupted", episode_id)
            fail_episode(self._bus, episode_id, "interrupted", "The server stopped in the middle of it.")
        self._missing = left
        for row in store.episodes(Query(status="running", limit=1000)):
            if row.origin == "server" and row.owner == store.owner and row.episode_id not in self._runner.running:
                fail_episode(self._bus, row.episode_id, "error", "It could not be recorded to its end.")
        for episode_id in list(self._bus.unclosed):  # another server may have managed
            found = store.episode(episode_id)
            if found is None or found.status != "running":
                note_closed(self._bus, episode_id)


async def _every(seconds: float, look: Callable[[], Awaitable[None]], at_once: bool = False) -> None:
    while True:
        if not at_once:
            await asyncio.sleep(seconds)
        at_once = False
        try:
            await look()
        except Exception as error:  # the store is away; the next round comes
            log.warning("cannot look after what others play: %s", error)


def _include_others(app: FastAPI) -> None:
    """Speech, OpenEnv and the pages bring their own routes."""
    app.include_router(app.state.speech.router())
    app.include_router(openenv.router(game_names(), sessions=app.state.sessions))
    app.include_router(pages.router())


def _add_plain_routes(app: FastAPI) -> None:
    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Whether it lives, and whether the games are compiled yet."""
        state = app.state
        return {
            "status": "healthy",
            "version": kibitz.__version__,
            "warm": state.warmth.state,
            "store": state.bus.store.name,
            "bus": state.bus.name,
            "running": len(state.runner.running),
        }

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> JSONResponse:
        """Asks the games what they take, so it loads them; not on the event loop."""
        return JSONResponse(await asyncio.to_thread(app.openapi))

    @app.get("/metrics", response_class=PlainTextResponse)
    async def figures() -> PlainTextResponse:
        """For Prometheus."""
        return PlainTextResponse(app.state.metrics.page(), media_type=CONTENT_TYPE)


def _add_errors(app: FastAPI) -> None:
    """Every error is one sentence."""

    @app.exception_handler(RequestValidationError)
    async def wrong(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
        return _problem(422, f"{name or 'The body'}: {first['msg'].removeprefix('Value error, ')}.")

    @app.exception_handler(NotFound)
    async def missing(request: Request, error: NotFound) -> JSONResponse:
        return _problem(404, str(error))

    @app.exception_handler(BadInput)
    async def bad(request: Request, error: BadInput) -> JSONResponse:
        return _problem(422, str(error))

    @app.exception_handler(StoreUnavailable)
    async def away(request: Request, error: StoreUnavailable) -> JSONResponse:
        return _problem(503, str(error))

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> JSONResponse:
        headers = dict(error.headers or {})
        if error.status_code == 405:  # the router names only the methods of the first route at this path
            headers["Allow"] = ", ".join(_methods(app, request.url.path))
        nowhere = error.status_code == 404 and error.detail == "Not Found"
        sentence = "There is nothing at this address; /openapi.json lists what there is." if nowhere else error.detail
        return JSONResponse({"error": str(sentence)}, error.status_code, headers)

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> JSONResponse:
        return _problem(500, "Something went wrong in the server; its log says what.")


def _methods(app: FastAPI, path: str) -> list[str]:
    found: set[str] = set()
    for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"):
        scope: dict[str, Any] = {"type": "http", "method": method, "path": path, "root_path": "", "headers": []}
        if any(route.matches(scope)[0] == Match.FULL for route in app.routes):
            found.add(method)
    return sorted(found)


def _problem(status: int, sentence: str) -> JSONResponse:
    return JSONResponse({"error": sentence}, status)
