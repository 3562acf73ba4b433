"""What can be configured about the live server."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from kibitz.core.errors import BadInput
from kibitz.live.access.roles import check_token

ORIGIN = r"https?://[A-Za-z0-9.-]+(:\d+)?"


@dataclass(frozen=True)
class LiveConfig:
    """The defaults suit one person on one machine."""

    host: str = "127.0.0.1"
    port: int = 8000
    store: str = "kibitz.db"  # a file, sqlite:///FILE, or postgresql://...
    bus: str = ""  # redis://..., or empty: in process
    token: str = ""  # once it is set, every route that changes something requires it
    tokens: Path | None = None  # file with more tokens, each with a role and a name
    audit: Path | None = None  # file that gets a line about every change and every wrong token
    max_episodes: int = 1  # played at once by this server
    pace: float = 0.6  # seconds between steps, so that people can follow
    player_timeout: float = 30.0  # seconds a player may think about a turn
    store_timeout: float = 30.0  # seconds the store may be unavailable before an episode fails
    drain: float = 5.0  # seconds that running episodes get to end after SIGTERM
    human_seconds: float = 60.0  # seconds a person may think about a turn
    max_drivers: int = 100  # open episodes that are played elsewhere
    driver_timeout: float = 600.0  # seconds without an event after which a driver's episode counts as interrupted
    connections: int = 200  # sockets and streams per address
    starts: float = 10.0  # episodes that one address may start, stop or load per second
    trusted_proxies: int = 0  # in front of the server, each of which appends to X-Forwarded-For
    runs: Path = Path("runs")  # training runs that may play, and are listed
    default_game: str = ""  # of a start that names none, and of OpenEnv at the root; empty: the first registered
    audio: Path | None = None  # folder of the spoken lines
    commentator: str = "template"  # template or llm:PRESET
    embed: str = ""  # sites that may show episodes in a frame: origins, or * for all; empty: none
    warm: bool = True  # compile the games in the background at the start

    def check(self) -> None:
        """BadInput if the configuration is unsafe or malformed."""
        guarded = bool(self.token) or self.tokens is not None
        if not self.local and not guarded:
            raise BadInput(f"{self.host} can be reached from other machines; give a --token, or use 127.0.0.1.")
        if self.trusted_proxies and not guarded:
            raise BadInput("Behind a proxy the server can be reached from other machines; give a --token.")
        if self.token:
            check_token(self.token)
        if self.embed and not re.fullmatch(rf"\*|{ORIGIN}( {ORIGIN})*", self.embed):
            raise BadInput(f"{self.embed!r} names no sites; give origins such as https://example.org, or * for all.")
        if self.bus and not self.bus.startswith(("redis://", "rediss://", "unix://")):
            shown = self.bus.split("@")[-1]  # without user and password
            raise BadInput(f"The bus {shown!r} is not supported; give redis://HOST:PORT, or omit --bus.")

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the server."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False
