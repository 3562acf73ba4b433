"""The cockpit's page and its files, the server's own and the games'; each is compressed once and cached by content."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import logging
import posixpath
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, HTTPException, Request, Response

from kibitz.live.http.security import CONTENT_POLICY
from kibitz.live.store.base import Row, StoreUnavailable

if TYPE_CHECKING:
    from kibitz.core.game import Game

log = logging.getLogger("kibitz.live")
STATIC = Path(__file__).parent.parent / "static"
WATCH, EMBED = "episode/watch.js", "episode/embed.js"
# address -> the module that draws its view
ADDRESSES = {
    "/": "pages/home.js",
    "/custom": WATCH,
    "/e/{episode_id}": WATCH,
    "/embed/{episode_id}": EMBED,
    "/compare": "episode/compare.js",
    "/lobby": "pages/episodes.js",
    "/leaderboard": "pages/leaderboard.js",
    "/players/{name:path}": "pages/player.js",
    "/tournaments/{name}": "pages/tournament.js",
    "/studies": "pages/studies.js",
    "/runs": "pages/runs.js",
}
GENERIC = "episode/generic.js"  # draws games without their own page
GAME = re.compile(r"[a-z0-9_]{1,64}")
MAX_GAMES = 64  # kept in memory; anyone may request a name that does not exist
IMPORTS = re.compile(r'^(?:import|export) .*"(\.{1,2}/[\w./]+\.js)";$', re.MULTILINE)
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    # The browser revalidates each time and gets a 304, so a new version of kibitz takes effect at once.
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}
PRELOAD_SECONDS = 0.2  # how long a page waits for a game's record, which imports JAX the first time


@dataclass(frozen=True)
class File:
    body: bytes
    compressed: bytes
    tag: str
    kind: str

    def answer(self, request: Request) -> Response:
        headers = HEADERS | {"ETag": self.tag}
        if self.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(self.compressed, media_type=self.kind, headers=headers | {"Content-Encoding": "gzip"})
        return Response(self.body, media_type=self.kind, headers=headers)


def file_of(body: bytes, kind: str) -> File:
    tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
    return File(body, gzip.compress(body, 9, mtime=0), tag, kind)


def _folder(root: Path, prefix: str = "") -> dict[str, File]:
    found = (path for path in sorted(root.rglob("*")) if path.suffix in TYPES)
    return {
        prefix + path.relative_to(root).as_posix(): file_of(path.read_bytes(), TYPES[path.suffix]) for path in found
    }


@cache
def files() -> dict[str, File]:
    """The server's own files by name. Only names in this table are served."""
    return _folder(STATIC)


@lru_cache(MAX_GAMES)
def game_files(name: str) -> dict[str, File]:
    """A game's files: `games/NAME/...` from its own package, and `games/NAME.js`, the module that the page imports.

    That module re-exports the game's page, or the generic one, so the page needs to know no file name of the
    game and a game without a page causes no 404. Loads the game's record: call it off the event loop.
    """
    found: dict[str, File] = {}
    module = f'export * from "../{GENERIC}";\n'
    game = _record(name)
    if game is not None:
        page = game.drawing.page
        if page is not None:
            found = _folder(page.folder, f"games/{name}/")
            module = f'export * from "./{name}/{page.module}";\n'
        module += f"export const title = {json.dumps(game.title)};\n"
    return found | {f"games/{name}.js": file_of(module.encode(), TYPES[".js"])}


def _record(name: str) -> Game | None:
    """A registered game's record; None for an unknown name or a game that cannot be imported."""
    from kibitz.games import game_names, get_game

    if name not in game_names():
        return None
    try:
        return get_game(name)
    except Exception:
        log.exception("cannot load the game %s; the generic page draws its episodes", name)
        return None


@lru_cache(4 * MAX_GAMES)
def preloads(view: str, game: str) -> str:
    """A Link header that names every module and style sheet, so the browser fetches them all at once.

    The theme and the frame's style come first, because the first paint waits for them.
    """
    known: Mapping[str, File] = files() | (game_files(game) if game else {})
    modules = [name for name in ("app.js", view, f"games/{game}.js") if name in known]
    for module in modules:  # grows while it is read
        for name in IMPORTS.findall(known[module].body.decode()):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(module), name))
            if path not in modules:
                modules.append(path)
    styles = [name for module in modules if (name := module.replace(".js", ".css")) in known]
    links = ["</static/theme.js>; rel=preload; as=script"]
    links += [f"</static/{name}>; rel=preload; as=style" for name in ("cockpit.css", *styles)]
    return ", ".join(links + [f"</static/{name}>; rel=modulepreload" for name in modules])


def not_found(request: Request) -> Response | None:
    """The page for a person who opens an unknown address; None for a program, which gets JSON."""
    if request.method not in ("GET", "HEAD") or "text/html" not in request.headers.get("accept", ""):
        return None
    headers = HEADERS | {"Vary": "Accept, Accept-Encoding"}
    return Response(files()["page.html"].body, 404, headers, TYPES[".html"])


async def _row(request: Request) -> Row | None:
    """The episode at this address, if there is one."""
    episode_id = request.path_params.get("episode_id", "")
    if not episode_id:
        return None
    with suppress(StoreUnavailable):
        row: Row | None = await asyncio.to_thread(request.app.state.bus.store.episode, episode_id)
        return row
    return None


def _game(request: Request, row: Row | None) -> str:
    """The game played at this address, or an empty string."""
    if "episode_id" in request.path_params:
        return row.game if row and GAME.fullmatch(row.game) else ""
    return next((live.game for live in list(request.app.state.runner.running.values())), "")


def router() -> APIRouter:
    """One page for every address of the cockpit, and the files it requests."""
    routes = APIRouter(include_in_schema=False)
    pending: set[asyncio.Task[str]] = set()  # asyncio itself keeps only weak references

    async def soon(otherwise: str, work: Callable[..., str], *given: Any) -> str:
        """What the work returns, or `otherwise` if that takes too long; a later request then finds it cached."""
        task = asyncio.create_task(asyncio.to_thread(work, *given))
        pending.add(task)
        task.add_done_callback(pending.discard)
        with suppress(TimeoutError, StoreUnavailable):
            return await asyncio.wait_for(asyncio.shield(task), PRELOAD_SECONDS)
        return otherwise

    async def link(view: str, game: str) -> str:
        return await soon(preloads(view, ""), preloads, view, game) if game else preloads(view, "")

    async def head(request: Request, row: Row | None) -> str:
        """How other sites describe a link to this episode; nothing on a server where watching needs a token."""
        state = request.app.state
        if row is None or state.guard.access.tokens.private:
            return ""
        seq = request.query_params.get("seq", "")
        moment = int(seq) if seq.isascii() and seq.isdigit() and len(seq) < 8 else None
        return await soon("", state.cards.head, row, moment, str(request.base_url).rstrip("/"))

    @routes.get("/static/{name:path}")
    async def static(name: str, request: Request) -> Response:
        known = files()
        folder, _, rest = name.partition("/")
        game = rest.partition("/")[0].removesuffix(".js")
        if folder == "games" and GAME.fullmatch(game):
            known = await asyncio.to_thread(game_files, game)
        file = known.get(name)
        if file is None:
            raise HTTPException(404, "There is no such file.")
        return file.answer(request)

    def page(view: str) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            row = await _row(request)
            file = files()["page.html"]
            game = _game(request, row) if view in (WATCH, EMBED) else ""
            about = row if view == WATCH else None
            lines, links = await asyncio.gather(head(request, about), link(view, game))
            if lines:
                file = file_of(file.body.replace(b"</head>", lines.encode() + b"\n</head>"), file.kind)
            response = file.answer(request)
            response.headers["Link"] = links
            if view == EMBED and (sites := request.app.state.config.embed):
                response.headers["Content-Security-Policy"] = CONTENT_POLICY.format(ancestors=sites)
            return response

        return answer

    for address, view in ADDRESSES.items():
        routes.add_api_route(address, page(view), methods=["GET", "HEAD"])
    return routes
