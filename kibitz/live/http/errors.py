"""Every error is an answer with one sentence."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from kibitz.core.errors import BadInput, NotFound
from kibitz.live.bodies import Problem
from kibitz.live.episodes.runner import ShuttingDown
from kibitz.live.http import pages
from kibitz.live.http.driver_events import TooManyDrivers
from kibitz.live.openenv.sessions import EnvironmentFailed, NoFreeSession, NoSession
from kibitz.live.public_text import public_text
from kibitz.live.store.base import StoreUnavailable
from kibitz.live.stream.calls import PeerUnavailable

STATUSES: dict[type[Exception], int] = {
    NotFound: 404, NoSession: 404, BadInput: 422, EnvironmentFailed: 500, PeerUnavailable: 503, ShuttingDown: 503,
}  # fmt: skip
INVALID_JSON = "The body is not valid JSON."
RETRY_SECONDS = 30  # after which a full server is worth another attempt
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH")
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": why}
    for status, why in (
        (401, "the token is missing or wrong"),
        (403, "the request comes from another site, or the token's role does not allow it"),
        (408, "the rest of the request did not arrive"),
        (413, "the request is too large"),
        (422, "the request is invalid"),
        (429, "too many requests"),
        (503, "the store is unavailable, or the server too busy"),
    )
}


def add_error_handlers(app: FastAPI) -> None:
    for kind, status in STATUSES.items():
        app.add_exception_handler(kind, _sentence_with(status))
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(NoFreeSession, _full)
    app.add_exception_handler(TooManyDrivers, _too_many)
    app.add_exception_handler(StoreUnavailable, _store_unavailable)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _failed)


def _sentence_with(status: int) -> Any:
    async def answer(request: Request, error: Exception) -> JSONResponse:
        return _problem(status, str(error))

    return answer


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "json_invalid":
        return _problem(422, INVALID_JSON)
    name = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
    if first["type"] == "value_error" and not name:
        return _problem(422, message)
    return _problem(422, f"{name or 'The body'}: {message}.")


async def _full(request: Request, error: Exception) -> JSONResponse:
    body = {"error": str(error), "code": "CAPACITY_REACHED"}
    return JSONResponse(body, 429, {"Retry-After": str(RETRY_SECONDS)})


async def _too_many(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, 429, {"Retry-After": str(RETRY_SECONDS)})


async def _store_unavailable(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, StoreUnavailable)
    request.app.state.bus.outages.note(error)
    return _problem(503, error.public)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers, sentence = dict(error.headers or {}), str(error.detail)
    if error.status_code == 400:  # bytes that are not text
        return _problem(422, INVALID_JSON)
    if error.status_code == 405:  # the router names only the methods of the first route at this path
        headers["Allow"] = ", ".join(_methods(request.app, request.url.path))
    if error.status_code == 404 and sentence == "Not Found":
        if page := pages.not_found(request):
            return page
        sentence = "There is nothing at this address; /openapi.json lists every route."
    return JSONResponse({"error": sentence}, error.status_code, headers)


async def _failed(request: Request, error: Exception) -> JSONResponse:
    request.app.state.guard.access.record_failure(request.scope)
    return _problem(500, "The server failed; its log says why.")


def _methods(app: FastAPI, path: str) -> list[str]:
    found: set[str] = set()
    for method in METHODS:
        scope: dict[str, Any] = {"type": "http", "method": method, "path": path, "root_path": "", "headers": []}
        if any(route.matches(scope)[0] == Match.FULL for route in app.routes):
            found.add(method)
    return sorted(found)


def _problem(status: int, sentence: str) -> JSONResponse:
    return JSONResponse({"error": public_text(sentence)}, status)
