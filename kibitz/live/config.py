"""What `kibitz serve` may be told."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from kibitz.core.errors import BadInput


@dataclass(frozen=True)
class LiveConfig:
    """Defaults suit one person on one machine."""

    host: str = "127.0.0.1"
    port: int = 8000
    store: str = "kibitz.db"  # a file, or postgresql://...
    bus: str = ""  # empty: in process; redis://...
    token: str = ""  # needed by every changing route once it is set
    max_episodes: int = 1  # played at once by this server
    pace: float = 0.6  # seconds between steps, for people to watch
    patience: float = 30.0  # seconds a player may think, and a store may be away
    human_seconds: float = 60.0  # how long a person may think
    driver_silence: float = 600.0  # seconds after which a driver's episode counts as interrupted
    connections: int = 200  # sockets and streams of one address
    starts: float = 10.0  # episodes that one address may start, stop or load in a second
    runs: Path = Path("runs")  # training runs that may play, and are shown
    audio: Path | None = None  # where spoken lines are kept
    commentator: str = "template"  # or llm:PRESET
    warm: bool = True  # compile in the background at the start

    def check(self) -> None:
        """Another address than this machine's own only with a token."""
        if not self.local and not self.token:
            raise BadInput(f"{self.host} can be reached from other machines; give a --token, or use 127.0.0.1.")
        if self.token and (len(self.token) < 8 or not self.token.isascii() or not self.token.isprintable()):
            raise BadInput("A token needs at least 8 printable ASCII characters.")
        if self.bus and not self.bus.startswith(("redis://", "rediss://", "unix://")):
            raise BadInput(f"The bus {self.bus!r} is not known; give redis://HOST:PORT, or nothing.")

    @property
    def local(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False
