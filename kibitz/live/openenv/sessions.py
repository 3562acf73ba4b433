"""Environments kept between calls: so many at once, each closed when nobody has used it for a while.

A session's environment is touched by one thread at a time, in a pool, so that stepping one game never
holds up the event loop or another session.
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
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from kibitz.core.envs.tool_env import Environment, models
from kibitz.core.errors import BadInput
from kibitz.games import get_environment
from kibitz.live.openenv.tasks import checked_options

T = TypeVar("T")
log = logging.getLogger("kibitz.live")


class Full(Exception):
    """No session is free; the sentence says how many there are."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"All {limit} sessions are in use; close one or come back later.")
        self.limit = limit


class NoSession(Exception):
    """There is no session of this id, or none any more."""

    def __init__(self, session_id: str) -> None:
        shown = session_id if session_id.isprintable() and len(session_id) <= 64 else "of this id"
        super().__init__(f"There is no session {shown}; it may have been closed because nobody used it.")


class Broken(Exception):
    """An environment raised what it should not; the log has the details, the caller only this sentence."""


class Session:
    """One environment and who holds it. `reset`, `step` and `state` block; call them through `Sessions.run`."""

    def __init__(self, game: str) -> None:
        self.id = uuid.uuid4().hex
        self.game = game
        self.attached = False  # a socket holds it: it lives as long as the socket
        self.closing = False  # somebody has asked for its end meanwhile
        self.used = time.monotonic()
        self.lock = asyncio.Lock()
        self.begun = False
        self._environment: Environment | None = None
        self._episode_id: str | None = None
        self._last: dict[str, Any] = {}

    @property
    def environment(self) -> Environment:
        if self._environment is None:
            self._environment = get_environment(self.game)()
        return self._environment

    def reset(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """`given` as OpenEnv's clients send it: seed, episode_id, and any option of the game beside them."""
        options, name = checked_options(self.game, given)
        observation = self.environment.reset(options)
        self._episode_id, self.begun = name, True
        return self._shown(observation)

    def step(self, action: Any) -> dict[str, Any]:
        """`action` is of the environment's model, or its fields."""
        model = models(type(self.environment)).action
        if not isinstance(action, model):
            fields = dict(action)
            if "metadata" not in model.model_fields:
                fields.pop("metadata", None)  # OpenEnv's typed clients always send it
            action = model.model_validate(fields)
        if not self.begun:
            self.reset({})
        return self._shown(self.environment.step(action))

    def look(self) -> dict[str, Any]:
        """The last observation again; a session that has not begun begins."""
        return self._last if self.begun else self.reset({})

    def state(self) -> dict[str, Any]:
        told: dict[str, Any] = self.environment.state.model_dump(mode="json")
        return told | ({"episode_id": self._episode_id} if self._episode_id else {})

    def _shown(self, observation: Any) -> dict[str, Any]:
        fields = observation.model_dump(mode="json", exclude={"done", "reward"})
        self._last = {"observation": fields, "reward": observation.reward, "done": observation.done}
        return self._last


class Sessions:
    """`limit` sessions at most; one that no socket holds is closed after `idle` seconds without a call.

    When all are taken, the one that was left alone longest gives way, if that is at least `grace`
    seconds: a plain HTTP caller never says goodbye.
    """

    def __init__(self, limit: int = 64, idle: float = 900.0, grace: float = 30.0, workers: int | None = None) -> None:
        self.limit, self.idle, self.grace = limit, idle, grace
        self.refused = self.reaped = 0  # since the start
        self._all: dict[str, Session] = {}
        self._pool = ThreadPoolExecutor(workers or min(8, (os.cpu_count() or 1) + 2), "kibitz-session")
        self._reaper: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._all)

    def open(self, game: str, attached: bool = False) -> Session:
        if len(self._all) >= self.limit and not self._make_room():
            self.refused += 1
            raise Full(self.limit)
        session = Session(game)
        session.attached = attached
        self._all[session.id] = session
        if self._reaper is None or self._reaper.done():
            self._reaper = asyncio.get_running_loop().create_task(self._reap())
        return session

    def find(self, game: str, session_id: str) -> Session:
        session = self._all.get(session_id)
        if session is None or session.game != game:
            raise NoSession(session_id)
        session.used = time.monotonic()
        return session

    def close(self, session_id: str) -> bool:
        """Whether it has gone now. One that a socket holds is played on, so it counts until the socket lets go."""
        session = self._all.get(session_id)
        if session is None:
            return False
        if session.attached:
            session.closing = True
            return False
        del self._all[session_id]
        return True

    def release(self, session: Session, own: bool) -> None:
        """Its socket has ended. One that was only lent to it lives on, unless its closing was asked for meanwhile."""
        session.attached, session.used = False, time.monotonic()
        if own or session.closing:
            self.close(session.id)

    async def run(self, session: Session, function: Callable[..., T], *arguments: Any) -> T:
        """The call in the pool, after the session's earlier ones."""
        async with session.lock:
            try:
                return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)
            except (BadInput, ValidationError):
                raise
            except Exception as error:
                log.exception("the environment of session %s (%s) failed", session.id, session.game)
                raise Broken(f"The environment failed with {type(error).__name__}; begin a new episode.") from None
            finally:
                session.used = time.monotonic()

    async def aside(self, function: Callable[..., T], *arguments: Any) -> T:
        """Something slow that belongs to no session, such as importing a game."""
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
        """Runs while there is a session to look after."""
        while self._all:
            await asyncio.sleep(min(30.0, max(0.05, self.idle / 4)))
            now = time.monotonic()
            for session in list(self._all.values()):
                if not session.attached and not session.lock.locked() and now - session.used >= self.idle:
                    self.reaped += self.close(session.id)


class Service(NamedTuple):
    """One game behind an address."""

    game: str
    sessions: Sessions
