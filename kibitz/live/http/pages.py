"""The cockpit's page and its files: small, cached by content, compressed once."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import posixpath
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request, Response

from kibitz.live.store.base import StoreUnavailable

STATIC = Path(__file__).parent.parent / "static"
# address -> the module that draws what is there
ADDRESSES = {
    "/custom": "watch.js",
    "/e/{episode_id}": "watch.js",
    "/lobby": "episodes.js",
    "/leaderboard": "leaderboard.js",
    "/runs": "runs.js",
}
IMPORTS = re.compile(r'^import .*"(\.{1,2}/[\w./]+\.js)";$', re.MULTILINE)
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    # asked again each time and answered with 304: a new version of kibitz is seen at once
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}


@dataclass(frozen=True)
class File:
    body: bytes
    squeezed: bytes
    tag: str
    kind: str

    def answer(self, request: Request) -> Response:
        headers = HEADERS | {"ETag": self.tag}
        if self.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(self.squeezed, media_type=self.kind, headers=headers | {"Content-Encoding": "gzip"})
        return Response(self.body, media_type=self.kind, headers=headers)


def _file(body: bytes, suffix: str) -> File:
    tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
    return File(body, gzip.compress(body, 9, mtime=0), tag, TYPES[suffix])


@cache
def files() -> dict[str, File]:
    """Everything that is served, by name; a path that is not here does not exist."""
    found = (path for path in sorted(STATIC.rglob("*")) if path.suffix in TYPES)
    return {path.relative_to(STATIC).as_posix(): _file(path.read_bytes(), path.suffix) for path in found}


@cache
def needed(view: str, game: str) -> str:
    """A header by which the browser learns at once of every module and style sheet, not of one after the other.

    First what the first paint waits for: the theme and the frame's style. Other style sheets are only fetched ahead.
    """
    modules = [name for name in ("app.js", view, f"games/{game}.js") if name in files()]
    for module in modules:  # it grows meanwhile
        for name in IMPORTS.findall(files()[module].body.decode()):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(module), name))
            if path not in modules:
                modules.append(path)
    styles = [name for module in modules if (name := module.replace(".js", ".css")) in files()]
    links = ["</static/theme.js>; rel=preload; as=script"]
    links += [f"</static/{name}>; rel=preload; as=style" for name in ("cockpit.css", *styles)]
    return ", ".join(links + [f"</static/{name}>; rel=modulepreload" for name in modules])


async def _game(request: Request) -> str:
    """What is played at this address, if anybody knows: the page fetches that game's files with the rest."""
    state = request.app.state
    episode_id = request.path_params.get("episode_id", "")
    if not episode_id:
        return next((live.game for live in list(state.runner.running.values())), "")
    with suppress(StoreUnavailable):
        row = await asyncio.to_thread(state.bus.store.episode, episode_id)
        return row.game if row else ""
    return ""


def router() -> APIRouter:
    """One page for every address of the cockpit, and the files it asks for."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/static/{name:path}")
    async def static(name: str, request: Request) -> Response:
        file = files().get(name)
        if file is None:
            raise HTTPException(404, "There is no such file.")
        return file.answer(request)

    def page(view: str) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            told = files()["page.html"].answer(request)
            told.headers["Link"] = needed(view, await _game(request) if view == "watch.js" else "")
            return told

        return answer

    for address, view in ADDRESSES.items():
        routes.add_api_route(address, page(view), methods=["GET", "HEAD"])
    return routes
