"""Sessions: environments kept between calls, limited in number and closed when idle.

A pool of threads runs the environments, one call per session at a time, so that no game blocks the event
loop or another session.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from kibitz.core.envs.tool_env import Environment, models
from kibitz.core.errors import BadInput
from kibitz.core.registry import import_jax
from kibitz.games import get_environment
from kibitz.live.openenv.tasks import read_options

T = TypeVar("T")
MAX_WORKERS = 8  # threads that run environments
MAX_REAP_SECONDS = 30.0  # between two rounds that close idle sessions
log = logging.getLogger("kibitz.live")


class NoFreeSession(Exception):
    """Every session is in use."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"All {limit} sessions are in use; close one or retry later.")
        self.limit = limit


class NoSession(Exception):
    """No session has this id, or it has been closed."""

    def __init__(self, session_id: str) -> None:
        shown = session_id if session_id.isprintable() and len(session_id) <= 64 else "of this id"
        super().__init__(f"There is no session {shown}; it may have been closed because it was idle.")


class EnvironmentFailed(Exception):
    """An environment raised an unexpected exception; the details are in the log."""


class EnvSession:
    """One environment. `reset`, `step` and `state` block: call them through `Sessions.run`."""

    def __init__(self, game: str, runs: Path = Path("runs")) -> None:
        self.id = uuid.uuid4().hex
        self.game, self._runs = game, runs
        self.attached = False  # to a socket, and lives as long as the socket
        self.closing = False  # once the socket ends
        self.used = time.monotonic()  # the last call
        self.lock = asyncio.Lock()
        self.begun = False
        self._environment: Environment | None = None
        self._episode_id: str | None = None
        self._last: dict[str, Any] = {}

    @property
    def environment(self) -> Environment:
        if self._environment is None:
            import_jax()
            from kibitz.core.play.resolve import Resolver

            self._environment = get_environment(self.game)(resolver=Resolver(self._runs))
        return self._environment

    def reset(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """`given` has OpenEnv's seed and episode_id, and any option of the game."""
        options, episode_id = read_options(self.game, given)
        observation = self.environment.reset(options)
        self._episode_id, self.begun = episode_id, True
        return self._shown(observation)

    def step(self, action: Any) -> dict[str, Any]:
        """`action` is an instance of the environment's action model, or its fields."""
        model = models(type(self.environment)).action
        if not isinstance(action, model):
            fields = dict(action)
            if "metadata" not in model.model_fields:
                fields.pop("metadata", None)  # OpenEnv's typed clients always send it
            action = model.model_validate(fields)
        if not self.begun:
            self.reset({})
        return self._shown(self.environment.step(action))

    def observe(self) -> dict[str, Any]:
        """The last observation again; begins an episode if there is none."""
        return self._last if self.begun else self.reset({})

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.environment.state.model_dump(mode="json")
        return state | ({"episode_id": self._episode_id} if self._episode_id else {})

    def _shown(self, observation: Any) -> dict[str, Any]:
        fields = observation.model_dump(mode="json", exclude={"done", "reward"})
        self._last = {"observation": fields, "reward": observation.reward, "done": observation.done}
        return self._last


class Sessions:
    """At most `limit` sessions; one without a socket is closed after `idle` seconds without a call.

    When all are in use, the one that has been idle longest gives way, if that is at least `grace` seconds:
    a plain HTTP caller never closes its session. Policies that callers name are looked up in `runs`.
    """

    def __init__(self, limit: int = 64, idle: float = 900.0, grace: float = 30.0, runs: Path = Path("runs")) -> None:
        self.limit, self.idle, self.grace, self._runs = limit, idle, grace, runs
        self.refused = self.reaped = 0  # since the start
        self._all: dict[str, EnvSession] = {}
        self._pool = ThreadPoolExecutor(min(MAX_WORKERS, (os.cpu_count() or 1) + 2), "kibitz-session")
        self._reaper: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._all)

    def open(self, game: str, attached: bool = False) -> EnvSession:
        if len(self._all) >= self.limit and not self._make_room():
            self.refused += 1
            raise NoFreeSession(self.limit)
        session = EnvSession(game, self._runs)
        session.attached = attached
        self._all[session.id] = session
        if self._reaper is None or self._reaper.done():
            self._reaper = asyncio.get_running_loop().create_task(self._reap())
        return session

    def find(self, game: str, session_id: str) -> EnvSession:
        session = self._all.get(session_id)
        if session is None or session.game != game:
            raise NoSession(session_id)
        session.used = time.monotonic()
        return session

    def close(self, session_id: str) -> bool:
        """Whether the session is closed now. One with a socket stays until the socket ends."""
        session = self._all.get(session_id)
        if session is None:
            return False
        if session.attached:
            session.closing = True
            return False
        del self._all[session_id]
        return True

    def release(self, session: EnvSession, own: bool) -> None:
        """Detaches a session from its socket. One that the socket did not open lives on, unless it is closing."""
        session.attached, session.used = False, time.monotonic()
        if own or session.closing:
            self.close(session.id)

    async def run(self, session: EnvSession, function: Callable[..., T], *arguments: Any) -> T:
        """Runs a call in the pool, after the session's earlier calls."""
        async with session.lock:
            try:
                return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)
            except (BadInput, ValidationError):
                raise
            except Exception as error:
                log.exception("the environment of session %s (%s) failed", session.id, session.game)
                raise EnvironmentFailed(
                    f"The environment failed with {type(error).__name__}; begin a new episode."
                ) from None
            finally:
                session.used = time.monotonic()

    async def aside(self, function: Callable[..., T], *arguments: Any) -> T:
        """Runs a slow call that belongs to no session, such as importing a game."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    async def aclose(self) -> None:
        if self._reaper is not None:
            self._reaper.cancel()
            with suppress(asyncio.CancelledError):
                await self._reaper
        self._all.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _make_room(self) -> bool:
        free = [session for session in self._all.values() if not session.attached and not session.lock.locked()]
        oldest = min(free, key=lambda session: session.used, default=None)
        if oldest is None or time.monotonic() - oldest.used < min(self.grace, self.idle):
            return False
        self.reaped += 1
        return self.close(oldest.id)

    async def _reap(self) -> None:
        """Closes idle sessions, as long as there are sessions."""
        while self._all:
            await asyncio.sleep(min(MAX_REAP_SECONDS, max(0.05, self.idle / 4)))
            now = time.monotonic()
            for session in list(self._all.values()):
                if not session.attached and not session.lock.locked() and now - session.used >= self.idle:
                    self.reaped += self.close(session.id)


class Service(NamedTuple):
    """One game behind one address."""

    game: str
    sessions: Sessions
