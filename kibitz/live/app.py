"""The server: one FastAPI app with everything embedded."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

import kibitz
from kibitz.core.registry import import_jax
from kibitz.games import game_names, usable_games
from kibitz.live.config import LiveConfig
from kibitz.live.episodes import janitor
from kibitz.live.episodes.peers import Peers
from kibitz.live.episodes.reference import References
from kibitz.live.episodes.runner import Runner
from kibitz.live.episodes.warmup import Warmup
from kibitz.live.http import pages, routes_custom, routes_episodes, watch
from kibitz.live.http.catalogue import Catalogue
from kibitz.live.http.driver_events import DriverEvents
from kibitz.live.http.errors import PROBLEMS, add_error_handlers
from kibitz.live.http.metrics import CONTENT_TYPE, Metrics
from kibitz.live.http.security import Guard
from kibitz.live.openenv import routes as openenv
from kibitz.live.openenv.sessions import Sessions
from kibitz.live.site import routes as site
from kibitz.live.site.card import Cards
from kibitz.live.site.outline import Outlines
from kibitz.live.store.base import open_store
from kibitz.live.store.readiness import CHECK_SECONDS, Readiness
from kibitz.live.stream.bus import Bus
from kibitz.live.stream.redis_bus import open_link
from kibitz.live.voice.speech import open_speech

log = logging.getLogger("kibitz.live")
HEARTBEAT_SECONDS = 1.0
FLUSH_SECONDS = 0.05  # in which an episode's last events reach the sockets


def create_app(config: LiveConfig | None = None) -> FastAPI:
    """Opens the store and checks the configuration; BadInput if the server could not work."""
    config = config or LiveConfig()
    config.check()
    if config.commentator != "template":
        _check_commentator(config.commentator)
    bus = Bus(open_store(config.store, config.store_timeout), open_link(config.bus))
    app = FastAPI(
        title="kibitz", version=kibitz.__version__, openapi_url=None, docs_url=None, redoc_url=None,
        responses=PROBLEMS, lifespan=lifespan,
    )  # fmt: skip
    app.state.config, app.state.bus, app.state.warmup = config, bus, Warmup()
    app.state.speech, app.state.sessions = open_speech(config.audio), Sessions(runs=config.runs)
    app.state.driver_events = DriverEvents(bus, app.state.speech, config.max_drivers)
    app.state.runner = Runner(bus, config, app.state.speech)
    app.state.guard = Guard(None, config, bus.hub.backlog)
    app.state.peers = Peers(app.state.runner)
    app.state.guard.access.join = app.state.peers.join
    app.state.catalogue = Catalogue(config.runs, config.default_game)
    app.state.outlines = Outlines(bus.store)
    app.state.cards = Cards(app.state.outlines)
    app.state.references = References(bus.store, config.runs)
    app.state.metrics, app.state.readiness = Metrics(app.state), Readiness(bus.store)
    games = game_names()
    default_game = config.default_game or games[0]
    for router in (
        routes_custom.router(), routes_episodes.router(), site.router(), watch.router(), app.state.speech.router(),
        openenv.router(games, default_game, app.state.sessions), pages.router(),
    ):  # fmt: skip
        app.include_router(router)
    _add_plain_routes(app, default_game)
    add_error_handlers(app)
    app.add_middleware(_guarded, state=app.state)
    return app


def _check_commentator(name: str) -> None:
    """Loads the model now: an unusable preset is an error at startup, not silence during an episode."""
    from kibitz.games import get_game
    from kibitz.live.voice.commentator import commentator_for

    for game in usable_games():
        commentator_for(get_game(game), name)


def _guarded(app: Any, state: Any) -> Guard:
    guard: Guard = state.guard
    guard.app = app
    return guard


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    state = app.state
    bus: Bus = state.bus
    bus.attach(asyncio.get_running_loop())
    async with _janitors(state):
        if state.config.warm:
            state.warmup.start(state.config.runs)
        try:
            yield
        finally:
            state.warmup.stop()
            await shut_down(state)
    await state.sessions.aclose()
    await asyncio.to_thread(state.speech.close)
    await asyncio.to_thread(state.guard.access.audit.close)
    if bus.link is not None:
        bus.link.close()
    await asyncio.to_thread(bus.store.close)


@asynccontextmanager
async def _janitors(state: Any) -> AsyncIterator[None]:
    """The periodic tasks of a server. Starts after the first sweep, unless that takes too long."""
    bus: Bus = state.bus
    orphans = janitor.OrphanSweeper(bus, state.runner.running)
    drivers = janitor.DriverTimeouts(bus, state.config.driver_timeout)
    swept, seconds = asyncio.Event(), janitor.SWEEP_SECONDS

    async def sweep_orphans() -> None:
        try:
            await asyncio.to_thread(orphans.sweep)
        finally:
            swept.set()

    jobs = [
        _every(max(state.config.driver_timeout / 10, 0.5), partial(asyncio.to_thread, drivers.sweep)),
        _every(HEARTBEAT_SECONDS, partial(asyncio.to_thread, bus.store.heartbeat)),
        _every(CHECK_SECONDS, partial(asyncio.to_thread, state.readiness.check), at_once=True),
        _every(seconds, partial(bus.hub.catch_up_all, seconds)),
        _every(seconds, sweep_orphans, at_once=True),
    ]
    if bus.link is not None:
        jobs.append(bus.link.run(bus.hub))
    tasks = [asyncio.create_task(job) for job in jobs]
    with suppress(TimeoutError):  # a full disk, for example, may delay the sweep, but not the start
        await asyncio.wait_for(swept.wait(), seconds)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def shut_down(state: Any) -> None:
    """Ends every episode with an event that says why, then releases the watchers."""
    await state.runner.close()
    await asyncio.sleep(FLUSH_SECONDS)
    state.bus.hub.close()


async def _every(seconds: float, job: Callable[[], Awaitable[None]], at_once: bool = False) -> None:
    while True:
        if not at_once:
            await asyncio.sleep(seconds)
        at_once = False
        try:
            await job()
        except Exception as error:  # the store is unavailable; the next round tries again
            log.warning("a periodic task failed: %s", error)


def _add_plain_routes(app: FastAPI, default_game: str) -> None:
    described: list[pages.File] = []  # the OpenAPI document, after the first request for it
    describing = asyncio.Lock()

    def document() -> pages.File:
        import_jax()
        from kibitz.live.http.openapi import describe_games

        return pages.file_of(json.dumps(describe_games(app.openapi(), default_game)).encode(), "application/json")

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Whether the server is alive, and whether the games are compiled."""
        state = app.state
        return {
            "status": "healthy",
            "version": kibitz.__version__,
            "warm": state.warmup.state,
            "store": state.bus.store.name,
            "bus": state.bus.name,
            "running": len(state.runner.running),
        }

    @app.get("/ready", response_model=None)
    async def ready() -> JSONResponse | dict[str, str]:
        """Whether the server accepts episodes; 503 with the reason if it does not."""
        closing = "The server is shutting down." if app.state.runner.closing else ""
        if problem := closing or app.state.readiness.problem:
            return JSONResponse({"error": problem}, 503)
        return {"status": "ready"}

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi(request: Request) -> Response:
        """Loads the games to ask them for their options, so it runs off the event loop, once."""
        async with describing:
            if not described:
                described.append(await asyncio.to_thread(document))
        return described[0].answer(request)

    @app.get("/metrics", response_class=PlainTextResponse)
    async def figures() -> PlainTextResponse:
        """Metrics for Prometheus."""
        return PlainTextResponse(app.state.metrics.page(), media_type=CONTENT_TYPE)
