"""The cockpit's page and its files: small, cached by content, compressed once."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request, Response

STATIC = Path(__file__).parent / "static"
# address -> the module that draws what is there
ADDRESSES = {
    "/custom": "watch.js",
    "/e/{episode_id}": "watch.js",
    "/lobby": "episodes.js",
    "/leaderboard": "leaderboard.js",
    "/runs": "runs.js",
}
IMPORTS = re.compile(r'^import .*"\./([\w/]+\.js)";$', re.MULTILINE)
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
    found = {
        path.relative_to(STATIC).as_posix(): path.read_bytes()
        for path in sorted(STATIC.rglob("*"))
        if path.suffix in TYPES
    }
    page = found.pop("page.html")
    for module in set(ADDRESSES.values()):
        found[f"{module}.html"] = page.replace(b"<!-- what this page needs -->\n", _links(found, module).encode())
    return {name: _file(body, Path(name).suffix) for name, body in found.items()}


def _links(found: dict[str, bytes], entry: str) -> str:
    """The browser learns at once of every module and style sheet of the page, not of one after the other."""
    modules, known = ["app.js", entry], {"app.js", entry}
    for module in modules:  # it grows meanwhile
        names = [name for name in IMPORTS.findall(found[module].decode()) if name not in known]
        modules += names
        known |= set(names)
    styles = [name for module in modules if (name := module.replace(".js", ".css")) in found]
    # fetched ahead and not waited for: the first paint needs the style of the frame alone
    links = [f'<link rel="preload" as="style" href="/static/{name}">\n' for name in styles]
    return "".join(links + [f'<link rel="modulepreload" href="/static/{name}">\n' for name in modules[1:]])


def router() -> APIRouter:
    """One page for every address of the cockpit, and the files it asks for."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/static/{name:path}")
    async def static(name: str, request: Request) -> Response:
        file = files().get(name)
        if file is None:
            raise HTTPException(404, "There is no such file.")
        return file.answer(request)

    def page(module: str) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            return files()[f"{module}.html"].answer(request)

        return answer

    for address, module in ADDRESSES.items():
        routes.add_api_route(address, page(module), methods=["GET", "HEAD"])
    return routes
