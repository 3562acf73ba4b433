"""OpenEnv's routes for any game: `app.include_router(router(games, root, sessions))`.

The root game is at `/`, every game under `/envs/{game}/`: `/reset /step /state /schema /metadata /health /ws /mcp`
and the Task API, as OpenEnv 0.10 defines them, without its `openenv` package. Unlike there, plain HTTP calls keep
their episode: every answer names its session in `X-Session-Id`, and a call that sends it back (as header, query or
body `session_id`) continues it. `/health` at the root belongs to the app, as do tokens, origins and error answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header, Request, Response, WebSocket
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kibitz.core.envs.tool_env import models
from kibitz.core.errors import BadInput
from kibitz.core.registry import import_jax, is_usable
from kibitz.core.system.seed import LAST_SEED
from kibitz.games import get_environment, get_game
from kibitz.live.bodies import Problem, Strict
from kibitz.live.openenv import mcp as openenv_mcp
from kibitz.live.openenv import tasks as openenv_tasks
from kibitz.live.openenv.sessions import EnvSession, Service, Sessions
from kibitz.live.openenv.ws import Socket, play, rpc

HEADER = "X-Session-Id"
MCP_HEADER = "Mcp-Session-Id"
Seed = Annotated[int, Field(ge=0, le=LAST_SEED)]
Index = Annotated[int, Field(ge=-(2**31), lt=2**31)]  # of a task, or of a slice of tasks


class ResetRequest(Strict):
    """Other fields are options of the game, which checks them."""

    model_config = ConfigDict(extra="allow")

    seed: Seed | None = None
    episode_id: str | None = Field(None, pattern=openenv_tasks.EPISODE_ID)
    session_id: str | None = Field(None, max_length=64)


class StepRequest(Strict):
    action: dict[str, Any] = Field(description="see /schema")
    session_id: str | None = Field(None, max_length=64)
    timeout_s: float | None = Field(None, gt=0, description="accepted, but unused: a step takes milliseconds")
    request_id: str | None = Field(None, max_length=255)


class StepAnswer(BaseModel):
    observation: dict[str, Any]
    reward: float | None
    done: bool
    metadata: dict[str, Any]


class SplitRequest(Strict):
    split: str = Field(max_length=64)


class TaskRequest(SplitRequest):
    index: Annotated[Index, Field(ge=0)]


class TaskRangeRequest(SplitRequest):
    start: Index | None = None
    stop: Index | None = None


ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": Problem} for status in (404, 422, 429)}


def router(games: Sequence[str], root: str, sessions: Sessions) -> APIRouter:
    """All routes. The games share `sessions`; call its `aclose()` when the app shuts down."""
    if root not in games:
        raise BadInput(f"There is no game {root!r} for the root; choose one of {', '.join(games)}.")
    whole = APIRouter(responses=ERRORS, tags=["OpenEnv"])
    whole.include_router(_routes(Service(root, sessions)))
    whole.get("/list_environments")(_listed(games))
    for game in games:
        service = Service(game, sessions)
        own = _routes(service)
        own.get("/health")(_health(sessions))
        own.get("/openapi.json", include_in_schema=False)(_document(own))
        whole.include_router(own, prefix=f"/envs/{game}")
        whole.include_router(_task_routes(service), prefix=f"/{game}")
    return whole


def _listed(games: Sequence[str]) -> Callable[[], list[str]]:
    def list_environments() -> list[str]:
        """The names of the games."""
        return list(games)

    return list_environments


def _health(sessions: Sessions) -> Callable[[], dict[str, Any]]:
    def healthy() -> dict[str, Any]:
        """Whether the environment is available, and how many of its sessions are in use."""
        return {"status": "healthy", "sessions": len(sessions), "max_sessions": sessions.limit}

    return healthy


def _document(routes: APIRouter) -> Callable[[], Response]:
    """The OpenAPI document of one game, for clients that take its address for the whole server."""
    listed = list(routes.routes)  # before they get the game's prefix

    @cache
    def document() -> bytes:
        from kibitz import __version__

        return orjson.dumps(get_openapi(title="kibitz", version=__version__, routes=listed))

    def openapi() -> Response:
        return Response(document(), media_type="application/json")

    return openapi


def _of_game(request: type[BaseModel], game: str, describe: Callable[[str, dict[str, Any]], None]) -> Any:
    """The request with the game's own JSON schema, which is made, and the game imported, on demand."""

    def extend(schema: dict[str, Any]) -> None:
        if is_usable(game):  # a game that cannot be loaded must not take the whole document down
            describe(game, schema)

    config = {**request.model_config, "json_schema_extra": extend}
    return type(f"{request.__name__}_{game}", (request,), {"model_config": config, "__module__": __name__})


def _describe_step(game: str, schema: dict[str, Any]) -> None:
    schema["properties"]["action"] = models(get_environment(game)).action.model_json_schema()


def _describe_reset(game: str, schema: dict[str, Any]) -> None:
    import_jax()
    from kibitz.live.openenv.schemas import reset_properties

    schema["properties"] |= reset_properties(game)
    schema["additionalProperties"] = {"type": "null"}  # null counts as omitted


def _describe_split(game: str, schema: dict[str, Any]) -> None:
    schema["properties"]["split"]["enum"] = list(openenv_tasks.splits(game))


def _routes(service: Service) -> APIRouter:
    """One game behind one address."""
    routes = APIRouter(responses=ERRORS)
    sessions, game = service.sessions, service.game

    async def reset(request: Request, response: Response, body: ResetRequest | None = None) -> Any:
        """A new episode, in the session that the caller names or in a new one."""
        given = body.model_dump(exclude_none=True) if body is not None else {}
        session, fresh = _session(service, request, given.pop("session_id", None))
        return await _stepped(service, response, session, fresh, session.reset, given)

    async def step(request: Request, response: Response, body: StepRequest) -> Any:
        """One action. Without a session, begins one with default options."""
        session, fresh = _session(service, request, body.session_id)
        return await _stepped(service, response, session, fresh, session.step, body.action)

    reset.__annotations__["body"] = _of_game(ResetRequest, game, _describe_reset) | None
    step.__annotations__["body"] = _of_game(StepRequest, game, _describe_step)
    routes.post("/reset", response_model=StepAnswer)(reset)
    routes.post("/step", response_model=StepAnswer)(step)

    @routes.get("/state")
    async def state(request: Request, session_id: str | None = None) -> dict[str, Any]:
        """The state of the session that the caller names, or of an environment that has not begun."""
        named = session_id or request.headers.get(HEADER)
        if named is None:
            return await sessions.aside(EnvSession(game).state)
        session = sessions.find(game, named)
        return await sessions.run(session, session.state)

    @routes.get("/schema")
    async def schema() -> dict[str, Any]:
        """JSON schemas of action, observation and state."""
        return await sessions.aside(_schemas, game)

    @routes.get("/metadata")
    async def metadata() -> dict[str, Any]:
        """Name, description and version of the environment."""
        return await sessions.aside(_metadata, game)

    answers: dict[int | str, dict[str, Any]] = {
        200: {"model": dict[str, Any]},
        202: {"description": "a notification"},
        400: {"model": dict[str, Any], "description": "the message is not valid JSON"},
    }

    body = {"required": True, "content": {"application/json": {"schema": {"description": "a JSON-RPC message"}}}}

    @routes.post("/mcp", responses=answers, openapi_extra={"requestBody": body})
    async def mcp(request: Request) -> Response:
        """JSON-RPC; `initialize` answers with a session in `Mcp-Session-Id`."""
        named = request.headers.get(MCP_HEADER) or request.headers.get(HEADER) or ""
        answer = await openenv_mcp.answer(game, sessions, await request.body(), None, named)
        headers = {MCP_HEADER: answer.session.id} if answer.session is not None else None
        if answer.body is None:
            return Response(status_code=202)
        status = 400 if answer.body.get("error", {}).get("code") == openenv_mcp.PARSE else 200
        return JSONResponse(answer.body, status, headers)

    @routes.delete("/mcp", status_code=204, responses={202: {"model": dict[str, Any]}})
    async def mcp_end(mcp_session_id: Annotated[str, Header(min_length=1)]) -> Response:
        """Ends a session. 202: the session has a socket and ends with it."""
        ended = openenv_mcp.end_session(game, sessions, mcp_session_id)
        return Response(status_code=204) if ended["closed"] else JSONResponse(ended, 202)

    @routes.websocket("/ws")
    async def ws(websocket: WebSocket) -> None:
        await Socket(websocket, service).talk(play)

    @routes.websocket("/mcp")
    async def mcp_ws(websocket: WebSocket) -> None:
        await Socket(websocket, service).talk(rpc)

    return routes


def _task_routes(service: Service) -> APIRouter:
    routes = APIRouter(responses=ERRORS)
    game, aside = service.game, service.sessions.aside

    @routes.get("/splits")
    async def list_splits() -> list[dict[str, str]]:
        """The packs of the game, as splits."""
        return [{"name": name, "type": "test"} for name in await aside(openenv_tasks.splits, game)]

    async def list_tasks(body: SplitRequest) -> dict[str, Any]:
        """Every scenario of a pack, as tasks."""
        return {"tasks": await aside(openenv_tasks.tasks, game, body.split), "env_name": game}

    async def num_tasks(body: SplitRequest) -> dict[str, Any]:
        """The number of scenarios in a pack."""
        return {"num_tasks": await aside(openenv_tasks.count, game, body.split)}

    async def get_task(body: TaskRequest) -> dict[str, Any]:
        """One scenario of a pack."""
        return {"task": await aside(openenv_tasks.task, game, body.split, body.index)}

    async def get_task_range(body: TaskRangeRequest) -> dict[str, Any]:
        """The scenarios of a pack from `start` to before `stop`."""
        return {"tasks": await aside(openenv_tasks.tasks, game, body.split, body.start, body.stop)}

    calls: dict[str, tuple[Callable[..., Any], type[SplitRequest]]] = {
        "tasks": (list_tasks, SplitRequest),
        "num_tasks": (num_tasks, SplitRequest),
        "task": (get_task, TaskRequest),
        "task_range": (get_task_range, TaskRangeRequest),
    }
    for name, (call, asked) in calls.items():
        call.__annotations__["body"] = _of_game(asked, game, _describe_split)
        routes.post(f"/{name}")(call)
    return routes


def _session(service: Service, request: Request, named: str | None) -> tuple[EnvSession, bool]:
    """The session that the caller names, or a new one; and whether it is new."""
    named = named or request.query_params.get("session_id") or request.headers.get(HEADER)
    if not named:
        return service.sessions.open(service.game), True
    return service.sessions.find(service.game, named), False


async def _stepped(
    service: Service,
    response: Response,
    session: EnvSession,
    fresh: bool,
    call: Callable[..., dict[str, Any]],
    given: Any,
) -> dict[str, Any]:
    try:
        shown = await service.sessions.run(session, call, given)
    except (BadInput, ValidationError) as error:
        if fresh:  # the caller does not know its id
            service.sessions.close(session.id)
        if isinstance(error, BadInput):
            raise
        first = error.errors()[0]
        raise BadInput(f"action.{'.'.join(map(str, first['loc']))}: {first['msg']}.") from None
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

    about = getattr(get_environment(game), "title", None) or get_game(game).title
    return {"name": game, "description": about, "version": __version__}
