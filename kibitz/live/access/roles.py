"""Roles, and the tokens that give them: from `--token`, and from a file that is read again when it changes."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kibitz.core.errors import BadInput

log = logging.getLogger("kibitz.live")
MIN_TOKEN = 8  # characters
REREAD_SECONDS = 1.0  # at most so late a changed file takes effect
# role -> what its holder may do
ROLES = {
    "watch": {"watch"},
    "play": {"watch", "play"},
    "start": {"watch", "play", "start"},
    "drive": {"watch", "drive"},
    "administer": {"watch", "play", "start", "drive", "administer"},
}
READING = ("GET", "HEAD", "OPTIONS")
WATCH_PATH = "/custom/ws"
# the page without its data: it has to load before it can ask for a token
OPEN_PATHS = ("/", "/custom", "/lobby", "/leaderboard", "/studies", "/runs", "/compare", "/health", "/ready")
OPEN_FOLDERS = ("/static/", "/e/", "/embed/", "/players/", "/tournaments/")


class Principal(NamedTuple):
    """Who sent a request: the name beside their token, and their role."""

    name: str
    role: str

    def may(self, permission: str) -> bool:
        return permission in ROLES[self.role]


LOCAL = Principal("local", "administer")  # everyone on a server without tokens, which only its own machine can reach
ANYONE = Principal("", "watch")  # without a token


def needed(scope: Mapping[str, Any]) -> str:
    """The permission that a request needs; empty: none. `seat`: only the seat's own token decides."""
    path = scope["path"]
    if scope["type"] == "websocket":
        return "watch" if path == WATCH_PATH else "play"
    if scope["method"] in READING:
        return "" if path in OPEN_PATHS or path.startswith(OPEN_FOLDERS) else "watch"
    if re.fullmatch(r"/episodes/[^/]+/act", path):
        return "seat"
    if path in ("/custom/start_episode", "/custom/stop_episode") or re.fullmatch(r"/episodes/[^/]+/branch", path):
        return "start"
    if path in ("/custom/events", "/episodes"):
        return "drive"
    return "administer" if path.startswith(("/custom/", "/episodes/")) else "play"  # the rest is OpenEnv


class Tokens:
    """The server's tokens. It keeps their digests only, and compares those in constant time."""

    def __init__(self, token: str = "", file: Path | None = None, guests: str = "") -> None:
        """BadInput if the file is malformed. `guests` is the token of an invitation, which may start and play."""
        self.required = bool(token) or file is not None
        own = {token: Principal("token", "administer"), guests: Principal("guests", "start")}
        self._own = [(_digest(text), who) for text, who in own.items() if text]
        self._file, self._version, self._read_at = file, (0, 0, 0), 0.0
        self._known, self._private = self._own, False
        if file is not None:
            self._read(file)

    @property
    def private(self) -> bool:
        """Whether watching needs a token, too: there is one that may only watch, or there was since the start."""
        self._reread()
        return self._private

    def find(self, given: str) -> Principal | None:
        """The holder of this token."""
        self._reread()
        digest, found = _digest(given), None
        for known, principal in self._known:
            if hmac.compare_digest(known, digest):
                found = principal
        return found

    def _reread(self) -> None:
        """Reads a changed file. If that fails, the tokens read before stay valid, and the log says why."""
        if self._file is None or time.monotonic() - self._read_at < REREAD_SECONDS:
            return
        self._read_at = time.monotonic()
        try:
            if _version(self._file) != self._version:
                self._read(self._file)
                log.info("read %d tokens again from %s", len(self._known), self._file)
        except (BadInput, OSError) as error:
            if self._version != (0, 0, 0):
                log.error("the tokens read before stay valid: %s", error)
            self._version = (0, 0, 0)  # try again each time, but log once

    def _read(self, file: Path) -> None:
        try:
            version, text = _version(file), file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise BadInput(f"The tokens in {file} cannot be read: {reason}; give a different --tokens.") from None
        self._known = self._own + _parse(file, text)
        self._version, self._read_at = version, time.monotonic()
        self._private = self._private or any(who.role == "watch" for _, who in self._known)


def check_token(token: str, what: str = "The token") -> None:
    if len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable():
        raise BadInput(f"{what} is too weak; give at least {MIN_TOKEN} printable ASCII characters.")


def _parse(file: Path, text: str) -> list[tuple[bytes, Principal]]:
    """`ROLE NAME TOKEN` on each line. Errors name the line, never its content."""
    found: dict[bytes, Principal] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 3 or words[0] not in ROLES:
            raise BadInput(f"Line {number} of {file} should be ROLE NAME TOKEN; the roles are {', '.join(ROLES)}.")
        role, name, token = words
        check_token(token, f"The token in line {number} of {file}")
        if found.setdefault(_digest(token), Principal(name, role)) != (name, role):
            raise BadInput(f"Line {number} of {file} repeats a token; give each name and role its own.")
    return list(found.items())


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _version(file: Path) -> tuple[int, int, int]:
    found = file.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino
