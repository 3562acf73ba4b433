"""What can be configured about the live server."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from kibitz.core.errors import BadInput
from kibitz.live.access.roles import check_token

ORIGIN = r"https?://[A-Za-z0-9.-]+(:\d+)?"
VARIABLE_PREFIX = "KIBITZ"  # of environment variables that set options of `kibitz serve`


@dataclass(frozen=True)
class LiveConfig:
    """The defaults suit one person on one machine."""

    host: str = "127.0.0.1"
    port: int = 8000
    store: str = "kibitz.db"  # a file, sqlite:///FILE, or postgresql://...
    bus: str = ""  # redis://..., or empty: in process
    token: str = ""  # once it is set, every route that changes something requires it
    tokens: Path | None = None  # file with more tokens, each with a role and a name
    guests: str = ""  # token of an invitation, whose holders may start and play but not administer
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

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> LiveConfig:
        """`KIBITZ_STORE` for `store`, and so on: the variables of `kibitz serve`. BadInput names a malformed one."""
        given: dict[str, Any] = {}
        for one in fields(cls):
            text = environment.get(variable := f"{VARIABLE_PREFIX}_{one.name}".upper(), "")
            if text:
                try:
                    # KIBITZ_GUESTS is a switch of the command: as a token, its value could be guessed
                    given[one.name] = _read(text, False if one.name == "guests" else one.default)
                except (ValueError, KeyError):
                    raise BadInput(f"{variable} is {text!r}, which {one.name} cannot be; correct it.") from None
        if given.pop("guests", False):
            raise BadInput(
                "KIBITZ_GUESTS needs `kibitz serve`, which prints the invitation; "
                "unset it, or give guests tokens of their own in the file of KIBITZ_TOKENS."
            )
        return cls(**given)

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
        if self.guests and not guarded:
            raise BadInput("An invitation needs a server with a token; give a --token as well as --guests.")
        if self.guests:
            check_token(self.guests, "The invitation's token")
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


def _read(text: str, like: Any) -> Any:
    """The text as a value of the default's type; ValueError if it is none. A default of None is a path."""
    if isinstance(like, bool):
        return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[text.lower()]
    return Path(text) if like is None else type(like)(text)
