"""OpenEnv on our own app: `app.include_router(router(["cricket", "deal_or_no_deal"]))`.

At the root for one game and under `/envs/{game}/` for each: `/reset /step /state /schema /metadata /health
/ws /mcp` and the Task API, as OpenEnv 0.10 speaks them; the `openenv` package is not needed. Unlike there,
plain HTTP calls keep their episode: every answer names its session in `X-Session-Id`, and a call that sends
it back (header, query or body `session_id`) goes on with it.

`guard` is a dependency for every route, sockets included (it gets an `HTTPConnection`); whoever includes
the router gives its own for tokens and origins, unless something around the app does it. `/health` at the
root is the app's, and must say `"status": "healthy"`; `health=True` adds one.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request, Response, WebSocket
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException

from kibitz.core.envs.tool_env import models
from kibitz.core.errors import BadInput, NotFound
from kibitz.games import get_environment
from kibitz.live.http.numbers import EXACT, JsonRoute
from kibitz.live.openenv import mcp as openenv_mcp
from kibitz.live.openenv import tasks as openenv_tasks
from kibitz.live.openenv.sessions import Broken, Full, NoSession, Service, Session, Sessions
from kibitz.live.openenv.ws import Socket, play, rpc

HEADER = "X-Session-Id"
MCP_HEADER = "Mcp-Session-Id"


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


Count = Annotated[int, Field(ge=0, lt=EXACT)]


class ResetRequest(Strict):
    """Any option of the game may stand beside these: each game has its own, and checks them itself."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    seed: Count | None = None
    episode_id: str | None = Field(None, pattern=openenv_tasks.EPISODE)
    session_id: str | None = Field(None, max_length=64)


class StepRequest(Strict):
    action: dict[str, Any] = Field(description="see /schema")
    session_id: str | None = Field(None, max_length=64)
    timeout_s: float | None = Field(None, gt=0, description="accepted; a step takes milliseconds")
    request_id: str | None = Field(None, max_length=255)


class Stepped(BaseModel):
    observation: dict[str, Any]
    reward: float | None
    done: bool
    metadata: dict[str, Any]


class Said(BaseModel):
    error: str


class Split(Strict):
    split: str = Field(max_length=64)


class TaskIndex(Split):
    index: Count


class TaskRange(Split):
    start: int | None = None
    stop: int | None = None


class Route(JsonRoute):
    """Whatever is wrong is said in one sentence under `error`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        inner = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await inner(request)
            except RequestValidationError as error:
                first = error.errors()[0]
                where = ".".join(str(part) for part in first["loc"][1:])
                return _sorry(422, f"{where or 'The body'}: {first['msg']}.")
            except HTTPException as error:
                if error.status_code != 400:
                    raise
                return _sorry(422, "The body is not valid JSON.")
            except ValidationError as error:
                first = error.errors()[0]
                return _sorry(422, f"action.{'.'.join(map(str, first['loc']))}: {first['msg']}.")
            except NotFound as missing:
                return _sorry(404, str(missing))
            except BadInput as bad:
                return _sorry(422, str(bad))
            except NoSession as gone:
                return _sorry(404, str(gone))
            except Broken as broken:
                return _sorry(500, str(broken))
            except Full as full:
                return _sorry(429, str(full), code="CAPACITY_REACHED")

        return handle


def _sorry(status: int, text: str, **more: Any) -> JSONResponse:
    return JSONResponse({"error": text, **more}, status, headers={"Retry-After": "30"} if status == 429 else None)


ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": Said} for status in (404, 422, 429)}


def router(
    games: Sequence[str],
    default: str = "cricket",
    *,
    sessions: Sessions | None = None,
    guard: Callable[..., Any] | None = None,
    health: bool = False,
) -> APIRouter:
    """All routes. `sessions` is shared by the games; its `aclose()` belongs into the app's shutdown."""
    if default not in games:
        raise BadInput(f"The game at the root is {default!r}, which is not among {', '.join(games)}.")
    kept = Sessions() if sessions is None else sessions
    dependencies = [Depends(guard)] if guard is not None else []
    whole = APIRouter(route_class=Route, dependencies=dependencies, responses=ERRORS, tags=["OpenEnv"])
    whole.include_router(_routes(Service(default, kept), health))
    whole.get("/list_environments")(_listed(games))
    for game in games:
        service = Service(game, kept)
        own = _routes(service, True)
        own.get("/openapi.json", include_in_schema=False)(_described(own))
        whole.include_router(own, prefix=f"/envs/{game}")
        whole.include_router(_task_routes(service), prefix=f"/{game}")
    return whole


def _listed(games: Sequence[str]) -> Callable[[], list[str]]:
    def list_environments() -> list[str]:
        return list(games)

    return list_environments


def _described(routes: APIRouter) -> Callable[[], dict[str, Any]]:
    """What one game's address offers, for clients that take it for the whole server."""
    listed = list(routes.routes)  # as they are now, without the prefix they will get

    def openapi() -> dict[str, Any]:
        from kibitz import __version__

        return get_openapi(title="kibitz", version=__version__, routes=listed)

    return openapi


def _of_game(request: type[BaseModel], game: str, describe: Callable[[str, dict[str, Any]], None]) -> Any:
    """The request as this game's callers should read it; the game is imported when somebody asks for that."""
    told = {**request.model_config, "json_schema_extra": lambda schema: describe(game, schema)}
    return type(f"{request.__name__}_{game}", (request,), {"model_config": told, "__module__": __name__})


def _describe_step(game: str, schema: dict[str, Any]) -> None:
    schema["properties"]["action"] = models(get_environment(game)).action.model_json_schema()


def _describe_reset(game: str, schema: dict[str, Any]) -> None:
    from kibitz.live.http.openapi import reset_properties

    schema["properties"] |= reset_properties(game)
    schema["additionalProperties"] = {"type": "null"}  # null is as good as not given


def _describe_split(game: str, schema: dict[str, Any]) -> None:
    schema["properties"]["split"]["enum"] = list(openenv_tasks.splits(game))


def _routes(service: Service, health: bool) -> APIRouter:
    """One game behind one address."""
    routes = APIRouter(route_class=Route, responses=ERRORS)
    sessions, game = service.sessions, service.game

    async def reset(request: Request, response: Response, body: ResetRequest | None = None) -> Any:
        """A new episode: in the session that is named, or in a new one."""
        given = body.model_dump(exclude_none=True) if body is not None else {}
        session, fresh = _session(service, request, given.pop("session_id", None))
        return await _stepped(service, response, session, fresh, session.reset, given)

    async def step(request: Request, response: Response, body: StepRequest) -> Any:
        """One action. Without a session a new one begins with default options."""
        session, fresh = _session(service, request, body.session_id)
        return await _stepped(service, response, session, fresh, session.step, body.action)

    reset.__annotations__["body"] = _of_game(ResetRequest, game, _describe_reset) | None
    step.__annotations__["body"] = _of_game(StepRequest, game, _describe_step)
    routes.post("/reset", response_model=Stepped)(reset)
    routes.post("/step", response_model=Stepped)(step)

    @routes.get("/state")
    async def state(request: Request, session_id: str | None = None) -> dict[str, Any]:
        """Of the session that is named; without one, of an environment that has not begun."""
        named = session_id or request.headers.get(HEADER)
        if named is None:
            return await sessions.aside(Session(game).state)
        session = sessions.find(game, named)
        return await sessions.run(session, session.state)

    @routes.get("/schema")
    async def schema() -> dict[str, Any]:
        return await sessions.aside(_schemas, game)

    @routes.get("/metadata")
    async def metadata() -> dict[str, Any]:
        return await sessions.aside(_metadata, game)

    if health:

        @routes.get("/health")
        async def healthy() -> dict[str, Any]:
            return {"status": "healthy", "sessions": len(sessions), "max_sessions": sessions.limit}

    @routes.post("/mcp", responses={200: {"model": dict[str, Any]}, 202: {"description": "a notification"}})
    async def mcp(request: Request) -> Response:
        """JSON-RPC; `initialize` answers with a session in `Mcp-Session-Id`."""
        named = request.headers.get(MCP_HEADER) or request.headers.get(HEADER) or ""
        said = await openenv_mcp.answer(game, sessions, await request.body(), None, named)
        headers = {MCP_HEADER: said.session.id} if said.session is not None else None
        return Response(status_code=202) if said.body is None else JSONResponse(said.body, headers=headers)

    @routes.delete("/mcp", status_code=204, responses={202: {"model": dict[str, Any]}})
    async def mcp_end(mcp_session_id: Annotated[str, Header(min_length=1)]) -> Response:
        """Ends the session that is named; 202: a socket holds it, and it ends with the socket."""
        ended = openenv_mcp.end(game, sessions, mcp_session_id)
        return Response(status_code=204) if ended["closed"] else JSONResponse(ended, 202)

    @routes.websocket("/ws")
    async def ws(websocket: WebSocket) -> None:
        await Socket(websocket, service).talk(play)

    @routes.websocket("/mcp")
    async def mcp_ws(websocket: WebSocket) -> None:
        await Socket(websocket, service).talk(rpc)

    return routes


def _task_routes(service: Service) -> APIRouter:
    routes = APIRouter(route_class=Route, responses=ERRORS)
    game, aside = service.game, service.sessions.aside

    @routes.get("/splits")
    async def list_splits() -> list[dict[str, str]]:
        return [{"name": name, "type": "test"} for name in await aside(openenv_tasks.splits, game)]

    async def list_tasks(body: Split) -> dict[str, Any]:
        return {"tasks": await aside(openenv_tasks.tasks, game, body.split), "env_name": game}

    async def num_tasks(body: Split) -> dict[str, Any]:
        return {"num_tasks": await aside(openenv_tasks.count, game, body.split)}

    async def get_task(body: TaskIndex) -> dict[str, Any]:
        return {"task": await aside(openenv_tasks.task, game, body.split, body.index)}

    async def get_task_range(body: TaskRange) -> dict[str, Any]:
        return {"tasks": await aside(openenv_tasks.tasks, game, body.split, body.start, body.stop)}

    calls: dict[str, tuple[Callable[..., Any], type[Split]]] = {
        "tasks": (list_tasks, Split),
        "num_tasks": (num_tasks, Split),
        "task": (get_task, TaskIndex),
        "task_range": (get_task_range, TaskRange),
    }
    for name, (call, asked) in calls.items():
        call.__annotations__["body"] = _of_game(asked, game, _describe_split)
        routes.post(f"/{name}")(call)
    return routes


def _session(service: Service, request: Request, named: str | None) -> tuple[Session, bool]:
    """The one that is named, or a fresh one."""
    named = named or request.query_params.get("session_id") or request.headers.get(HEADER)
    if not named:
        return service.sessions.open(service.game), True
    return service.sessions.find(service.game, named), False


async def _stepped(
    service: Service, response: Response, session: Session, fresh: bool, call: Callable[..., dict[str, Any]], given: Any
) -> dict[str, Any]:
    try:
        shown = await service.sessions.run(session, call, given)
    except (BadInput, ValidationError):
        if fresh:  # nobody has been told its name
            service.sessions.close(session.id)
        raise
    response.headers[HEADER] = session.id
    return {**shown, "metadata": {**shown["observation"].get("metadata", {}), "session_id": session.id}}


def _schemas(game: str) -> dict[str, Any]:
    found = models(get_environment(game))
    seen = found.observation.model_json_schema()
    return {
        "action": found.action.model_json_schema(),
        "observation": seen,
        "reset_observation": seen,
        "state": found.state.model_json_schema(),
    }


def _metadata(game: str) -> dict[str, Any]:
    from kibitz import __version__

    about = getattr(get_environment(game), "title", None) or f"The game {game} of kibitz."
    return {"name": game, "description": about, "version": __version__}
