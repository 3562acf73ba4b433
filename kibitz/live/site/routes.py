"""Leaderboard, players, tournaments, training runs, reports and share cards."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import JSONResponse, Response

from kibitz.live.bodies import Problem
from kibitz.live.http import catalogue, models
from kibitz.live.http.routes_custom import CONFLICT, Responses
from kibitz.live.http.routes_episodes import NONE, TEXT, Id, Since
from kibitz.live.site.records import comparable
from kibitz.live.stream.backlog import StreamedPages, file_pages

REPORT_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
CARD_POLICY = "sandbox; default-src 'none'; frame-ancestors 'none'"
CARD: Responses = {**NONE, 200: {"content": {"image/png": {}}}}
PAGE: Responses = {
    404: {"model": Problem, "description": "no such report"},
    200: {"content": {"text/html": {}}},
}


def router() -> APIRouter:
    routes = APIRouter()
    _add_players(routes)
    _add_runs(routes)

    @routes.get("/episodes/{episode_id}/card.png", responses=CARD, response_class=Response)
    async def card(request: Request, episode_id: Id, seq: Since | None = None) -> Response:
        """A share card: the position after event `seq`, or the newest one, as a PNG picture of public values."""
        state = request.app.state
        row = await asyncio.to_thread(state.bus.store.episode, episode_id)
        if row is None:
            return JSONResponse({"error": f"There is no episode {episode_id}."}, 404)
        drawn = await asyncio.to_thread(state.cards.png, row, seq)
        headers = {"Content-Security-Policy": CARD_POLICY, "Cache-Control": "no-cache"}
        return Response(drawn, media_type="image/png", headers=headers)

    @routes.get(
        "/episodes/{episode_id}/reference", responses={**NONE, **CONFLICT}, response_model=models.ReferenceReplay
    )
    async def reference(request: Request, episode_id: Id) -> Any:
        """What the game's reference player would have got in each seat, with the same partner and the same luck."""
        state = request.app.state
        row = await asyncio.to_thread(state.bus.store.episode, episode_id)
        if row is None:
            return JSONResponse({"error": f"There is no episode {episode_id}."}, 404)
        if row.status != "ended":  # before the end a replay would reveal the hidden values
            return JSONResponse({"error": "Only an episode that was played to its end can be compared."}, 409)
        return await state.references.of(row)

    return routes


def _add_players(routes: APIRouter) -> None:
    @routes.get("/leaderboard.json")
    async def leaderboard(request: Request) -> dict[str, Any]:
        """By game and player, over all finished episodes; no wins in games that have no winner."""
        store = request.app.state.bus.store
        return {"players": await asyncio.to_thread(lambda: comparable(store.leaderboard()))}

    @routes.get("/player.json", response_model=models.PlayerPage)
    async def player(request: Request, name: Annotated[str, Query(min_length=1, max_length=200, pattern=TEXT)]) -> Any:
        """One player: whether it can play here, its record against each opponent, its ratings, its learning curve."""
        state = request.app.state
        games = (await state.catalogue.games())["games"]
        listed = [one for game in games.values() for one in game["players"] if one["name"] == name]
        runs = state.config.runs

        def read() -> dict[str, Any]:
            run = name.removeprefix("policy:") if name.startswith("policy:") else ""
            return {
                "name": name,
                "kind": listed[0]["kind"] if listed else "",
                "why": listed[0]["why"] if listed else "",
                "about": listed[0]["about"] if listed else "",
                "opponents": comparable(state.bus.store.opponents(name)),
                "ratings": catalogue.ratings_of(runs, name),
                "run": catalogue.run_named(runs, run.partition("#")[0]) if run else None,
            }

        return await asyncio.to_thread(read)

    @routes.get("/tournaments.json", response_model=models.TournamentList)
    async def tournaments(request: Request) -> Any:
        """Tournaments in the runs folder, with ratings and head-to-head records."""
        return {"tournaments": await asyncio.to_thread(catalogue.tournaments_in, request.app.state.config.runs)}


def _add_runs(routes: APIRouter) -> None:
    @routes.get("/runs.json")
    async def runs(request: Request) -> dict[str, Any]:
        """Training runs of this server."""
        return {"runs": await asyncio.to_thread(catalogue.runs_in, request.app.state.config.runs)}

    @routes.get("/runs/{name}.json", responses=NONE)
    async def run(request: Request, name: Annotated[str, Path(max_length=200)]) -> Any:
        """One run with its learning curve."""
        found = await asyncio.to_thread(catalogue.run_named, request.app.state.config.runs, name)
        return JSONResponse({"error": "There is no such run."}, 404) if found is None else found

    @routes.get("/reports.json")
    async def reports(request: Request) -> dict[str, Any]:
        """Reports of studies and tournaments in the runs folder."""
        return {"reports": await asyncio.to_thread(catalogue.reports_in, request.app.state.config.runs)}

    @routes.get("/reports/{name}.html", responses=PAGE, response_class=Response)
    async def report(request: Request, name: Annotated[str, Path(max_length=200)]) -> Response:
        """One report as its own page, which may run nothing and load nothing."""
        found = await asyncio.to_thread(catalogue.report_page, request.app.state.config.runs, name)
        if found is None:
            return JSONResponse({"error": "There is no such report."}, 404)
        pages = file_pages(request.app.state.bus.hub.backlog, found)
        headers = {"Content-Security-Policy": REPORT_POLICY}
        return StreamedPages(pages, media_type="text/html; charset=utf-8", headers=headers)
