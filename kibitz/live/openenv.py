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

from fastapi import APIRouter, Depends, Request, Response, WebSocket
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException

from kibitz.core.environment import models
from kibitz.core.errors import BadInput
from kibitz.games import get_environment
from kibitz.live import openenv_mcp, openenv_tasks
from kibitz.live.openenv_ws import Socket, play, rpc
from kibitz.live.sessions import Broken, Full, NoSession, Service, Session, Sessions

HEADER = "X-Session-Id"
MCP_HEADER = "Mcp-Session-Id"


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def _whole(value: Any) -> Any:
    """JSON knows one kind of number: 7.0 is 7."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]


class ResetRequest(Strict):
    """Any option of the game may stand beside these: each game has its own, and checks them itself."""

    model_config = ConfigDict(
        extra="allow", strict=True, allow_inf_nan=False, json_schema_extra={"additionalProperties": False}
    )

    seed: Whole | None = Field(None, ge=0, lt=2**53, description="as far as every JSON reader can count")
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
    index: Whole


class TaskRange(Split):
    start: Whole | None = None
    stop: Whole | None = None


class Route(APIRoute):
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

    def at_root() -> Service:
        return Service(default, kept)

    def by_name(game: str) -> Service:
        if game not in games:
            raise NoGame(game, games)
        return Service(game, kept)

    whole.include_router(_routes(at_root, health, default))
    named = _routes(by_name, True)
    named.get("/openapi.json", include_in_schema=False)(_described(_routes(at_root, True)))
    whole.include_router(named, prefix="/envs/{game}")
    whole.include_router(_task_routes(by_name, games))
    return whole


class NoGame(NoSession):
    def __init__(self, game: str, games: Sequence[str]) -> None:
        Exception.__init__(self, f"There is no environment {game!r:.80}; there are {', '.join(games)}.")


def _described(routes: APIRouter) -> Callable[[], dict[str, Any]]:
    """What one game's address offers, for clients that take it for the whole server."""

    def openapi() -> dict[str, Any]:
        from kibitz import __version__

        return get_openapi(title="kibitz", version=__version__, routes=routes.routes)

    return openapi


def _step_request(game: str) -> type[StepRequest]:
    """Described with the game's own action. The game is imported when somebody asks for the description."""

    def describe(schema: dict[str, Any]) -> None:
        schema["properties"]["action"] = models(get_environment(game)).action.model_json_schema()

    config = ConfigDict(json_schema_extra=describe)
    return type(f"Step_{game}", (StepRequest,), {"model_config": config, "__module__": __name__})


def _routes(which: Callable[..., Service], health: bool, game: str | None = None) -> APIRouter:
    """`game` if there is only one."""
    routes = APIRouter(route_class=Route, responses=ERRORS)
    chosen = Depends(which)

    @routes.post("/reset", response_model=Stepped)
    async def reset(
        request: Request, response: Response, body: ResetRequest | None = None, service: Service = chosen
    ) -> Any:
        """A new episode: in the session that is named, or in a new one."""
        given = body.model_dump(exclude_none=True) if body is not None else {}
        session = _session(service, request, given.pop("session_id", None))
        return await _stepped(service, response, session, session.reset, given)

    async def step(request: Request, response: Response, body: StepRequest, service: Service = chosen) -> Any:
        """One action. Without a session a new one begins with default options."""
        session = _session(service, request, body.session_id)
        return await _stepped(service, response, session, session.step, body.action)

    if game is not None:  # its actions can be described
        step.__annotations__["body"] = _step_request(game)
    routes.post("/step", response_model=Stepped)(step)

    @routes.get("/state")
    async def state(request: Request, session_id: str | None = None, service: Service = chosen) -> dict[str, Any]:
        """Of the session that is named; without one, of an environment that has not begun."""
        named = session_id or request.headers.get(HEADER)
        if named is None:
            return await service.sessions.aside(Session(service.game).state)
        session = service.sessions.find(service.game, named)
        return await service.sessions.run(session, session.state)

    @routes.get("/schema")
    async def schema(service: Service = chosen) -> dict[str, Any]:
        return await service.sessions.aside(_schemas, service.game)

    @routes.get("/metadata")
    async def metadata(service: Service = chosen) -> dict[str, Any]:
        return await service.sessions.aside(_metadata, service.game)

    if health:

        @routes.get("/health")
        async def healthy(service: Service = chosen) -> dict[str, Any]:
            return {"status": "healthy", "sessions": len(service.sessions), "max_sessions": service.sessions.limit}

    @routes.post("/mcp", responses={200: {"model": dict[str, Any]}, 202: {"description": "a notification"}})
    async def mcp(request: Request, service: Service = chosen) -> Response:
        """JSON-RPC; `initialize` answers with a session in `Mcp-Session-Id`."""
        named = request.headers.get(MCP_HEADER) or request.headers.get(HEADER) or ""
        said = await openenv_mcp.answer(service.game, service.sessions, await request.body(), None, named)
        headers = {MCP_HEADER: said.session.id} if said.session is not None else None
        return Response(status_code=202) if said.body is None else JSONResponse(said.body, headers=headers)

    @routes.delete("/mcp", status_code=204, include_in_schema=False)
    async def mcp_end(request: Request, service: Service = chosen) -> Response:
        """Ends the session in `Mcp-Session-Id`; without one there is nothing to delete here."""
        if MCP_HEADER not in request.headers:
            return JSONResponse({"error": f"DELETE needs {MCP_HEADER}."}, 405, headers={"Allow": "POST"})
        session = service.sessions.find(service.game, request.headers[MCP_HEADER])
        service.sessions.close(session.id)
        return Response(status_code=204)

    @routes.websocket("/ws")
    async def ws(websocket: WebSocket, service: Service = chosen) -> None:
        await Socket(websocket, service).talk(play)

    @routes.websocket("/mcp")
    async def mcp_ws(websocket: WebSocket, service: Service = chosen) -> None:
        await Socket(websocket, service).talk(rpc)

    return routes


def _task_routes(which: Callable[..., Service], games: Sequence[str]) -> APIRouter:
    routes = APIRouter(route_class=Route, responses=ERRORS)

    def named(env_name: str) -> Service:
        return which(env_name)

    chosen = Depends(named)

    @routes.get("/list_environments")
    async def list_environments() -> list[str]:
        return list(games)

    @routes.get("/{env_name}/splits")
    async def list_splits(service: Service = chosen) -> list[dict[str, str]]:
        names = await service.sessions.aside(openenv_tasks.splits, service.game)
        return [{"name": name, "type": "test"} for name in names]

    @routes.post("/{env_name}/tasks")
    async def list_tasks(body: Split, service: Service = chosen) -> dict[str, Any]:
        found = await service.sessions.aside(openenv_tasks.tasks, service.game, body.split)
        return {"tasks": found, "env_name": service.game}

    @routes.post("/{env_name}/num_tasks")
    async def num_tasks(body: Split, service: Service = chosen) -> dict[str, int]:
        return {"num_tasks": await service.sessions.aside(openenv_tasks.count, service.game, body.split)}

    @routes.post("/{env_name}/task")
    async def get_task(body: TaskIndex, service: Service = chosen) -> dict[str, Any]:
        return {"task": await service.sessions.aside(openenv_tasks.task, service.game, body.split, body.index)}

    @routes.post("/{env_name}/task_range")
    async def get_task_range(body: TaskRange, service: Service = chosen) -> dict[str, Any]:
        wanted = (service.game, body.split, body.start, body.stop)
        return {"tasks": await service.sessions.aside(openenv_tasks.tasks, *wanted)}

    return routes


def _session(service: Service, request: Request, named: str | None) -> Session:
    named = named or request.query_params.get("session_id") or request.headers.get(HEADER)
    if not named:
        return service.sessions.open(service.game)
    return service.sessions.find(service.game, named)


async def _stepped(
    service: Service, response: Response, session: Session, call: Callable[..., dict[str, Any]], given: Any
) -> dict[str, Any]:
    fresh = not session.begun
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
